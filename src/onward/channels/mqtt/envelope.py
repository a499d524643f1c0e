"""What is said on the topics of a node, and the signature under it.

    {prefix}/{node}/cmd      server to node   {cmd_id, cmd, params, ts, epoch, sig}
    {prefix}/{node}/status   node to server   {cmd_id, status, epoch, ts, seq, sig, ...}
    {prefix}/{node}/receipt  server to node   {cmd_id, epoch, sig}

1. `sig` is the HMAC-SHA256, in hexadecimal, of the message without `sig` as canonical JSON (keys
   sorted, no spaces, UTF-8, no NaN), a line feed, and the node's name; the key is the node's own.
   The text as it was sent, without `sig`, is as good as the canonical one.
2. The name is signed so that no message is good for another node. A message is one of the three by
   its keys, so that none can be taken for another: a receipt has no others, a command has `cmd`, a
   status has `status`.
3. What is wrong with a message is a `Doubtful`, which says so in a word or two; never more.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Final, NamedTuple, NoReturn

from onward.core.lifecycles import NODE

CANCEL: Final = "onward.cancel"  # the command that asks a node to stop another
CANCELLED: Final = "CANCELLED"  # the result code of a node that has stopped because it was asked to

# What a node may say: the status that it brings the command to, and the event that does so.
WORDS: Final[Mapping[str, str]] = {
    NODE.moves[event].target: event for event in ("ack", *sorted(NODE.results))
}
WORD: Final[Mapping[str, str]] = {event: word for word, event in WORDS.items()}
RESULTS: Final = frozenset(word for word, event in WORDS.items() if event in NODE.results)

_BEHIND: Final = ("status", "ts")  # the keys of our messages that are sorted behind `sig`
_RECEIPT: Final = frozenset({"cmd_id", "epoch"})
_COMMAND: Final = frozenset({"cmd_id", "cmd", "params", "ts", "epoch"})

_canonical = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode

Message = dict[str, object]


class Doubtful(ValueError):
    """A message that cannot be believed."""


class Command(NamedTuple):
    """What a node is asked to do."""

    cmd_id: str
    cmd: str
    params: Mapping[str, object]
    ts: int  # when it was sent, in Unix seconds
    epoch: int


class Status(NamedTuple):
    """What a node says."""

    cmd_id: str
    status: str
    epoch: int
    seq: int
    said: Message  # all of it


class Receipt(NamedTuple):
    """What a node need not repeat any more."""

    cmd_id: str
    epoch: int


def canonical(value: object) -> str:
    """A value as the one text that is signed; ValueError if JSON has no such value."""
    return _canonical(value)


def seal(message: Message, node: str, key: bytes) -> bytes:
    """The message with its signature, in canonical JSON; ValueError if JSON has no such value."""
    text = _canonical(message)
    sig = _signature(text, node, key)
    # The signature takes its place among the sorted keys, without writing all of it a second time.
    # Behind it are but a word and a number, so what is found last is what is meant.
    for name in _BEHIND:
        if name in message:
            place = text.rindex(f'"{name}":')
            return f'{text[:place]}"sig":"{sig}",{text[place:]}'.encode()
    return f'{text[:-1]},"sig":"{sig}"}}'.encode()


def open_command(payload: bytes, node: str, key: bytes) -> Command:
    """What a node is asked to do, if the server has signed it for this node."""
    match message := _opened(payload, node, key):
        case {"cmd_id": str(cmd_id), "cmd": str(cmd), "params": dict(params)}:
            if message.keys() == _COMMAND:
                return Command(
                    cmd_id, cmd, params, _number(message, "ts"), _number(message, "epoch")
                )
    raise Doubtful("no command")


def open_status(payload: bytes, node: str, key: bytes) -> Status:
    """What a node says, if it has signed that itself."""
    message = _opened(payload, node, key)
    cmd_id, status = message.get("cmd_id"), message.get("status")
    if type(cmd_id) is not str or type(status) is not str or "cmd" in message:
        raise Doubtful("no status")
    if status not in WORDS:
        raise Doubtful("no status")
    return Status(cmd_id, status, _number(message, "epoch"), _number(message, "seq"), message)


def open_receipt(payload: bytes, node: str, key: bytes) -> Receipt:
    """What a node need not repeat, if the server has signed it for this node."""
    match message := _opened(payload, node, key):
        case {"cmd_id": str(cmd_id)} if message.keys() == _RECEIPT:
            return Receipt(cmd_id, _number(message, "epoch"))
    raise Doubtful("no receipt")


def _opened(payload: bytes, node: str, key: bytes) -> Message:
    """The message without its signature, which fits."""
    try:
        text = payload.decode()
        message = _loads(text)
        sig = message.pop("sig")
        believed = type(sig) is str and (
            _fits(sig, _without(text, sig), node, key) or _fits(sig, _canonical(message), node, key)
        )
    # Numbers and texts that JSON can write and nobody can sign end here as well.
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        raise Doubtful("unreadable") from None
    if not believed:
        raise Doubtful("foreign signature")
    found: Message = message
    return found


def _without(text: str, sig: str) -> str:
    """The text of a message as it came, without its signature.

    Whoever writes canonical JSON has signed just that, and whoever writes a number in another way
    than Python would has signed that as well.
    """
    before, found, behind = text.rpartition(f'"sig":"{sig}"')
    return before + behind[1:] if behind[:1] == "," else before[:-1] + behind if found else ""


def _fits(sig: str, text: str, node: str, key: bytes) -> bool:
    return hmac.compare_digest(sig.encode(), _signature(text, node, key).encode())


def _signature(text: str, node: str, key: bytes) -> str:
    return hmac.digest(key, f"{text}\n{node}".encode(), "sha256").hex()


def _number(message: Message, name: str) -> int:
    value = message.get(name)
    if type(value) is not int or not 0 <= value < 2**63:  # True is no number
        raise Doubtful(f"no {name}")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


_loads = json.JSONDecoder(parse_constant=_no_constant).decode
