"""The measurements of matching: small, and only as to whether they measure what they say."""

from __future__ import annotations

import pytest

from onward.bench import book, matching
from onward.errors import InvariantBroken
from onward.store import orders
from onward.store.database import Pool
from tests.bench.results import well_formed


def test_deals_are_measured_against_pgbench_and_a_long_book_against_a_short_one():
    told: list[str] = []
    sizes = matching.Sizes(
        matchers=2, limit=4, calls=5, rounds=1, long=2_000, short=200, taken=10, turns=2
    )
    deals, length = matching.matching(told.append, sizes)
    assert deals.name == "deals, 2 matchers"
    assert "pgbench" in str(deals.against)
    assert length.name == "a deal with 2,000 open orders"
    assert "with 200" in str(length.against)
    assert well_formed(deals)
    assert well_formed(length)
    assert sum("round 1 of 1" in line for line in told) == 2


async def test_a_market_that_is_wrong_is_not_believed(pool: Pool):
    await book.stand(pool, "buy", book.BIDS, 40)
    await book.stand(pool, "sell", book.OFFERS, 40)
    await book.arrive(pool, "buy", book.TAKERS, 10)
    assert (await orders.match(pool, limit=10, again_s=0)).deals == 10
    await book.verify(pool, 10)
    with pytest.raises(InvariantBroken, match="10 deals instead of 11"):
        await book.verify(pool, 11)
    for spoiling, mending, said in (
        (
            "UPDATE account_changes SET available = available + 1",
            "UPDATE account_changes SET available = available - 1",
            "the ledger says",
        ),
        (
            "UPDATE book SET order_id = -order_id WHERE item_id = 1",
            "UPDATE book SET order_id = -order_id WHERE item_id = 1",
            "in the book and not open",
        ),
    ):
        await pool.execute(spoiling)
        with pytest.raises(InvariantBroken, match=said):
            await book.verify(pool, 10)
        await pool.execute(mending)
        await book.verify(pool, 10)
    await book.stand(pool, "buy", book.TAKERS, 1)
    with pytest.raises(InvariantBroken, match="could meet"):
        await book.verify(pool, 10)
