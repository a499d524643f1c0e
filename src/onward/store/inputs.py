"""Checks what callers hand in, before anything is written.

Each check returns the value as the database will take it, or raises `InvalidInput` that names the
field and what is wrong with it. What PostgreSQL would refuse with an error of its own (NUL, lone
surrogates, NaN, numbers out of range) is refused here, in words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from onward.errors import InvalidInput

_CANONICAL = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CANONICAL_UUID = re.compile(_CANONICAL).fullmatch
# The forms that people write; `UUID` itself takes a good many more for one.
_WRITTEN_UUID = re.compile(
    rf"(?:urn:uuid:)?{_CANONICAL}|\{{{_CANONICAL}\}}|[0-9a-f]{{32}}", re.IGNORECASE | re.ASCII
).fullmatch
_MAX_DEPTH: Final = 64
_MAX_BIGINT: Final = 2**63 - 1
_SHOWN_MAX: Final = 80  # characters of a value in a message
_SHOWN_BITS: Final = 256
NAME_MAX: Final = 255


def command_id(value: object) -> str:
    """Return a command id in its canonical form."""
    if type(value) is str and _CANONICAL_UUID(value):
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str) and _WRITTEN_UUID(value):
        return str(UUID(value))
    raise InvalidInput("cmd_id", f"{shown(value)} is not a UUID; make one with new_command_id()")


def text(field: str, value: object) -> str:
    """Return a short text that PostgreSQL can store."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"expected text, not {type(value).__name__}")
    if len(value) > NAME_MAX:
        raise InvalidInput(field, f"{len(value)} characters are more than the {NAME_MAX} allowed")
    _check_characters(field, value)
    return value


def name(field: str, value: object, *, empty: bool = False) -> str:
    """Return a text for an identifier: printable, on one line, and something unless `empty`."""
    checked = text(field, value)
    if not checked and not empty:
        raise InvalidInput(field, "is empty")
    if not checked.isprintable():
        raise InvalidInput(field, f"{shown(value)} has control or invisible characters")
    return checked


def integer(field: str, value: object, *, minimum: int = 0) -> int:
    """Return an integer that fits 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(field, f"expected a whole number, not {shown(value)}")
    if not minimum <= value <= _MAX_BIGINT:
        raise InvalidInput(field, f"{shown(value)} is not between {minimum} and {_MAX_BIGINT}")
    return value


def seconds(field: str, value: object, *, maximum: float = 366 * 86_400.0) -> float:
    """Return a duration in seconds that is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(field, f"expected seconds, not {shown(value)}")
    if not 0 < value <= maximum:  # false for NaN as well
        raise InvalidInput(field, f"{shown(value)} is not between 0 and {maximum:.0f} seconds")
    return float(value)


def json_object(field: str, value: object, *, max_bytes: int) -> str:
    """Return a mapping as the JSON text that will be stored."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, f"expected an object, not {type(value).__name__}")
    return json_value(field, value, max_bytes=max_bytes)


def json_value(field: str, value: object, *, max_bytes: int) -> str:
    """Return a value as the JSON text that will be stored."""
    _check_json(field, value, nodes_max=max_bytes)
    stored = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_as_plain)
    if (size := len(stored.encode())) > max_bytes:
        raise InvalidInput(field, f"{size} bytes are more than the {_limit(max_bytes)}")
    return stored


def shown(value: object) -> str:
    """Show a value in a message: short, and never with characters that garble a terminal."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def _as_plain(value: object) -> object:
    # Mappings that are not dicts have passed the check; `json` only knows dicts.
    assert isinstance(value, Mapping)  # noqa: S101 - anything else was refused before
    return dict(value)


def _check_json(field: str, root: object, *, nodes_max: int) -> None:
    """Walk through a value, and refuse what JSON or PostgreSQL does not have.

    Every node takes at least a byte, so the walk ends where the size would, also through a
    structure that holds itself many times over.
    """
    todo: list[tuple[str, object, int]] = [(field, root, 0)]
    for _ in range(nodes_max):
        if not todo:
            return
        path, value, depth = todo.pop()
        if depth > _MAX_DEPTH:
            raise InvalidInput(path, f"nested deeper than {_MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            todo += [(place, item, depth + 1) for place, item in _members(path, value)]
        elif isinstance(value, (list, tuple)):
            todo += [(f"{path}[{at}]", item, depth + 1) for at, item in enumerate(value)]
        else:
            _check_leaf(path, value)
    if todo:
        raise InvalidInput(field, f"more values than the {_limit(nodes_max)}")


def _members(path: str, value: Mapping[object, object]) -> Iterator[tuple[str, object]]:
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidInput(path, f"the key {shown(key)} is not text")
        _check_characters(f"a key of {path}", key)
        # A key may be anything, and the path to it ends up in a message.
        yield f"{path}.{key if key.isprintable() else ascii(key)}", item


def _check_leaf(path: str, value: object) -> None:
    match value:
        case None | bool():
            pass
        case str():
            _check_characters(path, value)
        case int():
            if value.bit_length() > 64:  # noqa: PLR2004 - said in the message
                raise InvalidInput(path, "a number of more than 64 bits; send it as text")
        case float():
            if not math.isfinite(value):
                raise InvalidInput(path, f"{value} is not a number that JSON has")
        case _:
            raise InvalidInput(path, f"{type(value).__name__} is not something that JSON has")


def _check_characters(field: str, value: str) -> None:
    if "\x00" in value:
        raise InvalidInput(field, "has a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            field, f"has half of a surrogate pair at position {error.start}"
        ) from None


def _limit(max_bytes: int) -> str:
    return f"{max_bytes} bytes allowed (ONWARD_PAYLOAD_MAX_BYTES)"
