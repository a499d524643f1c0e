"""How the process of the simulated hosts and its clients write to each other.

A frame is one JSON object on one line of ASCII, so that whatever a string holds arrives as it was:
line ends, NUL, half a surrogate pair. Each has the `id` of the call that it belongs to.

    to the hosts    {"id", "deliver": {…}} · {"id", "cancel": {…}} · {"id", "forget": true}
    from the hosts  {"id", "output": [stream, line]}, and in the end one of
                    {"id", "report": {…}} · {"id", "stopped": bool} · {"id", "error": [kind, text]}
"""

from __future__ import annotations

import asyncio
import json
from types import UnionType
from typing import Any

from onward.channels.base import Delivery, Target
from onward.errors import ChannelError, DeliveryUnknown, HostBusy, HostRefused, NotDelivered

MAX_REQUEST = 4 * 2**20
# An echo writes a request as a string, in which every quotation mark is escaped once more.
MAX_ANSWER = 4 * MAX_REQUEST

Frame = dict[str, Any]

_encode = json.JSONEncoder(separators=(",", ":")).encode
_FIELDS: dict[str, type | UnionType] = {
    "command_id": str,
    "epoch": int,
    "command_type": str,
    "params": dict,
    "timeout_s": int | float,
    "exclusive": bool,
}
_KINDS: tuple[type[ChannelError], ...] = (
    HostBusy,
    HostRefused,
    NotDelivered,
    DeliveryUnknown,
)


def packed(frame: Frame) -> bytes:
    """A frame as it is sent."""
    return _encode(frame).encode() + b"\n"


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame, and none once the other side is gone or talks nonsense."""
    try:
        line = await reader.readuntil(b"\n")
        frame = json.loads(line)
    except (OSError, EOFError, ValueError, RecursionError, asyncio.LimitOverrunError):
        return None
    return frame if isinstance(frame, dict) and isinstance(frame.get("id"), int) else None


def delivery_out(delivery: Delivery) -> Frame:
    """A delivery as a part of a frame."""
    target = delivery.target
    return {
        "command_id": delivery.command_id,
        "epoch": delivery.epoch,
        "target": {"host_id": target.host_id, "name": target.name, "address": target.address},
        "command_type": delivery.command_type,
        "params": dict(delivery.params),
        "timeout_s": delivery.timeout_s,
        "exclusive": delivery.exclusive,
        "trace": dict(delivery.trace),
    }


def delivery_in(frame: Frame) -> Delivery:
    """The delivery in a part of a frame; ValueError if there is none."""
    try:
        delivery = Delivery(**frame | {"target": Target(**frame["target"])})
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None
    if not all(isinstance(getattr(delivery, name), kind) for name, kind in _FIELDS.items()):
        raise ValueError("a field of the delivery has the wrong type")
    if not isinstance(delivery.target.host_id, int):
        raise ValueError("host_id must be a whole number")  # noqa: TRY004 - one error for the caller
    return delivery


def error_out(error: ChannelError) -> list[str]:
    """An error as a part of a frame: the nearest kind that the other side knows, and its text."""
    kind = next(kind for kind in _KINDS if isinstance(error, kind))
    return [kind.__name__, str(error)]


def error_in(parts: list[str]) -> ChannelError:
    """The error in a part of a frame."""
    kind, text = parts
    return next(known for known in _KINDS if known.__name__ == kind)(text)
