"""The way through another process: to agents that are connected there and not here.

1. Whoever calls shows that they know the secret of that process, which is in the database, and so
   does the process itself; both begin as an agent and the server do (`wire`), and sign every frame
   after that with keys of this one connection, numbered from 1.
2. A frame is 32 bytes of HMAC-SHA256 and one JSON object.

       to the hub    {"seq", "id", "deliver": {…}} · {"seq", "id", "cancel": {…}}
                     {"seq", "id", "forget": true} · {"seq", "receipt": {…}}
       from the hub  {"seq", "id", "output": [[stream, text], …]}, and in the end one of
                     {"seq", "id", "report": {…}} · {"seq", "id", "stopped": bool}
                     {"seq", "id", "error": [kind, text]}

3. A hub asks only its own agents: nothing goes further than one step.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict
from typing import Final, NamedTuple, NoReturn

from onward.channels.agent.wire import (
    BODY_MAX,
    FRAME_MAX,
    MAC_BYTES,
    Close,
    FrameRefused,
    Hello,
    Welcome,
)
from onward.channels.base import Report
from onward.channels.frames import Frame

_UP: Final = b"onward relay up\0"
_DOWN: Final = b"onward relay down\0"


class Place(NamedTuple):
    """A process that agents are connected to, and how another one gets to it."""

    hub_id: int
    url: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Place(hub_id={self.hub_id}, url={self.url!r})"


class Seals:
    """Signs and numbers what one side says, and checks what the other says."""

    __slots__ = ("_hear_key", "_heard", "_said", "_say_key")

    def __init__(self, secret: bytes, hello: Hello, welcome: Welcome, *, calling: bool) -> None:
        nonces = hello.nonce + welcome.nonce
        up, down = (hmac.digest(secret, name + nonces, "sha256") for name in (_UP, _DOWN))
        self._say_key, self._hear_key = (up, down) if calling else (down, up)
        self._said = self._heard = 0

    def seal(self, frame: Frame) -> bytes:
        """A frame as it is sent; it must be, and in order. `FrameRefused` if it is too large."""
        try:
            body = _encode({"seq": self._said + 1, **frame}).encode()
        except (ValueError, RecursionError):
            _refuse(Close.MALFORMED, "it holds what JSON has not, or is nested too deeply")
        if len(body) > BODY_MAX:
            _refuse(Close.TOO_LARGE, f"{len(body):,} bytes: {BODY_MAX:,} are the most")
        self._said += 1
        return hmac.digest(self._say_key, body, "sha256") + body

    def open(self, sealed: bytes) -> Frame:
        """What a frame says, if it is the next one; `FrameRefused` ends the connection."""
        body = sealed[MAC_BYTES:]
        if len(sealed) > FRAME_MAX:
            _refuse(Close.TOO_LARGE, "the frame is too large")
        if not hmac.compare_digest(hmac.digest(self._hear_key, body, "sha256"), sealed[:MAC_BYTES]):
            _refuse(Close.WRONG_MAC, "the signature is wrong")
        frame = _unpacked(body)
        if frame.get("seq") != self._heard + 1:
            _refuse(Close.WRONG_SEQ, "the frame is not the next one: it was said before")
        self._heard += 1
        return frame


def report_out(report: Report) -> Frame:
    """A report as a part of a frame."""
    return asdict(report)


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _unpacked(body: bytes) -> Frame:
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError):
        _refuse(Close.MALFORMED, "the body is no JSON")
    if not isinstance(frame, dict):
        _refuse(Close.MALFORMED, "the body is no JSON object")
    return frame


def _refuse(code: Close, why: str) -> NoReturn:
    raise FrameRefused(code, why)
