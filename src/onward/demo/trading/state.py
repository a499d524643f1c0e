"""How the trading goes at one moment: what a person is shown of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from onward.demo.trading.script import Market

DEALS_SHOWN = 5


class Level(NamedTuple):
    """A price in the book, and how many orders stand there."""

    price: int
    orders: int


@dataclass(frozen=True, slots=True)
class Book:
    """What stands in the book of a market, the best prices first, and what was paid so far."""

    market: Market
    bids: Sequence[Level]
    asks: Sequence[Level]
    prices: Sequence[int]  # of a slice of time each, the newest last
    deals: int


class DealState(NamedTuple):
    """Two people who met."""

    deal_id: int
    item_id: int
    currency: str
    price: int
    buyer: str
    seller: str


class Sum(NamedTuple):
    """How much of an asset there is, and where."""

    asset: str
    brought: int  # from outside, less what was taken there
    available: int
    held: int
    fees: int

    @property
    def missing(self) -> int:
        """What was brought and is nowhere."""
        return self.brought - self.available - self.held - self.fees


@dataclass(frozen=True, slots=True)
class State:
    """Everything that is shown."""

    elapsed_s: float
    requests_rate: float
    books: Sequence[Book]
    deals: Sequence[DealState]  # the newest first
    answers: Mapping[int, int]  # by status
    replays: int  # answers that were given again
    sums: Sequence[Sum]
    looks: int  # how often all of it was added up, and
    missed: int  # how often it was not right


class View(Protocol):
    """Where a person can follow it."""

    def say(self, line: str) -> None:
        """Tell that something happened."""

    def show(self, state: State) -> None:
        """Show how it goes."""
