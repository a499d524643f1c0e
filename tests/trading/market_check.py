"""What is in a market, and what has to hold there when matchers have nothing left to do.

Limits, prices and who could still meet are looked up in the orders themselves, not in the book that
matchers keep, so that a wrong book cannot hide a wrong deal.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg

from onward.core.lifecycles import ORDER
from onward.core.verdicts import TransitionResult
from onward.store import orders
from onward.store.database import Pool
from onward.store.orders import Side
from onward.trading.audit import audit
from tests.trading.reference_book import Made

AGAIN_S: Final = 0.005
BOUND_S: Final = 60.0
_FILLED: Final = ORDER.moves["fill"].target


async def settle(pool: Pool) -> None:
    """Match until nothing is left to look at."""
    async with asyncio.timeout(BOUND_S):
        while await pool.fetchval("SELECT EXISTS (SELECT FROM arrivals)"):
            await orders.match(pool, limit=16, again_s=AGAIN_S)


async def deals_of(pool: Pool, items: Sequence[int]) -> list[Made]:
    """The deals in some items, in their order."""
    rows = await pool.fetch(
        "SELECT buy_order_id, sell_order_id, price, buyer_commission, seller_commission "
        "FROM deals WHERE item_id = ANY ($1) ORDER BY id",
        items,
    )
    return [Made(*row) for row in rows]


async def open_orders(pool: Pool, items: Sequence[int]) -> set[int]:
    """The orders for some items that are neither filled nor withdrawn."""
    rows = await pool.fetch(
        "SELECT id FROM orders WHERE status = $1 AND item_id = ANY ($2)", ORDER.initial, items
    )
    return {row["id"] for row in rows}


async def faults(pool: Pool) -> list[str]:
    """Everything that is not as it should be."""
    placed = await pool.fetch("SELECT * FROM orders")
    by_id = {row["id"]: row for row in placed}
    found = list((await audit(pool)).faults)
    found += [
        f"{query}: {tuple(row)}"
        for query in ("crossed", "misplaced")
        for row in await pool.fetch(orders.SQL[query], 10)
    ]
    found += await _lost(pool)
    found += _could_meet([row for row in placed if row["status"] == ORDER.initial])
    found += _wrong_deals(await pool.fetch("SELECT * FROM deals"), by_id)
    timeline = await pool.fetch("SELECT * FROM order_timeline ORDER BY seq")
    found += _outside_the_law(timeline, by_id)
    return found


async def _lost(pool: Pool) -> list[str]:
    """Assets of which there is not as much as was brought in."""
    rows = await pool.fetch(
        """
        SELECT asset, sum(n) AS left_over
          FROM (SELECT asset, available + held AS n FROM accounts
                 UNION ALL SELECT asset, available + held FROM account_changes
                 UNION ALL SELECT asset, amount FROM transfers WHERE to_part = 'fees'
                 UNION ALL SELECT asset, -amount FROM transfers WHERE from_part = 'outside') AS all_
         GROUP BY asset HAVING sum(n) <> 0
        """
    )
    return [f"{asset}: {left_over} too many" for asset, left_over in rows]


def _could_meet(standing: list[asyncpg.Record]) -> Iterator[str]:
    """Open orders that should have met: for each bid, the cheapest offer of somebody else."""
    sides: dict[tuple[int, Side], list[asyncpg.Record]] = defaultdict(list)
    for row in sorted(standing, key=lambda row: row["price"]):
        sides[row["item_id"], row["side"]].append(row)
    for (item, side), bids in list(sides.items()):
        if side == "buy":
            offers = sides.get((item, "sell"), [])
            for bid in bids:
                offer = next((o for o in offers if o["user_id"] != bid["user_id"]), None)
                if offer is not None and offer["price"] <= bid["price"]:
                    yield f"{bid['id']} and {offer['id']} could meet"


def _wrong_deals(deals: list[asyncpg.Record], by_id: dict[int, asyncpg.Record]) -> Iterator[str]:
    dealt = Counter(
        order for deal in deals for order in (deal["buy_order_id"], deal["sell_order_id"])
    )
    yield from (f"{order} is in {times} deals" for order, times in dealt.items() if times > 1)
    filled = {row["id"] for row in by_id.values() if row["status"] == _FILLED}
    yield from (f"{order} is filled without a deal, or not" for order in filled ^ set(dealt))
    for deal in deals:
        buy, sell = by_id[deal["buy_order_id"]], by_id[deal["sell_order_id"]]
        if buy["user_id"] == sell["user_id"]:
            yield f"deal {deal['id']} is with oneself"
        if not sell["price"] <= deal["price"] <= buy["price"]:
            yield f"deal {deal['id']} is outside of a limit"
        if deal["price"] not in {sell["price"], buy["price"]}:
            yield f"deal {deal['id']} is at nobody's price"


def _outside_the_law(
    timeline: list[asyncpg.Record], by_id: dict[int, asyncpg.Record]
) -> Iterator[str]:
    status = dict.fromkeys(by_id, ORDER.initial)
    for row in timeline:
        order = row["order_id"]
        decided, target = ORDER.table[status[order], row["event"]]
        if (row["from_status"], row["verdict"], row["to_status"]) != (
            status[order],
            decided.value,
            target,
        ):
            yield f"{order}: {tuple(row)} is not what the law says"
        if decided is TransitionResult.OK:
            status[order] = target
    yield from (
        f"{order} is not where its timeline ends"
        for order, row in by_id.items()
        if row["status"] != status[order]
    )
