"""Cursors of lists: where the next page begins, as a text that callers only hand back.

A cursor carries the kind of its list and a checksum, so that one of another list, or one that was
cut or edited, is refused. It is no secret and no permission: whoever forges one only sees another
page of a list that they may read anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Path, Query
from pydantic import BeforeValidator
from starlette.requests import Request

from onward.errors import InvalidInput
from onward.store import inputs

_CURSOR_MAX: Final = 4_096
_CHECK_BYTES: Final = 6
ID_MAX: Final = 2**63 - 1
_DIGITS = re.compile(r"[1-9][0-9]{0,18}").fullmatch

Position = list[int | str]


def _plain_digits(value: object) -> object:
    # Pydantic takes `1_000`, `+1` and digits of other scripts for numbers: one id, one address.
    if isinstance(value, str) and not _DIGITS(value):
        raise ValueError("an id is a whole number from 1, in plain digits")
    return value


Limit = Annotated[int, Query(ge=1, le=1_000, description="How many to list at most.")]
Cursor = Annotated[
    str | None, Query(description="`next_cursor` of the page before; without it, the first page.")
]
Counting = Annotated[bool, Query(description="Say also how many there are on all pages.")]
Id = Annotated[int, Path(ge=1, le=ID_MAX), BeforeValidator(_plain_digits)]


def id_of(request: Request, name: str) -> int:
    """Return an id of the address, for what looks at a request before its handler is called."""
    given = request.path_params[name]
    if not _DIGITS(given) or int(given) > ID_MAX:
        raise InvalidInput(name, "an id is a whole number from 1, in plain digits")
    return int(given)


def encode(kind: str, position: Sequence[int | str]) -> str:
    """Write the position after which the next page of a list begins."""
    told = json.dumps(list(position), separators=(",", ":"), ensure_ascii=False).encode()
    return base64.urlsafe_b64encode(_check(kind, told) + told).rstrip(b"=").decode()


def decode(kind: str, cursor: str | None) -> Position | None:
    """Read a cursor of this kind of list; `None` for the first page."""
    if cursor is None:
        return None
    if len(cursor) > _CURSOR_MAX:
        raise _foreign()
    try:
        whole = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _foreign() from None
    check, told = whole[:_CHECK_BYTES], whole[_CHECK_BYTES:]
    if check != _check(kind, told):
        raise _foreign()
    return _position(told)


def decode_ids(kind: str, cursor: str | None, *, length: int) -> list[int] | None:
    """Read a cursor that is made of so many whole numbers; `None` for the first page."""
    position = decode(kind, cursor)
    if position is None:
        return None
    numbers = [part for part in position if isinstance(part, int)]
    if len(numbers) != len(position) or len(numbers) != length:
        raise _foreign()
    return numbers


def _position(told: bytes) -> Position:
    try:
        position = json.loads(told)
    except ValueError:
        raise _foreign() from None
    if not isinstance(position, list):
        raise _foreign()
    # The checksum is no signature: what the database could not take is refused here all the same.
    for part in position:
        if isinstance(part, str):
            inputs.text("cursor", part)
        else:
            inputs.integer("cursor", part, minimum=-ID_MAX)
    return position


def _check(kind: str, told: bytes) -> bytes:
    return hashlib.sha256(b"onward cursor of " + kind.encode() + b":" + told).digest()[
        :_CHECK_BYTES
    ]


def _foreign() -> InvalidInput:
    return InvalidInput("cursor", "is not one that this list has given; begin without one")
