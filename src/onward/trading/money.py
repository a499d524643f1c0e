"""Amounts: whole numbers of minor units of a currency, and nothing that merely looks like one.

A float cannot hold every cent, and a text or a truth value is a mistake of the caller's, so each of
them is refused with what it is. What is far too large is a mistake as well, mostly of the unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType, NoneType
from typing import Final

from onward.errors import InvalidInput
from onward.store.inputs import shown

AMOUNT_MAX: Final = 10**12
ITEM_MAX: Final = 2**63 - 1
_KINDS: Final[Mapping[type, str]] = MappingProxyType(
    {
        bool: "a truth value",
        int: "a number",
        float: "a number with a fraction or an exponent",
        str: "text",
        NoneType: "null",
        list: "a list",
        dict: "an object",
    }
)
_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII).fullmatch


def amount(field: str, value: object) -> int:
    """Return an amount of money that somebody may move."""
    return _some(field, value, of="minor units")


def pieces(field: str, value: object) -> int:
    """Return how many pieces of an item somebody is to get."""
    return _some(field, value, of="pieces")


def item(field: str, value: object) -> int:
    """Return the number of an item."""
    whole = _whole(field, value, of="the item")
    if not 1 <= whole <= ITEM_MAX:
        raise InvalidInput(field, f"{shown(whole)} is not between 1 and {ITEM_MAX}")
    return whole


def currency(field: str, value: object, known: Sequence[str]) -> str:
    """Return a currency that is traded here."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"is {_kind(value)}; send text, such as {known[0]}")
    if value not in known:
        raise InvalidInput(field, f"{shown(value)} is not one of {', '.join(known)}")
    return value


def currencies(given: str) -> tuple[str, ...]:
    """Read the currencies that are traded here, as the settings name them."""
    found = tuple(part.strip() for part in given.split(","))
    for part in found:
        if not _CURRENCY(part):
            raise InvalidInput(
                "ONWARD_CURRENCIES", f"{shown(part)} is not a code of three letters, such as EUR"
            )
    if len(set(found)) < len(found):
        raise InvalidInput("ONWARD_CURRENCIES", "names a currency twice")
    return found


def _some(field: str, value: object, *, of: str) -> int:
    whole = _whole(field, value, of=of)
    if whole <= 0:
        raise InvalidInput(field, f"{shown(whole)} is not more than nothing")
    if whole > AMOUNT_MAX:
        raise InvalidInput(field, f"{shown(whole)} is more than {AMOUNT_MAX} {of} at once")
    return whole


def _whole(field: str, value: object, *, of: str) -> int:
    # A truth value is a number to Python, and to nobody else.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise InvalidInput(field, f"is {_kind(value)}; send the number of {of}, whole and unquoted")


def _kind(value: object) -> str:
    """Say what somebody has sent, in the words of JSON."""
    return _KINDS.get(type(value), "something else")
