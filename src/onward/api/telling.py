"""Writes changes as callers read them, and the positions from which they go on.

A change is an object, in an event or on a page of its own. In a batch it is an array: thousands of
them a second are for programs that show them, and none of those reads the names every time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal

from pydantic import BaseModel, Field

from onward.api import paging
from onward.core.lifecycles import EXECUTION
from onward.errors import InvalidInput
from onward.store.changes import KINDS, Change, Position

_POSITION: Final = "changes"

Kind = Literal["job", "execution", "command"]
# A change as an array: what is where.
BATCHED: Final = (
    *("kind", "job_id", "execution_id", "host_id", "cmd_id"),
    *("event", "status", "seq", "at"),
)


class Changed(BaseModel):
    """Something that changed: a job, an execution, or a command that travels by itself."""

    kind: Kind
    at: datetime
    job_id: int | None = Field(description="Of a job or an execution.", examples=[17])
    execution_id: int | None = Field(description="Of an execution.", examples=[812])
    host_id: int | None = Field(description="Of an execution.", examples=[4])
    cmd_id: str | None = Field(description="Of a command.")
    event: str = Field(examples=["succeed"])
    status: str | None = Field(
        description="What it became; jobs have none of their own.",
        examples=[str(EXECUTION.moves["succeed"].target)],
    )
    seq: int = Field(
        description="Which of two changes of one thing came later: the one with the higher number. "
        "They may be told the other way round.",
        examples=[40_112],
    )


def read_position(told: str) -> Position:
    """Read a position that a caller hands back."""
    try:
        numbers = paging.decode_ids(_POSITION, told, length=len(Position._fields))
    except InvalidInput:
        numbers = None
    if numbers is None or min(numbers) < 0:
        raise InvalidInput("after", "is not an id that this stream has given; begin without one")
    return Position(*numbers)


def position_id(position: Position) -> str:
    """Write a position as callers hand it back."""
    return paging.encode(_POSITION, position)


def one_by_one(found: Sequence[Change], _reached: Position) -> bytes:
    """Write an event for each change."""
    return b"".join(map(_event, found))


def in_one(found: Sequence[Change], reached: Position) -> bytes:
    """Write one event for all changes; whoever has heard it has heard everything up to here."""
    if not found:
        return b""
    return b"id: %b\ndata: [%b]\n\n" % (
        position_id(reached).encode(),
        b",".join(map(_array, found)),
    )


# Once for all who listen.
@lru_cache(maxsize=4_096)
def _event(change: Change) -> bytes:
    told = changed(change).model_dump_json()
    return f"id: {position_id(change.position)}\ndata: {told}\n\n".encode()


@lru_cache(maxsize=4_096)
def _array(change: Change) -> bytes:
    told = (
        KINDS[change.kind - 1],
        change.job_id,
        change.execution_id,
        change.host_id,
        None if change.cmd_id is None else str(change.cmd_id),
        change.event,
        change.status,
        change.seq,
        change.at.isoformat().replace("+00:00", "Z"),
    )
    return json.dumps(told, separators=(",", ":")).encode()


def changed(change: Change) -> Changed:
    """Return a change in the words of the API."""
    return Changed.model_validate(
        {
            **change._asdict(),
            "kind": KINDS[change.kind - 1],
            "cmd_id": None if change.cmd_id is None else str(change.cmd_id),
        }
    )
