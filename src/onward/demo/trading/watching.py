"""Looks at how it goes: the book through the API, deals and sums in the tables.

Each look adds up everything there is, in one statement and therefore at one moment, in the middle
of whatever the others do.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from onward.demo.trading.asking import TRADING, Asker
from onward.demo.trading.journal import Journal
from onward.demo.trading.line import Line
from onward.demo.trading.script import MARKETS, Demo, Market
from onward.demo.trading.state import (
    DEALS_SHOWN,
    Book,
    DealState,
    Level,
    State,
    Sum,
    View,
)
from onward.store import database
from onward.store.database import Connection

SLICES: Final = 40  # of the time, in the line of a price
_DEPTH: Final = 8

SUMS: Final = """
WITH moved AS (
    SELECT asset, -coalesce(sum(amount) FILTER (WHERE part = 'outside'), 0) AS brought,
           coalesce(sum(amount) FILTER (WHERE part = 'fees'), 0) AS fees
      FROM entries GROUP BY asset
), kept AS (
    SELECT asset, sum(available) AS available, sum(held) AS held
      FROM (SELECT asset, available, held FROM accounts
            UNION ALL
            SELECT asset, available, held FROM account_changes) AS a
     GROUP BY asset
)
SELECT asset, coalesce(m.brought, 0)::bigint, coalesce(k.available, 0)::bigint,
       coalesce(k.held, 0)::bigint, coalesce(m.fees, 0)::bigint
  FROM moved m FULL JOIN kept k USING (asset)
 ORDER BY asset
"""
_DEALS: Final = """
SELECT id, item_id, currency, price, buyer, seller FROM deals ORDER BY id DESC LIMIT $1
"""
_PRICES: Final = """
SELECT round(avg(price))::bigint AS price, count(*) AS deals
  FROM deals
 WHERE item_id = $1 AND currency = $2
 GROUP BY floor(extract(epoch FROM created_at - $3::timestamptz) / $4::float8)
 ORDER BY min(created_at)
"""


@asynccontextmanager
async def watching(
    database_url: str, demo: Demo, doors: list[str], *, key: str, journal: Journal, view: View
) -> AsyncIterator[Watch]:
    """Give somebody who looks and shows."""
    line = Line(doors, 0, key=key)
    connection = await database.connect(database_url)
    try:
        began: datetime = await connection.fetchval("SELECT now()")
        yield Watch(connection, Asker(line, journal), demo, began=began, view=view)
    finally:
        line.close()
        await connection.close()


class Watch:
    """Looks whenever it is asked to, and shows what it sees."""

    def __init__(
        self, connection: Connection, asker: Asker, demo: Demo, *, began: datetime, view: View
    ) -> None:
        self._connection = connection
        self._asker = asker
        self._slice_s = demo.seconds / SLICES
        self._began = began
        self._began_at = time.monotonic()
        self._view = view
        self.looks = 0
        self.missed: list[str] = []  # what did not add up, and when

    async def look(self) -> State:
        """See how it goes now, and add everything up."""
        elapsed_s = time.monotonic() - self._began_at
        sums = [Sum(*row) for row in await self._connection.fetch(SUMS)]
        self.looks += 1
        self.missed += [
            f"{each.missing} of {each.asset} was missing after {elapsed_s:.1f} s"
            for each in sums
            if each.missing
        ]
        journal = self._asker.journal
        state = State(
            elapsed_s=elapsed_s,
            requests_rate=len(journal.told) / elapsed_s if elapsed_s else 0.0,
            books=[await self._book(market) for market in MARKETS],
            deals=await self._deals(),
            answers=dict(journal.answers),
            replays=journal.replays,
            sums=sums,
            looks=self.looks,
            missed=len(self.missed),
        )
        self._view.show(state)
        return state

    async def waiting(self) -> int:
        """Return how many orders no matcher has looked at yet."""
        found: int = await self._connection.fetchval("SELECT count(*) FROM arrivals")
        return found

    async def _book(self, market: Market) -> Book:
        item, currency, *_ = market
        found = await self._asker.look(
            f"{TRADING}/book?item_id={item}&currency={currency}&depth={_DEPTH}"
        )
        paid = await self._connection.fetch(_PRICES, item, currency, self._began, self._slice_s)
        return Book(
            market,
            bids=_levels(found.body["bids"]),
            asks=_levels(found.body["asks"]),
            prices=[row["price"] for row in paid],
            deals=sum(row["deals"] for row in paid),
        )

    async def _deals(self) -> Sequence[DealState]:
        return [DealState(*row) for row in await self._connection.fetch(_DEALS, DEALS_SHOWN)]


def _levels(found: Sequence[dict[str, int]]) -> Sequence[Level]:
    return [Level(level["price"], level["orders"]) for level in found]
