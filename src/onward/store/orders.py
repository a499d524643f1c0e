"""Orders in PostgreSQL: placed, withdrawn and matched, all by the guarded path.

Placing an order names the token of the user's last one, and makes the next. The token is kept in
the transaction of the order itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple
from uuid import UUID

from onward.core.verdicts import Transition
from onward.store import queries
from onward.store.database import Pool, answering
from onward.store.guard import Guard
from onward.store.ledger import Outcome

SQL = queries.load("orders.sql")

Side = Literal["buy", "sell"]

NO_TOKEN: Final = UUID(int=0)  # of a user who has never placed an order on this side
_LAST: Final = 2**63 - 1


class OrderState(NamedTuple):
    """Where an order stands, as the store last saw it."""

    order_id: int
    lifecycle: str
    status: str
    epoch: int
    version: int


ORDERS = Guard[int, OrderState](SQL["record"], OrderState)


class NewOrder(NamedTuple):
    """What somebody wants to buy or sell, one piece of it, at this price or a better one."""

    side: Side
    item_id: int
    currency: str
    price: int
    commission_bp: int  # hundredths of a percent of the price

    @property
    def request(self) -> str:
        """What a repeat has to say again."""
        return f"{self.side} {self.item_id} {self.price} {self.currency}"


class Placed(NamedTuple):
    """What became of an order that somebody wanted to place."""

    outcome: Outcome
    order_id: int | None
    token: UUID | None  # the present one: what the next order has to name
    needed: int | None  # what has to be set aside for it
    available: int | None
    request: str | None  # what the key stands for, if it stands for something else
    payment_id: int | None
    commission: int | None  # at most
    created_at: datetime | None


class Order(NamedTuple):
    """An order as it is."""

    id: int
    user_id: str
    side: Side
    item_id: int
    currency: str
    payment_id: int
    deal_id: int | None
    price: int
    commission: int
    commission_bp: int
    token: UUID
    status: str
    version: int
    created_at: datetime
    updated_at: datetime


class Deal(NamedTuple):
    """Two orders that met."""

    id: int
    created_at: datetime
    item_id: int
    currency: str
    price: int
    operation_id: int
    buy_order_id: int
    sell_order_id: int
    buyer: str
    seller: str
    buyer_commission: int
    seller_commission: int


class Level(NamedTuple):
    """A price in the book, and how many orders stand there."""

    price: int
    orders: int


class Matched(NamedTuple):
    """What one call of a matcher did."""

    deals: int
    rested: int  # arrivals that found nobody, twice, and stand in the book now
    again: int  # arrivals that will be looked at once more: they found nobody, or only locked ones
    gone: int  # arrivals that had been filled or withdrawn before they were looked at

    @property
    def arrivals(self) -> int:
        """How many were looked at."""
        return self.deals + self.rested + self.again + self.gone


async def place(
    pool: Pool, user: str, order: NewOrder, *, token: UUID, new_token: UUID, key: str | None
) -> Placed:
    """Place an order, if `token` is that of the user's last one; one transaction."""
    with answering():
        row = await pool.fetchrow(
            SQL["place"],
            user,
            *order,
            token,
            new_token,
            key,
            None if key is None else order.request,
        )
    assert row is not None  # noqa: S101 - the function answers every call
    return Placed(Outcome(row[0]), *row[1:])


async def cancel(
    pool: Pool, user: str, side: Side, order_id: int, *, source: str
) -> Transition[OrderState] | None:
    """Withdraw a user's own order and give back what was set aside; nothing if there is none."""
    with answering():
        row = await pool.fetchrow(SQL["cancel"], order_id, user, side, source)
    if row is None:
        return None
    return ORDERS.judged((order_id, "cancel", None, source, None), row)


async def match(pool: Pool, *, limit: int, again_s: float) -> Matched:
    """Give each of the oldest arrivals the best order of the other side, in one transaction.

    Any number of matchers may run: none waits for another. An arrival that found nobody is looked
    at again by the next call; one that stands in the book and met only what others have locked,
    within `again_s`.
    """
    with answering():
        rows = await pool.fetch(SQL["match"], limit, again_s)
    done = {"deal": 0, "rest": 0, "again": 0, "gone": 0}
    for row in rows:
        done[row["outcome"]] += 1
        if row["outcome"] == "deal":
            ORDERS.judged((row["order_id"], "fill", None, "", None), row)
    # A deal is told once for each of its orders.
    return Matched(done["deal"] // 2, done["rest"], done["again"], done["gone"])


async def token_of(pool: Pool, user: str, side: Side) -> UUID:
    """Return the token of a user's last order on a side."""
    with answering():
        found: UUID | None = await pool.fetchval(SQL["token"], user, side)
    return found or NO_TOKEN


async def get(pool: Pool, user: str, side: Side, order_id: int) -> Order | None:
    """Return one order of a user's own."""
    with answering():
        row = await pool.fetchrow(SQL["order"], order_id, user, side)
    return None if row is None else Order(*row)


async def page(
    pool: Pool,
    user: str,
    side: Side,
    *,
    limit: int,
    before: int = _LAST,
    statuses: Sequence[str] | None = None,
) -> list[Order]:
    """Return a user's own orders, the newest first."""
    with answering():
        rows = await pool.fetch(SQL["orders"], user, side, before, statuses, limit)
    return [Order(*row) for row in rows]


async def deals(pool: Pool, user: str, *, limit: int, before: int = _LAST) -> list[Deal]:
    """Return the deals that a user is part of, the newest first."""
    with answering():
        return [Deal(*row) for row in await pool.fetch(SQL["deals"], user, before, limit)]


async def book(
    pool: Pool, item_id: int, currency: str, *, depth: int
) -> tuple[list[Level], list[Level]]:
    """Return the best prices of those who buy, and of those who sell."""
    with answering():
        bids = await pool.fetch(SQL["bids"], item_id, currency, depth)
        asks = await pool.fetch(SQL["asks"], item_id, currency, depth)
    return [Level(*row) for row in bids], [Level(*row) for row in asks]
