"""The ledger: every change is in it once, nothing passes its floor, and refusals write nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

import asyncpg
import pytest

from onward.store import ledger, orders
from onward.store.database import Pool
from onward.store.ledger import BALANCE_MAX, Outcome, PostKind, item_asset
from onward.trading.audit import audit
from tests.trading.traders import Traders

numbers = count(1)


@pytest.fixture
def user() -> str:
    """Somebody to whom nothing has happened yet."""
    return f"user {next(numbers)}"


async def post(
    pool: Pool,
    user: str,
    kind: PostKind,
    amount: int,
    *,
    version: int | None = None,
    key: str | None = None,
) -> ledger.Posted:
    wanted = ledger.new_post(user, "EUR", kind=kind, amount=amount, version=version, key=key)
    return await ledger.post(pool, wanted)


async def add_up(pool: Pool) -> None:
    """Leave nothing of deals to be added up."""
    while await ledger.fold(pool, limit=3):
        pass


async def written(pool: Pool) -> object:
    """Everything that there is, as it was last written."""
    tables = ("accounts", "account_changes", "operations", "transfers", "orders", "order_tokens")
    return [
        await pool.fetchrow(f"SELECT count(*), sum(xmin::text::bigint) FROM {table}")  # noqa: S608 - constants
        for table in tables
    ]


async def test_an_account_that_nothing_has_happened_to_is_empty(market: Pool, user: str):
    assert await ledger.account(market, user, "EUR") == (0, 0, 1, None)
    assert await ledger.operations(market, user, limit=10) == []
    assert await ledger.holdings(market, user, after=0, limit=10) == []


async def test_each_change_makes_the_next_version_and_two_entries_that_sum_to_zero(
    market: Pool, user: str
):
    made = [
        await post(market, user, "deposit", 500, version=1),
        await post(market, user, "withdraw", 200, version=2),
        await post(market, user, "issue", 1),
    ]
    assert [each.outcome for each in made] == [Outcome.OK] * 3
    assert [(each.available, each.held, each.version) for each in made] == [
        (500, 0, 2),
        (300, 0, 3),
        (301, 0, 4),
    ]
    entries = await market.fetch(
        "SELECT part, user_id, amount FROM entries WHERE operation_id = ANY ($1) "
        "ORDER BY operation_id, amount",
        [each.operation_id for each in made],
    )
    assert [tuple(entry) for entry in entries] == [
        ("outside", "", -500),
        ("available", user, 500),
        ("available", user, -200),
        ("outside", "", 200),
        ("outside", "", -1),
        ("available", user, 1),
    ]
    assert (await audit(market)).faults == ()


async def test_a_refusal_writes_nothing_and_says_how_the_account_is(market: Pool, user: str):
    await post(market, user, "deposit", 500, version=1)
    before = await written(market)
    refusals: list[tuple[PostKind, int, int, tuple[Outcome, int, int]]] = [
        ("deposit", 1, 1, (Outcome.STALE, 500, 2)),
        ("deposit", 1, 3, (Outcome.STALE, 500, 2)),
        ("withdraw", 501, 2, (Outcome.INSUFFICIENT, 500, 2)),
        # Whoever has not seen it is told that first.
        ("withdraw", 501, 1, (Outcome.STALE, 500, 2)),
        ("deposit", BALANCE_MAX, 2, (Outcome.TOO_MUCH, 500, 2)),
    ]
    for kind, amount, version, expected in refusals:
        found = await post(market, user, kind, amount, version=version)
        assert (found.outcome, found.available, found.version) == expected
        assert found.operation_id is None
    assert await written(market) == before


async def test_an_account_without_a_row_refuses_like_any_other(market: Pool, user: str):
    before = await written(market)
    assert (await post(market, user, "withdraw", 1, version=1)).outcome is Outcome.INSUFFICIENT
    assert (await post(market, user, "deposit", 1, version=2)).outcome is Outcome.STALE
    assert await written(market) == before


async def test_of_many_changes_of_one_version_one_is_made(market: Pool, user: str):
    """Nothing stands in front of it: this is the UPDATE alone."""
    await post(market, user, "deposit", 500)
    found = await asyncio.gather(*(post(market, user, "withdraw", 5, version=2) for _ in range(40)))
    outcomes = Counter(each.outcome for each in found)
    assert outcomes == {Outcome.OK: 1, Outcome.STALE: 39}
    assert (await ledger.account(market, user, "EUR"))[:3] == (495, 0, 3)


async def test_the_first_change_of_an_account_is_made_by_one_of_many(market: Pool, user: str):
    """There is no row yet that they could wait at."""
    found = await asyncio.gather(*(post(market, user, "deposit", 5, version=1) for _ in range(40)))
    outcomes = Counter(each.outcome for each in found)
    assert outcomes == {Outcome.OK: 1, Outcome.STALE: 39}
    assert (await ledger.account(market, user, "EUR"))[:3] == (5, 0, 2)


async def test_nobody_takes_out_more_than_there_is_however_many_try(market: Pool, user: str):
    await post(market, user, "deposit", 100)
    found = await asyncio.gather(*(post(market, user, "withdraw", 7) for _ in range(40)))
    outcomes = Counter(each.outcome for each in found)
    assert outcomes == {Outcome.OK: 14, Outcome.INSUFFICIENT: 26}
    assert (await ledger.account(market, user, "EUR")).available == 2


async def test_the_floor_is_in_the_schema_as_well(market: Pool, user: str):
    await post(market, user, "deposit", 100)
    for part in ("available", "held"):
        with pytest.raises(asyncpg.CheckViolationError):
            await market.execute(
                f"UPDATE accounts SET {part} = {part} - 101 WHERE user_id = $1",  # noqa: S608 - a constant
                user,
            )


async def test_an_account_is_its_row_and_what_deals_have_changed_since(
    market: Pool, traders: Traders, item: int
):
    """Whoever looks adds it up; adding it up for good changes nothing of what they see."""
    await add_up(market)
    await traders.place("ann", "buy", 100, item=item)
    await traders.place("bob", "sell", 100, item=item)
    before = await ledger.account(market, "bob", "EUR")
    assert (await orders.match(market, limit=10, again_s=0.001)).deals == 1
    assert await market.fetchval("SELECT count(*) FROM account_changes") == 4
    seen = {
        (user, asset): await ledger.account(market, user, asset)
        for user in ("ann", "bob")
        for asset in ("EUR", item_asset(item))
    }
    bob = seen["bob", "EUR"]
    assert (bob.available, bob.version) == (before.available + 100, before.version + 1)
    await add_up(market)
    assert await market.fetchval("SELECT count(*) FROM account_changes") == 0
    for (user, asset), account in seen.items():
        assert await ledger.account(market, user, asset) == account
    assert (await audit(market)).faults == ()


async def test_money_from_a_deal_can_be_spent_before_it_is_added_up(
    market: Pool, traders: Traders, item: int
):
    await traders.place("ann", "buy", 100, item=item)
    await traders.place("bob", "sell", 100, item=item)
    assert (await orders.match(market, limit=10, again_s=0.001)).deals == 1
    bob = await ledger.account(market, "bob", "EUR")
    # The version that was seen without the deal is not the present one.
    stale = await post(market, "bob", "withdraw", 1, version=bob.version - 1)
    assert (stale.outcome, stale.version) == (Outcome.STALE, bob.version)
    done = await post(market, "bob", "withdraw", bob.available, version=bob.version)
    assert (done.outcome, done.available) == (Outcome.OK, 0)
    await post(market, "bob", "deposit", bob.available)
    assert (await audit(market)).faults == ()


async def test_a_key_belongs_to_one_of_those_who_come_at_the_same_moment(market: Pool, user: str):
    found = await asyncio.gather(
        *(post(market, user, "deposit", 5, version=1, key="once") for _ in range(40))
    )
    outcomes = Counter(each.outcome for each in found)
    assert outcomes[Outcome.OK] == 1
    assert outcomes.keys() <= {Outcome.OK, Outcome.REPEATED, Outcome.RUNNING}
    (first,) = {each.operation_id for each in found if each.operation_id}
    again = await post(market, user, "deposit", 5, version=1, key="once")
    assert (again.outcome, again.operation_id, again.version) == (Outcome.REPEATED, first, 2)
    other = await post(market, user, "deposit", 6, version=2, key="once")
    assert (other.outcome, other.request) == (Outcome.KEY_REUSED, "deposit 5 EUR")
