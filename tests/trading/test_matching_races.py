"""Two who are at the same orders at the same moment: every order of events is forced.

A matcher or a withdrawal that is in the middle is one whose transaction is open. Nothing is slept
for: whoever must not wait has to come back while the other is still there, and whoever must wait is
seen waiting by PostgreSQL itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, TypeAlias, cast

import asyncpg
import pytest

from onward.core.lifecycles import ORDER
from onward.core.verdicts import TransitionResult
from onward.store import orders
from onward.store.database import Pool, connect
from onward.store.orders import Matched
from tests.races.stage import until_blocked
from tests.trading.market_check import deals_of, faults, open_orders, settle
from tests.trading.reference_book import Wanted
from tests.trading.traders import Traders

Single: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_BOUND_S: Final = 20.0


@pytest.fixture
async def other(market_url: str) -> AsyncIterator[Pool]:
    """Another connection, which asks for nothing but what a pool gives as well."""
    connection = await connect(market_url)
    yield cast("Pool", connection)
    await connection.close()


@pytest.fixture
async def third(market_url: str) -> AsyncIterator[Pool]:
    """And one more."""
    connection = await connect(market_url)
    yield cast("Pool", connection)
    await connection.close()


@pytest.fixture(autouse=True)
async def nothing_wrong_afterwards(market: Pool) -> AsyncIterator[None]:
    yield
    await settle(market)
    assert not (await faults(market))[:5]


async def match(pool: Pool, limit: int = 1) -> Matched:
    """Match without waiting for anybody."""
    async with asyncio.timeout(_BOUND_S):
        return await orders.match(pool, limit=limit, again_s=0)


async def begin(pool: Pool) -> None:
    await pool.execute("BEGIN")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_what_another_has_locked_is_passed_over_without_waiting(
    market: Pool, other: Pool, traders: Traders, item: int, end: str
):
    best = await traders.place("ann", "sell", 100, item=item)
    next_best = await traders.place("ann", "sell", 101, item=item)
    await settle(market)
    first = await traders.place("bob", "buy", 110, item=item)
    await begin(other)
    assert (await match(other)).deals == 1
    second = await traders.place("cyd", "buy", 110, item=item)
    assert (await match(market)).deals == 1
    assert [deal[:3] for deal in await deals_of(market, [item])] == [(second.id, next_best.id, 101)]
    await other.execute(end)
    await settle(market)
    dealt = {deal[:3] for deal in await deals_of(market, [item])}
    assert dealt == {(second.id, next_best.id, 101), (first.id, best.id, 100)}


@pytest.mark.parametrize("offer_first", [True, False])
@pytest.mark.parametrize("commits_first", ["older", "younger"])
async def test_two_that_are_looked_at_at_the_same_moment_meet_afterwards_once(
    market: Pool,
    other: Pool,
    third: Pool,
    traders: Traders,
    item: int,
    offer_first: bool,  # noqa: FBT001 - pytest fills it in
    commits_first: str,
):
    async def offer() -> Wanted:
        return await traders.place("ann", "sell", 100, item=item)

    async def bid() -> Wanted:
        return await traders.place("bob", "buy", 105, item=item)

    older = await (offer() if offer_first else bid())
    await begin(other)
    assert await match(other) == Matched(deals=0, rested=0, again=1, gone=0)
    younger = await (bid() if offer_first else offer())
    await begin(third)
    assert await match(third) == Matched(deals=0, rested=0, again=1, gone=0)
    for matcher in (other, third) if commits_first == "older" else (third, other):
        await matcher.execute("COMMIT")
    await settle(market)
    (deal,) = await deals_of(market, [item])
    assert {deal.buy, deal.sell} == {older.id, younger.id}
    assert deal.price == older.price


async def test_what_was_taken_in_a_call_is_not_dealt_again_in_the_same_call(
    market: Pool, other: Pool, third: Pool, traders: Traders, item: int
):
    """Three second looks in one call: the first takes the third, which could meet the second."""
    best = await traders.place("ann", "sell", 100, item=item)
    next_best = await traders.place("ann", "sell", 101, item=item)
    await begin(other)
    assert (await match(other, limit=2)).again == 2
    bid = await traders.place("bob", "buy", 105, item=item)
    await match(third)
    await other.execute("COMMIT")
    assert await match(market, limit=3) == Matched(deals=1, rested=1, again=0, gone=1)
    assert [deal[:3] for deal in await deals_of(market, [item])] == [(bid.id, best.id, 100)]
    assert await open_orders(market, [item]) == {next_best.id}


async def test_a_second_look_that_meets_only_a_locked_one_comes_again(
    market: Pool, other: Pool, third: Pool, traders: Traders, item: int
):
    """Both stand in the book; each has the other before it, and one of them is held."""
    older = await traders.place("ann", "sell", 100, item=item)
    await begin(other)
    await match(other)
    younger = await traders.place("bob", "buy", 105, item=item)
    await match(third)
    await other.execute("COMMIT")
    await begin(other)
    await other.execute("SELECT FROM orders WHERE id = $1 FOR UPDATE", older.id)
    for _ in range(3):
        assert await match(third) == Matched(deals=0, rested=0, again=1, gone=0)
    await other.execute("ROLLBACK")
    await settle(market)
    assert [deal[:3] for deal in await deals_of(market, [item])] == [(younger.id, older.id, 100)]


async def test_an_order_that_is_committed_late_meets_a_younger_one(
    market: Pool, other: Pool, traders: Traders, item: int
):
    """Its number is the lower one, but the other was looked at twice before anybody could see it.

    Then the younger one stood in the book, and it is its price.
    """
    await begin(other)
    late = await Traders(other).place("ann", "sell", 100, item=item)
    early = await traders.place("bob", "buy", 105, item=item)
    await settle(market)
    await other.execute("COMMIT")
    await settle(market)
    assert late.id < early.id
    assert [deal[:3] for deal in await deals_of(market, [item])] == [(early.id, late.id, 105)]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_nobody_waits_for_an_order_that_is_being_withdrawn(
    market: Pool, other: Pool, traders: Traders, item: int, end: str
):
    offer = await traders.place("ann", "sell", 100, item=item)
    await settle(market)
    await begin(other)
    await Traders(other).cancel(offer)
    bid = await traders.place("bob", "buy", 105, item=item)
    assert await match(market) == Matched(deals=0, rested=0, again=1, gone=0)
    assert await match(market) == Matched(deals=0, rested=0, again=1, gone=0)
    await other.execute(end)
    await settle(market)
    if end == "COMMIT":
        assert await deals_of(market, [item]) == []
        assert await open_orders(market, [item]) == {bid.id}
    else:
        assert [deal[:3] for deal in await deals_of(market, [item])] == [(bid.id, offer.id, 100)]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_an_arrival_that_is_being_withdrawn_is_left_alone(
    market: Pool, other: Pool, traders: Traders, item: int, end: str
):
    offer = await traders.place("ann", "sell", 100, item=item)
    await settle(market)
    bid = await traders.place("bob", "buy", 105, item=item)
    await begin(other)
    await Traders(other).cancel(bid)
    assert (await match(market)).arrivals == 0
    await other.execute(end)
    matched = await match(market)
    assert (matched.deals, matched.gone) == ((0, 1) if end == "COMMIT" else (1, 0))
    assert await open_orders(market, [item]) == ({offer.id} if end == "COMMIT" else set())


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_who_withdraws_an_order_that_is_being_matched_waits_and_is_told_what_became_of_it(
    market: Pool, other: Pool, third: Pool, traders: Traders, item: int, end: str
):
    offer = await traders.place("ann", "sell", 100, item=item)
    await settle(market)
    bid = await traders.place("bob", "buy", 105, item=item)
    await begin(other)
    assert (await match(other)).deals == 1
    withdrawing = asyncio.create_task(orders.cancel(third, "ann", "sell", offer.id, source="ann"))
    async with market.acquire() as observer:
        assert await until_blocked(cast("Single", observer), pid_of(third), pid_of(other))
    await other.execute(end)
    told = await withdrawing
    assert told is not None
    if end == "COMMIT":
        assert told.result is TransitionResult.TERMINAL
        assert [deal[:3] for deal in await deals_of(market, [item])] == [(bid.id, offer.id, 100)]
    else:
        assert told.result is TransitionResult.OK
        assert await deals_of(market, [item]) == []


def pid_of(pool: Pool) -> int:
    """The process of a connection, which may be busy just now."""
    return cast("Single", pool).get_server_pid()


async def test_a_matcher_that_is_cut_off_leaves_nothing_half_done(
    market: Pool, other: Pool, traders: Traders, item: int
):
    offer = await traders.place("ann", "sell", 100, item=item)
    await settle(market)
    bid = await traders.place("bob", "buy", 105, item=item)
    before = await everything(market)
    await begin(other)
    assert (await match(other)).deals == 1
    await market.execute("SELECT pg_terminate_backend($1, 20000)", pid_of(other))
    assert await everything(market) == before
    assert await open_orders(market, [item]) == {offer.id, bid.id}
    assert (await match(market)).deals == 1
    assert [deal[:3] for deal in await deals_of(market, [item])] == [(bid.id, offer.id, 100)]


async def everything(pool: Pool) -> list[int]:
    """How much there is of everything that a deal writes or takes away."""
    tables = ("operations", "transfers", "account_changes", "deals", "order_timeline", "book")
    counted = [
        await pool.fetchval(f"SELECT count(*) FROM {table}")  # noqa: S608 - one of the above
        for table in tables
    ]
    moved = await pool.fetchval("SELECT count(*) FROM orders WHERE status <> $1", ORDER.initial)
    return [*counted, moved]
