"""How attempts are called on ways on which the answer comes later.

A host knows a command by one id, whatever the attempt. The row of an attempt is called by that id
with the epoch in it, so that neither has to be looked up: both are UUIDs of version 8, made of the
number of the execution and the epoch. Ids of other versions belong to commands that somebody made
by themselves; they have one attempt.
"""

from __future__ import annotations

import uuid
from typing import Final

from onward.channels.base import Heard
from onward.errors import InvalidInput

_VERSION: Final = 8
_ID_BITS: Final = 60
_EPOCH_BITS: Final = 62


def letter_id(cmd_id: str) -> str:
    """The id by which a host knows a command: without the epoch, if it is an attempt's."""
    known = uuid.UUID(cmd_id)
    if known.version != _VERSION:
        return cmd_id
    return str(uuid.UUID(int=known.int & ~((1 << _EPOCH_BITS) - 1)))


def row_id(command_id: str, epoch: int) -> str:
    """The id of the row of an attempt: a UUID of version 8, made of the execution and the epoch."""
    execution = int(command_id)
    if not (0 <= execution < 1 << _ID_BITS and 0 <= epoch < 1 << _EPOCH_BITS):
        raise InvalidInput("command_id", f"{command_id:.40} is not the number of an execution")
    high, low = execution >> 12, execution & 0xFFF
    return str(uuid.UUID(int=high << 80 | _VERSION << 76 | low << 64 | 0b10 << 62 | epoch))


def execution_of(cmd_id: str) -> int | None:
    """The number of the execution whose attempt has a row of this id; none if it is no attempt."""
    known = uuid.UUID(cmd_id)
    if known.version != _VERSION:
        return None
    return known.int >> 80 << 12 | known.int >> 64 & 0xFFF


def row_id_of(heard: Heard) -> str:
    """The id of the row that is meant by what was heard."""
    try:
        known = uuid.UUID(heard.cmd_id)
    except (ValueError, AttributeError):
        raise InvalidInput("cmd_id", "is not a UUID") from None
    if known.version != _VERSION:
        return str(known)
    if heard.epoch is None or not 0 <= heard.epoch < 1 << _EPOCH_BITS:
        raise InvalidInput("epoch", "is missing: without it nobody knows which attempt is meant")
    return str(uuid.UUID(int=known.int & ~((1 << _EPOCH_BITS) - 1) | heard.epoch))
