"""Money as people write it, and as the service keeps it: whole numbers of minor units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from onward.cli.exits import Usage

_TYPED = re.compile(r"(\d{1,15})(?:\.(\d{1,15}))?", re.ASCII).fullmatch
_USUAL: Final = 2
# Currencies whose minor unit is not a hundredth (ISO 4217).
_DIGITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG"), 0),
        **dict.fromkeys(("RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
        **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
        **dict.fromkeys(("CLF", "UYW"), 4),
    }
)


class Typed(NamedTuple):
    """An amount as somebody has typed it, before it is known of which currency it is."""

    whole: str
    fraction: str

    def minor(self, currency: str) -> int:
        """The amount in minor units, or the sentence why it is none."""
        behind = digits(currency)
        if len(self.fraction) > behind:
            told = f"{behind} digits behind the point" if behind else "no digits behind a point"
            raise Usage(f"{self.whole}.{self.fraction}: {currency} has {told}.")
        return int(self.whole + self.fraction.ljust(behind, "0"))


def typed(text: str) -> Typed:
    """Read an amount; a comma is a thousand to some and a point to others, so it is refused."""
    found = _TYPED(text)
    if found is None:
        raise Usage(
            f"{text!a:.80}: write an amount with a point and without commas, such as 12.50."
        )
    whole, fraction = found[1], (found[2] or "").rstrip("0")
    if not whole.strip("0") and not fraction:
        raise Usage(f"{text}: an amount is more than nothing.")
    return Typed(whole, fraction)


def digits(currency: str) -> int:
    """How many digits stand behind the point of a currency."""
    return _DIGITS.get(currency, _USUAL)


def money(minor: object, currency: object) -> str:
    """Write minor units as people read them, by their digits, so that no cent is lost."""
    if not isinstance(minor, int):
        return ""
    behind = digits(str(currency))
    written = f"{abs(minor):0{behind + 1}d}"
    whole, fraction = (written[:-behind], f".{written[-behind:]}") if behind else (written, "")
    return f"{'-' if minor < 0 else ''}{int(whole):,}{fraction}"


def priced(minor: object, currency: object) -> str:
    """The same with the name of the currency."""
    return f"{money(minor, currency)} {currency}"
