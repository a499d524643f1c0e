"""JSON as RFC 8259 means it, and as everybody reads it the same way.

Python's parser takes more than that: UTF-16, NaN, the last of two equal keys. Whoever signs or
checks a body with another parser would see something else than we do, so all of it is refused.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Final, NoReturn

from onward.api.problems import Problem
from onward.store.inputs import shown

DEPTH_MAX: Final = 128

# A string to its end, or to the end of everything: a body is looked through once, whatever it is.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]").search


def parse(body: bytes) -> object:
    """Return what a body means, or refuse it in words."""
    if not body.strip(b" \t\r\n"):
        raise _malformed("The body is empty; send a JSON object.")
    text = _decoded(body)
    if body.count(b"[") + body.count(b"{") > DEPTH_MAX:
        _refuse_deep(body)
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed(f"{error.msg}, at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise _deep() from None
    except ValueError:
        # What Python says of an integer with thousands of digits.
        raise _malformed("A number has too many digits; send it as text.") from None
    if _SURROGATE(body):
        _refuse_halves(value)
    return value


def _decoded(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _malformed(f"The body is not UTF-8, at byte {error.start}.") from None
    if text.startswith("\ufeff"):
        raise _malformed("The body begins with a byte order mark; send plain UTF-8.")
    return text


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _malformed(f"The key {shown(key)} is there twice in one object.")
            seen.add(key)
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _malformed(f"The number {shown(text)} is too large; send it as text.")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _malformed(f"{name} is not a number that JSON has.")


# Made once: making a decoder takes longer than a small body.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant
)


def _refuse_deep(body: bytes) -> None:
    """Refuse what is nested too deep, before anything walks down there."""
    brackets = _STRINGS.sub(b"", body).translate(None, _NOT_BRACKETS)
    for depth in accumulate(map(_STEPS.__getitem__, brackets)):
        if depth > DEPTH_MAX:
            raise _deep()


def _refuse_halves(root: object) -> None:
    """Refuse halves of surrogate pairs: they are JSON, but no text that could be stored."""
    todo: list[tuple[str, object]] = [("", root)]
    while todo:
        pointer, value = todo.pop()
        if isinstance(value, dict):
            for key, item in value.items():
                _refuse_half(pointer, key)
                todo.append((f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", item))
        elif isinstance(value, list):
            todo += [(f"{pointer}/{at}", item) for at, item in enumerate(value)]
        elif isinstance(value, str):
            _refuse_half(pointer, value)


def _refuse_half(pointer: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        told = f"has half of a surrogate pair at position {error.start}"
        raise Problem(
            422,
            "invalid",
            "A field cannot be taken",
            "See `errors` for what is wrong with which field.",
            extra={"errors": [{"pointer": pointer[:200], "detail": told}]},
        ) from None


def _deep() -> Problem:
    return _malformed(f"The body is nested deeper than {DEPTH_MAX} levels.")


def _malformed(detail: str) -> Problem:
    return Problem(400, "json-malformed", "The body is not strict JSON", detail)
