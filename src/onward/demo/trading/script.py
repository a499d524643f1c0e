"""What is played: who is there, what they have, what is traded, and how a price wanders."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

SERVICES: Final = 2
EMPTY_AT: Final = 0.25  # of the time: Valkey forgets everything
KILL_AT: Final = 0.40  # of the time: a service is killed, and started again

POCKET: Final = 400  # how many pieces somebody could buy with the money they come with
STOCK: Final = 250  # pieces of each item that a seller comes with

_STEP_S: Final = 0.1
_STEP: Final = 0.0025  # of the price, how far it goes in a step, more or less
_PULL: Final = 0.02  # how much of the way back to where it began it goes in a step

Crowd = Literal["buyers", "sellers", "both"]


@dataclass(frozen=True, slots=True)
class Demo:
    """The figures of a demo."""

    seconds: int
    seed: int
    data_dir: Path | None = None  # kept; without one, everything is thrown away in the end
    plant: str | None = None  # a promise to be broken on purpose


class Market(NamedTuple):
    """An item that is traded for a currency, and what a piece of it costs at first."""

    item_id: int
    currency: str
    price: int
    tick: int  # prices are whole multiples of it

    @property
    def name(self) -> str:
        """What people call it."""
        return f"item {self.item_id} in {self.currency}"


class Person(NamedTuple):
    """Somebody with one key or several, which are used at once and know nothing of each other."""

    name: str
    crowd: Crowd
    keys: int


MARKETS: Final = (Market(7, "EUR", 250_00, 50), Market(9, "USD", 80_00, 20))
PEOPLE: Final = (
    *(Person(name, "buyers", 1) for name in ("ada", "ben", "cleo", "dina")),
    *(Person(name, "buyers", 2) for name in ("emil", "fay", "gus")),
    *(Person(name, "sellers", 1) for name in ("rosa", "sven", "tara", "ugo")),
    *(Person(name, "sellers", 2) for name in ("vera", "will", "yan")),
    # They both buy and sell, with so many keys that these are in each other's way.
    *(Person(name, "both", 4) for name in ("kim", "lou")),
)
SELLING: Final = frozenset({"sellers", "both"})
BUYING: Final = frozenset({"buyers", "both"})


def money(amount: int) -> str:
    """Write an amount of minor units as people read it."""
    return f"{amount / 100:,.2f}"


class Wander:
    """A price that goes up and down by chance, the same way for the same seed."""

    def __init__(self, market: Market, *, seed: int, seconds: int) -> None:
        chance = random.Random(f"{seed}/{market.name}")  # noqa: S311 - a play, drawn from a seed
        self._prices = _walk(market.price, chance, steps=round(seconds / _STEP_S) + 1)

    def at(self, elapsed_s: float) -> int:
        """Return what people believe a piece to be worth."""
        return self._prices[min(int(elapsed_s / _STEP_S), len(self._prices) - 1)]


def _walk(start: int, chance: random.Random, *, steps: int) -> Sequence[int]:
    price, found = float(start), []
    for _ in range(steps):
        found.append(round(price))
        price += price * chance.gauss(0, _STEP) + (start - price) * _PULL
    return found
