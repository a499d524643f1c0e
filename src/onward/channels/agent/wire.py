"""How an agent and the server sign what they say, so that nobody else can say it, or say it again.

1. A frame is 32 bytes of HMAC-SHA256 and a body, one JSON object of at most 1 MiB. Each body has
   `t`, `host`, `epoch` (0 where it means nothing), `seq` and `exp` beside the fields of its type.
2. The agent begins: `hello`, signed with the host's key, brings a nonce. The server answers
   `welcome`, signed with the same key over both nonces, and brings its own. From then on each side
   signs with a key that is made of both nonces and the direction, so that no frame of another
   connection, of another host or of the other direction is worth anything.
3. `seq` counts the frames of one direction from 1, without gaps; `hello` and `welcome` are 0. A
   frame that comes twice, or behind a lost one, ends the connection.
4. `exp` is when a frame is over, in unix seconds of the server's clock. An agent learns that clock
   from `welcome`; only for its `hello` does it need one of its own, within `CLOCK_WINDOW_S`.
5. Whatever is refused ends the connection with a code of `Close`, and nothing of it is done.

Nothing here reads a clock, draws a nonce or touches a socket: both are handed in.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar

from onward.channels.agent.messages import (
    VERSION,
    Body,
    Down,
    Malformed,
    Up,
    number,
    text,
    to_agent,
    to_server,
    whole,
    written,
)

MAC_BYTES: Final = 32
BODY_MAX: Final = 2**20
FRAME_MAX: Final = MAC_BYTES + BODY_MAX
NONCE_BYTES: Final = 32
VALID_S: Final = 60  # for how long a frame is meant to be good
CLOCK_WINDOW_S: Final = 120  # by how much more it may be late, or a clock wrong

_HELLO: Final = b"onward agent hello\0"
_WELCOME: Final = b"onward agent welcome\0"
_UP: Final = b"onward agent up\0"
_DOWN: Final = b"onward agent down\0"
_WRONG: Final = "the signature is wrong"

Heard = TypeVar("Heard", bound=Up | Down)
Said = TypeVar("Said", bound=Up | Down)


class Close(IntEnum):
    """Why a connection was ended, in the codes of WebSocket that are ours to give."""

    MALFORMED = 4400
    WRONG_MAC = 4401
    WRONG_HOST = 4403
    UNKNOWN_HOST = 4404  # there is no such host, or the key is not its present one
    EXPIRED = 4408
    DISPLACED = 4409  # by a newer connection of the same host
    REVOKED = 4410  # its key was taken from it while it was connected
    WRONG_SEQ = 4412
    TOO_LARGE = 4413
    WRONG_VERSION = 4426
    TOO_MUCH = 4429  # more messages than are taken, or too slow to take ours


class FrameRefused(Exception):
    """A frame that is not taken; the connection it came over is ended with `code`."""

    def __init__(self, code: Close, why: str) -> None:
        super().__init__(why)
        self.code = code


class Hello(NamedTuple):
    """How an agent begins."""

    host: int
    gen: int  # which of the host's keys it has
    nonce: bytes


class Welcome(NamedTuple):
    """What the server answers."""

    nonce: bytes
    now: float  # unix seconds


class Session(Generic[Said, Heard]):
    """One side of a connection, after both have shown that they have the host's key."""

    __slots__ = ("_expect", "_hears", "_host", "_last_heard", "_last_said", "_sign")

    def __init__(
        self, host: int, *, say_key: bytes, hear_key: bytes, hears: Callable[[Body], Heard]
    ) -> None:
        self._host = host
        self._sign = _signer(say_key)
        self._expect = _signer(hear_key)
        self._hears = hears
        self._last_said = 0
        self._last_heard = 0

    def __repr__(self) -> str:
        return f"Session(host={self._host})"

    def seal(self, message: Said, now: float) -> bytes:
        """The frame that says this, the next one of its direction: it must be sent, and in order.

        `FrameRefused` with TOO_LARGE leaves the session as it was.
        """
        body = _packed(written(message), self._host, seq=self._last_said + 1, now=now)
        self._last_said += 1
        return self._sign(body) + body

    def open(self, frame: bytes, now: float) -> Heard:
        """What a frame says, if it is the next one; `FrameRefused` ends the connection."""
        body = _body(frame)
        if not hmac.compare_digest(self._expect(body), frame[:MAC_BYTES]):
            _refuse(Close.WRONG_MAC, _WRONG)
        fields = _unpacked(body)
        try:
            _check_host(fields, self._host)
            _check_exp(fields, now)
            if fields.get("seq") != self._last_heard + 1:
                _refuse(Close.WRONG_SEQ, "the frame is not the next one: it was said before")
            message = self._hears(fields)
        except Malformed as error:
            _refuse(Close.MALFORMED, str(error))
        self._last_heard += 1
        return message


AgentSession: TypeAlias = Session[Up, Down]
ServerSession: TypeAlias = Session[Down, Up]


def say_hello(key: bytes, hello: Hello, *, now: float) -> bytes:
    """The frame with which an agent begins."""
    fields = f'"t":"hello","epoch":0,"v":{VERSION},"gen":{hello.gen},"nonce":"{hello.nonce.hex()}"'
    body = _packed(fields, hello.host, seq=0, now=now)
    return hmac.digest(key, _HELLO + body, "sha256") + body


def read_hello(frame: bytes) -> Hello:
    """What a `hello` says of itself, and nobody has checked: it tells which key to check it with.

    Raises FrameRefused for what is no hello.
    """
    fields = _unpacked(_body(frame))
    try:
        if fields.get("t") != "hello":
            _refuse(Close.MALFORMED, "a connection begins with a hello")
        if whole(fields, "v") != VERSION:
            _refuse(Close.WRONG_VERSION, f"only version {VERSION} of the protocol is spoken here")
        return Hello(whole(fields, "host"), whole(fields, "gen"), _nonce(fields))
    except Malformed as error:
        _refuse(Close.MALFORMED, str(error))


def check_hello(frame: bytes, key: bytes, *, now: float) -> None:
    """Refuse a `hello` that was not signed with this key, or is over."""
    fields = _unpacked(_checked(frame, key, _HELLO))
    _check_exp(fields, now)


def say_welcome(key: bytes, hello: Hello, welcome: Welcome) -> bytes:
    """The frame with which the server answers a `hello` that it has checked."""
    fields = f'"t":"welcome","epoch":0,"nonce":"{welcome.nonce.hex()}","now":{float(welcome.now)!r}'
    body = _packed(fields, hello.host, seq=0, now=welcome.now)
    return hmac.digest(key, _WELCOME + hello.nonce + welcome.nonce + body, "sha256") + body


def read_welcome(frame: bytes, key: bytes, hello: Hello) -> Welcome:
    """What the server has answered, if it has the host's key and means this very `hello`.

    It needs no clock: nobody can have made it before the nonce was drawn.
    """
    fields = _unpacked(_body(frame))
    try:
        if fields.get("t") != "welcome":
            _refuse(Close.MALFORMED, "a hello is answered with a welcome")
        welcome = Welcome(_nonce(fields), number(fields, "now"))
        _checked(frame, key, _WELCOME + hello.nonce + welcome.nonce)
        _check_host(fields, hello.host)
    except Malformed as error:
        _refuse(Close.MALFORMED, str(error))
    return welcome


def agent_session(key: bytes, hello: Hello, welcome: Welcome) -> AgentSession:
    """The agent's side of the connection."""
    up, down = _session_keys(key, hello, welcome)
    return Session(hello.host, say_key=up, hear_key=down, hears=to_agent)


def server_session(key: bytes, hello: Hello, welcome: Welcome) -> ServerSession:
    """The server's side of the connection."""
    up, down = _session_keys(key, hello, welcome)
    return Session(hello.host, say_key=down, hear_key=up, hears=to_server)


def _session_keys(key: bytes, hello: Hello, welcome: Welcome) -> tuple[bytes, bytes]:
    nonces = hello.nonce + welcome.nonce
    return hmac.digest(key, _UP + nonces, "sha256"), hmac.digest(key, _DOWN + nonces, "sha256")


def _no_number(name: str) -> NoReturn:
    raise Malformed(f"{name} is no number")


_decode = json.JSONDecoder(parse_constant=_no_number).raw_decode


def _signer(key: bytes) -> Callable[[bytes], bytes]:
    """HMAC-SHA256 with a key that is used often: what depends on the key alone is done once."""
    block = key.ljust(hashlib.sha256().block_size, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def sign(body: bytes) -> bytes:
        first, second = inner.copy(), outer.copy()
        first.update(body)
        second.update(first.digest())
        return second.digest()

    return sign


def _packed(fields: str, host: int, *, seq: int, now: float) -> bytes:
    body = f'{{{fields},"host":{host},"seq":{seq},"exp":{int(now) + VALID_S}}}'.encode()
    if len(body) > BODY_MAX:
        _refuse(Close.TOO_LARGE, f"a message of {len(body):,} bytes: {BODY_MAX:,} are the most")
    return body


def _unpacked(body: bytes) -> Body:
    try:
        text_ = body.decode()
        fields, end = _decode(text_)
    except (ValueError, RecursionError):
        _refuse(Close.MALFORMED, "the body is no JSON")
    if type(fields) is not dict or end != len(text_):
        _refuse(Close.MALFORMED, "the body is no JSON object")
    return fields


def _body(frame: bytes) -> bytes:
    if len(frame) > FRAME_MAX:
        _refuse(Close.TOO_LARGE, f"a frame of {len(frame):,} bytes: {FRAME_MAX:,} are the most")
    return frame[MAC_BYTES:]


def _checked(frame: bytes, key: bytes, before: bytes = b"") -> bytes:
    """The body of a frame, signed with this key; before that, nothing of it is looked at."""
    body = _body(frame)
    if not hmac.compare_digest(hmac.digest(key, before + body, "sha256"), frame[:MAC_BYTES]):
        _refuse(Close.WRONG_MAC, _WRONG)
    return body


def _check_host(fields: Body, host: int) -> None:
    if fields.get("host") != host:
        _refuse(Close.WRONG_HOST, "the frame is about another host")


def _check_exp(fields: Body, now: float) -> None:
    exp = fields.get("exp")
    if type(exp) is not int:
        _refuse(Close.MALFORMED, "exp takes a whole number")
    if exp < now - CLOCK_WINDOW_S:
        late_s = now - max(exp, 0)
        _refuse(Close.EXPIRED, f"it is over since {late_s:.0f} s: is the clock of the host right?")


def _nonce(fields: Body) -> bytes:
    try:
        nonce = bytes.fromhex(text(fields, "nonce"))
    except ValueError:
        nonce = b""
    if len(nonce) != NONCE_BYTES:
        raise Malformed(f"nonce takes {NONCE_BYTES} bytes in hex")
    return nonce


def _refuse(code: Close, why: str) -> NoReturn:
    raise FrameRefused(code, why)
