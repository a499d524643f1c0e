"""What an agent and the server say to each other, as values, and how they stand in a body.

A body is one JSON object: `t` names the type, the fields have the names that they have here. What
is missing or of the wrong kind makes the whole message refused. A field that nobody here knows is
passed over, so that one side may be newer than the other.

    to the agent    run · stop · receipt · blocks
    to the server   ready · accepted · refused · output · result · stopped

An attempt is named by `cmd` and `epoch` wherever it is spoken of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from onward.channels.base import Stream
from onward.channels.program import NOTHING, Program

VERSION: Final = 1  # of what is said here; `hello` brings it, and the server refuses what it is not
PING: Final = "ping"  # the type that an agent answers by itself, without a program and a journal
# A piece of output, in characters. Each may take twelve bytes in JSON, and a frame has an end.
PIECE_MAX: Final = 32_768
ERROR_MAX: Final = 4_096  # the longest text of an error or a refusal, in characters

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_TEXT_MAX: Final = 1_024
_WHOLE_MAX: Final = 2**63 - 1


class Malformed(ValueError):
    """A body that is none of ours."""


class Run(NamedTuple):
    """Carry this out. A repeat is answered from memory."""

    cmd: str
    epoch: int
    type: str
    params: Mapping[str, object]  # without the masked ones
    program: Program | None  # none for what the agent does by itself
    timeout_s: float
    exclusive: bool = True
    trace: Mapping[str, str] = NOTHING


class Stop(NamedTuple):
    """Stop this attempt, and every earlier one; if it is still on its way, refuse it."""

    cmd: str
    epoch: int


class Receipt(NamedTuple):
    """The result of this attempt is on the server's disk."""

    cmd: str
    epoch: int


class Block(NamedTuple):
    """A type of command that the host is not to run."""

    type: str
    reason: str
    owner: str
    expires_at: float | None  # unix seconds of the server's clock; none for ever


class Blocks(NamedTuple):
    """All that the host is not to run; what was said before is over."""

    rules: tuple[Block, ...]


class Ready(NamedTuple):
    """The agent is there: the highest epoch that it has seen, and which program it is."""

    seen: int
    version: str


class Accepted(NamedTuple):
    """The attempt is in the journal, and is carried out now."""

    cmd: str
    epoch: int


class Refused(NamedTuple):
    """The attempt will not run; `busy` if a later one may."""

    cmd: str
    epoch: int
    busy: bool
    why: str


class Pieces(NamedTuple):
    """Output, in order.

    `at` says how many characters of this attempt came before: 0 again when a result is sent once
    more with all its output, so that whoever has had some of it knows what is new.
    """

    cmd: str
    epoch: int
    at: int
    pieces: tuple[tuple[Stream, str], ...]


class Result(NamedTuple):
    """How the attempt ended; said again until it is receipted."""

    cmd: str
    epoch: int
    succeeded: bool
    exit_code: int | None = None
    error: str | None = None
    repeated: bool = False  # answered from memory; it did not run again
    unknown: bool = False  # cut off by a crash: it may have done something, or all of it


class Stopped(NamedTuple):
    """The answer to `stop`: true if it does not run and will not, false if it had finished."""

    cmd: str
    epoch: int
    stopped: bool


Down: TypeAlias = Run | Stop | Receipt | Blocks
Up: TypeAlias = Ready | Accepted | Refused | Pieces | Result | Stopped

Body: TypeAlias = dict[str, Any]  # as it comes out of JSON


def written(message: Down | Up) -> str:
    """A message as the fields of a body, in JSON, without the braces around them."""
    return _WRITERS[type(message)](message)


def to_agent(body: Body) -> Down:
    """The message to an agent in a body; `Malformed` if there is none."""
    return _read(body, _DOWN)  # type: ignore[no-any-return]  # the table has no others


def to_server(body: Body) -> Up:
    """The message to the server in a body; `Malformed` if there is none."""
    return _read(body, _UP)  # type: ignore[no-any-return]  # as above


def whole(body: Body, name: str) -> int:
    """A whole number of a body that is not below 0."""
    value = body.get(name)
    # Not by `isinstance`: true is an int, and no number here.
    if type(value) is int and 0 <= value <= _WHOLE_MAX:
        return value
    raise Malformed(f"{name} takes a whole number")


def text(body: Body, name: str, most: int = _TEXT_MAX) -> str:
    """A text of a body."""
    value = body.get(name)
    if isinstance(value, str) and len(value) <= most:
        return value
    raise Malformed(f"{name} takes a text of up to {most} characters")


def number(body: Body, name: str) -> float:
    """A finite number of a body."""
    value = body.get(name)
    match value:
        case bool():
            pass
        case int() | float() if abs(value) <= sys.float_info.max:
            return float(value)
    raise Malformed(f"{name} takes a number")


def _read(body: Body, table: Mapping[str, Callable[[Body], Any]]) -> Any:  # noqa: ANN401 - the tables say which
    kind = body.get("t")
    reader = table.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise Malformed(f"{kind!a:.80} is no type of message that is expected here")
    return reader(body)


def _truth(body: Body, name: str) -> bool:
    value = body.get(name)
    if isinstance(value, bool):
        return value
    raise Malformed(f"{name} takes true or false")


def _perhaps(body: Body, name: str, most: int = _WHOLE_MAX) -> str | None:
    return None if body.get(name) is None else text(body, name, most)


def _texts(body: Body, name: str) -> Mapping[str, str]:
    value = body.get(name)
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return value
    raise Malformed(f"{name} takes an object of texts")


def _attempt(body: Body) -> tuple[str, int]:
    return text(body, "cmd"), whole(body, "epoch")


def _run(body: Body) -> Run:
    params = body.get("params")
    if not isinstance(params, dict):
        raise Malformed("params takes an object")
    timeout_s = number(body, "timeout_s")
    if timeout_s <= 0:
        raise Malformed("timeout_s takes a number above 0")
    said = body.get("program")
    return Run(
        *_attempt(body),
        text(body, "type"),
        params,
        None if said is None else _program(said),
        timeout_s,
        _truth(body, "exclusive"),
        _texts(body, "trace"),
    )


def _program(said: object) -> Program:
    if not isinstance(said, dict):
        raise Malformed("program takes an object")
    argv = said.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(each, str) for each in argv):
        raise Malformed("program.argv takes a list of texts")
    return Program(
        tuple(argv),
        _texts(said, "env"),
        cwd=_perhaps(said, "cwd"),
        stdin=_perhaps(said, "stdin"),
        user=_perhaps(said, "user"),
        secrets=_texts(said, "secrets"),
    )


def _blocks(body: Body) -> Blocks:
    rules = body.get("rules")
    if not isinstance(rules, list):
        raise Malformed("rules takes a list")
    return Blocks(tuple(_block(rule) for rule in rules))


def _block(rule: object) -> Block:
    match rule:
        case [str(kind), str(reason), str(owner), None]:
            return Block(kind, reason, owner, None)
        case [str(kind), str(reason), str(owner), int() | float() as expires_at]:
            return Block(kind, reason, owner, float(expires_at))
    raise Malformed("a rule takes a type, a reason, an owner and a time or null")


def _refused(body: Body) -> Refused:
    return Refused(*_attempt(body), _truth(body, "busy"), text(body, "why", ERROR_MAX))


def _pieces(body: Body) -> Pieces:
    said = body.get("pieces")
    if not isinstance(said, list):
        raise Malformed("pieces takes a list")
    return Pieces(*_attempt(body), whole(body, "at"), tuple(_piece(piece) for piece in said))


def _piece(piece: object) -> tuple[Stream, str]:
    match piece:
        case [str(stream), str(written)] if stream in _STREAMS:
            return _STREAMS[stream], written
    raise Malformed("a piece takes a stream and a text")


def _result(body: Body) -> Result:
    exit_code = body.get("exit_code")
    if exit_code is not None and type(exit_code) is not int:
        raise Malformed("exit_code takes a whole number or null")
    return Result(
        text(body, "cmd"),
        whole(body, "epoch"),
        _truth(body, "succeeded"),
        exit_code,
        _perhaps(body, "error", ERROR_MAX),
        _truth(body, "repeated"),
        _truth(body, "unknown"),
    )


def _flag(value: bool) -> str:  # noqa: FBT001 - it is all there is
    return "true" if value else "false"


def _number(value: float) -> str:
    if abs(value) <= sys.float_info.max:
        return repr(float(value))
    raise ValueError(f"{value} is no number in JSON")


# By hand, because an agent and the server do nothing else as often as this; and in ASCII, so that
# whatever a text holds arrives as it was, also half a surrogate pair.


def _write_attempt(name: str, message: Stop | Receipt | Accepted | Refused | Stopped) -> str:
    return f'"t":"{name}","cmd":{_quoted(message.cmd)},"epoch":{message.epoch:d}'


def _write_run(run: Run) -> str:
    program = run.program
    told = program and {
        **program._asdict(),
        "env": dict(program.env),
        "secrets": dict(program.secrets),
    }
    return (
        f'"t":"run","cmd":{_quoted(run.cmd)},"epoch":{run.epoch:d},"type":{_quoted(run.type)},'
        f'"params":{_encode(dict(run.params)) if run.params else "{}"},'
        f'"program":{_encode(told) if told else "null"},"timeout_s":{_number(run.timeout_s)},'
        f'"exclusive":{_flag(run.exclusive)},'
        f'"trace":{_encode(dict(run.trace)) if run.trace else "{}"}'
    )


def _write_pieces(said: Pieces) -> str:
    return (
        f'"t":"output","cmd":{_quoted(said.cmd)},"epoch":{said.epoch:d},"at":{said.at:d},'
        f'"pieces":{_encode(said.pieces)}'
    )


def _write_result(result: Result) -> str:
    code = "null" if result.exit_code is None else f"{result.exit_code:d}"
    error = "null" if result.error is None else _quoted(result.error)
    return (
        f'"t":"result","cmd":{_quoted(result.cmd)},"epoch":{result.epoch:d},'
        f'"succeeded":{_flag(result.succeeded)},"exit_code":{code},"error":{error},'
        f'"repeated":{_flag(result.repeated)},"unknown":{_flag(result.unknown)}'
    )


_STREAMS: Final = {str(stream): stream for stream in Stream}
_DOWN: Final[Mapping[str, Callable[[Body], Down]]] = MappingProxyType(
    {
        "run": _run,
        "stop": lambda body: Stop(*_attempt(body)),
        "receipt": lambda body: Receipt(*_attempt(body)),
        "blocks": _blocks,
    }
)
_UP: Final[Mapping[str, Callable[[Body], Up]]] = MappingProxyType(
    {
        "ready": lambda body: Ready(whole(body, "seen"), text(body, "version")),
        "accepted": lambda body: Accepted(*_attempt(body)),
        "refused": _refused,
        "output": _pieces,
        "result": _result,
        "stopped": lambda body: Stopped(*_attempt(body), _truth(body, "stopped")),
    }
)
_WRITERS: Final[Mapping[type, Callable[[Any], str]]] = MappingProxyType(
    {
        Run: _write_run,
        Stop: lambda said: _write_attempt("stop", said),
        Receipt: lambda said: _write_attempt("receipt", said),
        Blocks: lambda said: f'"t":"blocks","epoch":0,"rules":{_encode(said.rules)}',
        Ready: lambda said: (
            f'"t":"ready","epoch":0,"seen":{said.seen:d},"version":{_quoted(said.version)}'
        ),
        Accepted: lambda said: _write_attempt("accepted", said),
        Refused: lambda said: (
            f'{_write_attempt("refused", said)},"busy":{_flag(said.busy)},"why":{_quoted(said.why)}'
        ),
        Pieces: _write_pieces,
        Result: _write_result,
        Stopped: lambda said: f'{_write_attempt("stopped", said)},"stopped":{_flag(said.stopped)}',
    }
)


def cut_pieces(written: Sequence[tuple[Stream, str]]) -> list[tuple[tuple[Stream, str], ...]]:
    """Output in parts that fit into a frame each."""
    parts: list[tuple[tuple[Stream, str], ...]] = []
    part: list[tuple[Stream, str]] = []
    room = PIECE_MAX
    for stream, all_of_it in written:
        rest = all_of_it
        while rest:
            part.append((stream, rest[:room]))
            rest, room = rest[room:], room - len(part[-1][1])
            if not room:
                parts.append(tuple(part))
                part, room = [], PIECE_MAX
    return [*parts, tuple(part)] if part else parts
