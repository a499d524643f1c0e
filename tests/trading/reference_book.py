"""A book that one clerk keeps: what matching has to come to when nobody else is at it.

Orders arrive one after the other. Each takes the best order that stands in the book on the other
side and is not of the same user: the best price, then the oldest. The price is that of the order
which stood there. Whoever finds nobody stands in the book.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Container
from typing import NamedTuple

from onward.store.orders import Side


class Wanted(NamedTuple):
    """An order, as the clerk writes it down."""

    id: int
    user: str
    side: Side
    item: int
    price: int
    commission_bp: int

    @property
    def rank(self) -> tuple[int, int]:
        """The best first, as whoever takes one sees them: the cheapest offer, the highest bid."""
        return (self.price if self.side == "sell" else -self.price, self.id)

    def meets(self, standing: Wanted) -> bool:
        """Whether the two prices allow a deal."""
        if self.side == "buy":
            return standing.price <= self.price
        return standing.price >= self.price

    def commission(self, price: int) -> int:
        """What this side pays, rounded down."""
        return price * self.commission_bp // 10_000


class Made(NamedTuple):
    """A deal."""

    buy: int
    sell: int
    price: int
    buyer_commission: int
    seller_commission: int


class ReferenceBook:
    """What has arrived, what stands in the book, and the deals so far, in their order."""

    def __init__(self) -> None:
        self.waiting: dict[int, Wanted] = {}
        self.deals: list[Made] = []
        self._standing: dict[tuple[Side, int], list[Wanted]] = defaultdict(list)

    def place(self, order: Wanted) -> None:
        """Take an order in; the clerk has not looked at it yet."""
        self.waiting[order.id] = order

    def cancel(self, order_id: int) -> None:
        """Strike out an order, wherever it is."""
        self.waiting.pop(order_id, None)
        for standing in self._standing.values():
            standing[:] = [order for order in standing if order.id != order_id]

    def match(self, *, but: Container[int] = ()) -> None:
        """Look at what has arrived, in its order."""
        for order_id in sorted(self.waiting):
            if order_id not in but:
                self._arrive(self.waiting.pop(order_id))

    def open(self) -> set[int]:
        """The orders that are neither filled nor struck out."""
        return {
            *self.waiting,
            *(order.id for standing in self._standing.values() for order in standing),
        }

    def _arrive(self, order: Wanted) -> None:
        for standing in self._standing["sell" if order.side == "buy" else "buy", order.item]:
            if not order.meets(standing):
                break
            if standing.user != order.user:
                self._deal(order, standing)
                return
        insort(self._standing[order.side, order.item], order, key=lambda found: found.rank)

    def _deal(self, order: Wanted, standing: Wanted) -> None:
        self._standing[standing.side, standing.item].remove(standing)
        buy, sell = (order, standing) if order.side == "buy" else (standing, order)
        price = standing.price
        self.deals.append(
            Made(buy.id, sell.id, price, buy.commission(price), sell.commission(price))
        )
