"""Forms that are filled in for each command: the body of a request, and the path of its address.

1. `{name}` in a text stands for a value; `{{` and `}}` are braces.
2. A text that is nothing but `{name}` becomes the value itself, whatever it is: `{params}` is an
   object, and `{timeout_s}` a number.
3. `{params.volume}` is one of the parameters, and `{params:json}` a value as JSON text.
4. In an address, a value is one piece of the path or of the query, whatever is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final
from urllib.parse import quote

from onward.errors import HostRefused, InvalidInput

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"([a-z_]+)(?:\.([^{}:]+))?(:json)?")
_DEPTH_MAX: Final = 32
# A step up in a path would lead to another part of the platform.
_NO_SEGMENT: Final = frozenset({"", ".", ".."})

Values = Mapping[str, object]


def check(field: str, form: object, known: Collection[str], *, depth: int = 0) -> None:
    """Refuse a form that could not be filled in."""
    if depth > _DEPTH_MAX:
        raise InvalidInput(field, f"is nested deeper than {_DEPTH_MAX} levels")
    match form:
        case str():
            for name in _names(field, form):
                _check_name(field, name, known)
        case dict():
            for key, each in form.items():
                check(f"{field}.{key}", each, known, depth=depth + 1)
        case list():
            for place, each in enumerate(form):
                check(f"{field}[{place}]", each, known, depth=depth + 1)
        case bool() | int() | float():
            pass
        case _:
            raise InvalidInput(field, f"JSON has no {type(form).__name__}; write it as text")


def fill(form: object, values: Values) -> object:
    """Fill a form in; `HostRefused` if the command does not have what it names."""
    match form:
        case str():
            return _fill_text(form, values)
        case dict():
            return {key: fill(each, values) for key, each in form.items()}
        case list():
            return [fill(each, values) for each in form]
        case _:
            return form


def fill_address(form: str, values: Values) -> str:
    """Fill an address in: a value is quoted, so that it stays one piece of the path."""
    return _replaced(form, lambda name: _segment(name, _as_text(name, _value(name, values))))


def _fill_text(form: str, values: Values) -> object:
    whole = _PIECE.fullmatch(form)
    if whole and whole[1] is not None:
        return _value(whole[1], values)
    return _replaced(form, lambda name: _as_text(name, _value(name, values)))


def _replaced(form: str, by: Callable[[str], str]) -> str:
    return _PIECE.sub(lambda piece: piece[0][0] if piece[1] is None else by(piece[1]), form)


def _value(name: str, values: Values) -> object:
    read = _NAME.fullmatch(name)
    assert read is not None  # noqa: S101 - `check` has refused any other
    value = values[read[1]]
    if read[2] is not None:
        if not isinstance(value, Mapping) or read[2] not in value:
            raise HostRefused(f"params.{read[2]:.80} is missing: the platform is to be told of it.")
        value = value[read[2]]
    return json.dumps(value, ensure_ascii=False) if read[3] else value


def _as_text(name: str, value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case _:
            raise HostRefused(f"{name:.80} has to be text or a number to stand within a text.")


def _segment(name: str, text: str) -> str:
    if text in _NO_SEGMENT:
        raise HostRefused(f"{name} cannot be {text!r}: it is a part of the platform's address.")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise HostRefused(f"{name} has half of a surrogate pair, which no address has.") from None


def _names(field: str, form: str) -> Iterator[str]:
    for piece in _PIECE.finditer(form):
        if piece[1] is not None:
            yield piece[1]
        elif len(piece[0]) == 1:
            raise InvalidInput(field, "has a single brace: write {{ or }} for a brace")


def _check_name(field: str, name: str, known: Collection[str]) -> None:
    read = _NAME.fullmatch(name)
    if read is None or read[1] not in known or (read[2] is not None and read[1] != "params"):
        listed = ", ".join(f"{{{each}}}" for each in sorted(known))
        raise InvalidInput(field, f"{{{name:.80}}} is none of {listed}")
