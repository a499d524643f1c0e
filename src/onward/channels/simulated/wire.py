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

from onward.channels.frames import Frame

MAX_REQUEST = 4 * 2**20
# An echo writes a request as a string, in which every quotation mark is escaped once more.
MAX_ANSWER = 4 * MAX_REQUEST

_encode = json.JSONEncoder(separators=(",", ":")).encode


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
