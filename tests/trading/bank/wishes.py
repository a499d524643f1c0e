"""What the clients of the bank want: drawn from a seed, mistakes included, and from nothing else.

What a client asks for as its hundredth wish is known before anybody is asked. Which version it
names then, and which of its orders it withdraws, depends on what it was told meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

CURRENCY: Final = "EUR"
COMMISSION_BP: Final = 25
ITEMS: Final = (1, 2, 3)
PIECES: Final = 25  # of each item, for everybody, in the beginning
FIRST_DEPOSIT: Final = 400_000

_PRICES: Final = (9_900, 10_100)  # so narrow that most orders meet another
_AMOUNTS: Final = (1, 30_000)
_FAR_TOO_MUCH: Final = 10**11


class Kind(StrEnum):
    """What somebody wants done; an issue is the admin's."""

    DEPOSIT = "deposit"
    WITHDRAW = "withdraw"
    BUY = "buy"
    SELL = "sell"
    CANCEL = "cancel"
    ISSUE = "issue"


class Slip(StrEnum):
    """What is wrong with a request on purpose."""

    NONE = "nothing"
    NO_TAG = "no If-Match"
    BAD_TAG = "an If-Match that cannot be read"
    WEAK_TAG = "a weak tag"
    OLD_TAG = "a tag that is not the present one"
    NOTHING = "an amount of nothing"
    TOO_MUCH = "more than there is"
    REUSED = "a key that stands for another request"


class Wish(NamedTuple):
    """One request, as far as it does not depend on what was answered before."""

    kind: Kind
    amount: int  # of money; the price of an order; how many pieces of an item
    item: int = 0
    slip: Slip = Slip.NONE
    keyed: bool = True
    persists: bool = False  # asks again with the present version, if it was refused for its own
    repeats: bool = False  # asks once more after it was done
    looks: bool = False  # looks at the version first, instead of trusting what it was told
    which: float = 0.0  # of its orders, to be cancelled

    @property
    def side(self) -> str | None:
        """The side of the book that it is for."""
        return str(self.kind) if self.kind in {Kind.BUY, Kind.SELL} else None

    @property
    def asset(self) -> str:
        """What it takes, or brings."""
        return f"item:{self.item}" if self.kind in {Kind.SELL, Kind.ISSUE} else CURRENCY

    @property
    def moved(self) -> int:
        """How much of that the operation moves."""
        if self.kind is Kind.SELL:
            return 1
        return set_aside(self.amount) if self.kind is Kind.BUY else self.amount


def set_aside(price: int) -> int:
    """Return what somebody who buys at a price must have: the price and the commission."""
    return price + commission(price)


def commission(price: int) -> int:
    """Return what either side of a deal pays."""
    return price * COMMISSION_BP // 10_000


def wishes(seed: object) -> Iterator[Wish]:
    """Draw one wish after the other, for as long as somebody asks."""
    chance = random.Random(str(seed))
    while True:
        yield _wish(chance)


def _wish(chance: random.Random) -> Wish:
    (kind,) = chance.choices(
        (Kind.DEPOSIT, Kind.WITHDRAW, Kind.BUY, Kind.SELL, Kind.CANCEL), (22, 24, 22, 22, 10)
    )
    slip = _slip(kind, chance)
    order = kind in {Kind.BUY, Kind.SELL}
    return Wish(
        kind,
        _amount(slip, chance, _PRICES if order else _AMOUNTS),
        chance.choice(ITEMS) if order else 0,
        slip,
        # A key that is to be used again has to be there.
        keyed=chance.random() < 0.85 or slip is Slip.REUSED,
        persists=chance.random() < 0.5,
        repeats=chance.random() < 0.04,
        looks=chance.random() < 0.03,
        which=chance.random(),
    )


def _slip(kind: Kind, chance: random.Random) -> Slip:
    if kind is Kind.CANCEL or chance.random() > 0.08:
        return Slip.NONE
    every = [slip for slip in Slip if slip is not Slip.NONE]
    if kind not in {Kind.WITHDRAW, Kind.BUY}:
        every.remove(Slip.TOO_MUCH)
    return chance.choice(every)


def _amount(slip: Slip, chance: random.Random, between: tuple[int, int]) -> int:
    drawn = chance.randint(*between)
    return {Slip.NOTHING: 0, Slip.TOO_MUCH: _FAR_TOO_MUCH}.get(slip, drawn)
