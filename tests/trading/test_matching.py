"""Matchers: the best price, then the oldest, never one's own, whoever else is at it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import count
from typing import Final

import pytest

from onward.store import orders
from onward.store.database import Pool, pooled
from tests.proof_table import Tried
from tests.trading.conftest import USERS
from tests.trading.market_check import AGAIN_S, BOUND_S, deals_of, faults, open_orders, settle
from tests.trading.reference_book import ReferenceBook, Wanted
from tests.trading.traders import Traders, endow

SEED: Final = 20_261_118
MATCHERS: Final = 8
PLACERS: Final = 8

_history_items = count(1_000_000)


# --- Eight matchers at once -----------------------------------------------------------------------


@pytest.mark.timeout(900)
async def test_eight_matchers_leave_no_order_in_two_deals_and_no_two_that_could_meet(
    database_url: str, tried: Tried, *, proof: bool
):
    wanted = 100_000 if proof else 3_000
    items = range(1, 21)
    print(f"seed {SEED}")
    async with (
        pooled(database_url, size=PLACERS) as pool,
        pooled(database_url, size=MATCHERS) as matching,
    ):
        crowds = [[f"user-{placer}-{n}" for n in range(10)] for placer in range(PLACERS)]
        await endow(pool, [user for crowd in crowds for user in crowd], items)
        placing = asyncio.Event()
        async with asyncio.timeout(None) as bound, asyncio.TaskGroup() as group:
            matchers = [
                group.create_task(match_until(placing, matching, random.Random(SEED - n)))
                for n in range(MATCHERS)
            ]
            async with asyncio.TaskGroup() as placers:
                withdrawals = [
                    placers.create_task(
                        trade(pool, crowd, items, random.Random(SEED + n), wanted // PLACERS)
                    )
                    for n, crowd in enumerate(crowds)
                ]
            placing.set()
            bound.reschedule(asyncio.get_running_loop().time() + BOUND_S)
        withdrawn = sum(task.result() for task in withdrawals)
        again = sum(task.result() for task in matchers)
        found = await faults(pool)
        assert not found[:5]
        assert await pool.fetchval("SELECT count(*) FROM orders") == wanted
        deals = await pool.fetchval("SELECT count(*) FROM deals")
    tried(
        f"orders with {MATCHERS} matchers",
        wanted,
        f"{deals:,} deals, {withdrawn:,} withdrawn, looked at again {again:,} times, 0 violations",
    )


async def trade(
    pool: Pool, users: Sequence[str], items: Sequence[int], chance: random.Random, wanted: int
) -> int:
    """Place so many orders, withdraw some of them, and say how many were withdrawn in time."""
    traders, mine, withdrawn = Traders(pool), list[Wanted](), 0
    for _ in range(wanted):
        mine.append(await traders.place_any(chance, users, items))
        if chance.random() < 0.15:
            # Mostly a young one, which a matcher may be looking at just now.
            young = mine[-8:] if chance.random() < 0.8 else mine
            withdrawn += await traders.cancel(chance.choice(young))
    return withdrawn


async def match_until(placing: asyncio.Event, pool: Pool, chance: random.Random) -> int:
    """Match until all is placed and nothing is left; returns how often something came again."""
    again = 0
    while True:
        done = placing.is_set()
        matched = await orders.match(pool, limit=chance.choice((1, 3, 16)), again_s=AGAIN_S)
        again += matched.again
        # What another matcher has taken is not lost on it: each sees for itself that none is left.
        if done and not await pool.fetchval("SELECT EXISTS (SELECT FROM arrivals)"):
            return again


# --- One matcher, beside the clerk ----------------------------------------------------------------


async def test_one_matcher_makes_the_deals_of_a_serial_book(
    market: Pool, tried: Tried, *, proof: bool
):
    histories, deals = 500 if proof else 50, 0
    for number in range(histories):
        chance = random.Random(SEED + number)
        items = [next(_history_items) for _ in range(chance.choice((1, 1, 3)))]
        await endow(market, USERS, items)
        book = await history(market, chance, [list(USERS)], items, chance.randint(5, 60))
        made = await deals_of(market, items)
        assert made == book.deals, f"seed {SEED + number}"
        assert await open_orders(market, items) == book.open(), f"seed {SEED + number}"
        deals += len(made)
    tried("histories beside a serial book", histories, f"{deals:,} deals, every one the same")


@pytest.mark.timeout(900)
async def test_one_matcher_makes_the_deals_of_a_serial_book_in_a_long_history(
    database_url: str, tried: Tried, *, proof: bool
):
    length = 100_000 if proof else 1_000
    items = range(1, 11)
    async with pooled(database_url, size=PLACERS) as pool:
        crowds = [[f"user-{placer}-{n}" for n in range(10)] for placer in range(PLACERS)]
        await endow(pool, [user for crowd in crowds for user in crowd], items)
        book = await history(pool, random.Random(SEED), crowds, items, length // PLACERS)
        made = await deals_of(pool, items)
        assert made == book.deals, f"seed {SEED}"
        assert await open_orders(pool, items) == book.open()
        found = await faults(pool)
        assert not found[:5]
    tried("orders of one history beside a serial book", length, f"{len(made):,} deals, the same")


async def history(
    pool: Pool,
    chance: random.Random,
    crowds: Sequence[Sequence[str]],
    items: Sequence[int],
    length: int,
) -> ReferenceBook:
    """Place, withdraw and match as chance says, in the database and in the clerk's book."""
    book, known = ReferenceBook(), list[Wanted]()
    traders = [Traders(pool) for _ in crowds]
    for _ in range(length):
        placed = await asyncio.gather(
            *(
                each.place_any(chance, crowd, items)
                for each, crowd in zip(traders, crowds, strict=True)
            )
        )
        known += placed
        for order in placed:
            book.place(order)
        if chance.random() < 0.2:
            order = chance.choice(known[-40:])
            if await traders[0].cancel(order):
                assert order.id in book.open()
                book.cancel(order.id)
        if chance.random() < 0.4:
            calls = chance.choice((1, 1, 4)) * len(crowds)  # else more comes than is looked at
            await match_some(pool, book, chance.choice((1, 2, 5, 16)), calls)
    await settle(pool)
    book.match()
    return book


async def match_some(pool: Pool, book: ReferenceBook, limit: int, calls: int) -> None:
    """Call the matcher, and let the clerk look at what it has looked at."""
    for _ in range(calls):
        await orders.match(pool, limit=limit, again_s=0)
    unseen = await pool.fetch("SELECT order_id FROM arrivals WHERE NOT standing")
    book.match(but={row["order_id"] for row in unseen})


# --- What a deal is -------------------------------------------------------------------------------


async def test_a_buyer_gets_the_cheapest_offer_that_is_still_open(
    market: Pool, traders: Traders, item: int
):
    """Neither the dearer one nor the one that is gone, which a careless query would find."""
    offers = {
        price: await traders.place("bob", "sell", price, item=item) for price in (95, 90, 100)
    }
    gone = await traders.place("cyd", "buy", 200, item=item)
    withdrawn = await traders.place("bob", "sell", 80, item=item)
    await traders.cancel(withdrawn)
    await settle(market)
    wanted = await traders.place("ann", "buy", 120, item=item)
    await settle(market)
    assert [(deal.buy, deal.sell, deal.price) for deal in await deals_of(market, [item])] == [
        (gone.id, offers[90].id, 90),
        (wanted.id, offers[95].id, 95),
    ]


async def test_a_seller_gets_the_highest_bid_that_is_still_open(
    market: Pool, traders: Traders, item: int
):
    bids = {price: await traders.place("bob", "buy", price, item=item) for price in (105, 110, 100)}
    gone = await traders.place("cyd", "sell", 50, item=item)
    withdrawn = await traders.place("bob", "buy", 120, item=item)
    await traders.cancel(withdrawn)
    await settle(market)
    offered = await traders.place("ann", "sell", 90, item=item)
    await settle(market)
    assert [(deal.buy, deal.sell, deal.price) for deal in await deals_of(market, [item])] == [
        (bids[110].id, gone.id, 110),
        (bids[105].id, offered.id, 105),
    ]


async def test_an_order_that_is_filled_is_not_found_again_whatever_the_book_says(
    market: Pool, traders: Traders, item: int
):
    """As a matcher sees it that read the book a moment before the deal of another."""
    filled = await traders.place("bob", "sell", 90, item=item)
    await settle(market)
    (place,) = await market.fetch("SELECT * FROM book WHERE order_id = $1", filled.id)
    await traders.place("cyd", "buy", 90, item=item)
    await settle(market)
    await market.execute("INSERT INTO book SELECT ($1::book).*", place)
    late = await traders.place("ann", "buy", 95, item=item)
    await settle(market)
    assert len(await deals_of(market, [item])) == 1
    assert await open_orders(market, [item]) == {late.id}


async def test_of_two_with_one_price_the_older_is_taken_and_never_ones_own(
    market: Pool, traders: Traders, item: int
):
    await traders.place("ann", "sell", 90, item=item)
    older = await traders.place("bob", "sell", 95, item=item)
    await traders.place("cyd", "sell", 95, item=item)
    wanted = await traders.place("ann", "buy", 95, item=item)
    await settle(market)
    assert [deal[:3] for deal in await deals_of(market, [item])] == [(wanted.id, older.id, 95)]


async def test_the_price_is_that_of_whoever_came_first_also_if_nobody_had_looked_yet(
    market: Pool, traders: Traders, item: int
):
    """All three have arrived before the first look: who is first is not who is looked at first."""
    bid = await traders.place("ann", "buy", 100, item=item)
    offer = await traders.place("bob", "sell", 90, item=item)
    late = await traders.place("cyd", "buy", 110, item=item)
    await settle(market)
    assert [deal[:3] for deal in await deals_of(market, [item])] == [(bid.id, offer.id, 100)]
    assert await open_orders(market, [item]) == {late.id}


async def test_the_book_shows_the_best_prices_first(market: Pool, traders: Traders, item: int):
    for price in (98, 99, 99):
        await traders.place("ann", "buy", price, item=item)
    for price in (102, 101, 101, 103):
        await traders.place("bob", "sell", price, item=item)
    await settle(market)
    assert await orders.book(market, item, "EUR", depth=2) == (
        [(99, 2), (98, 1)],
        [(101, 2), (102, 1)],
    )
