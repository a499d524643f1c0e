"""The audit finds whatever is wrong: each fault is planted in books that are right."""

from __future__ import annotations

import re

import pytest

from onward.core.lifecycles import ORDER
from onward.store import ledger, orders
from onward.store.database import Pool
from onward.store.queries import rendered
from onward.trading.audit import audit
from tests.proof_table import Tried
from tests.trading.traders import Traders, endow

TABLES = ("accounts", "account_changes", "operations", "transfers", "orders", "deals", "book")

# The schema would not let these faults in: a second look is worth it only where the first is gone.
_OPENED = """
ALTER TABLE accounts DROP CONSTRAINT accounts_floor;
ALTER TABLE deals DROP CONSTRAINT deals_check1;
"""


@pytest.fixture(scope="module")
async def books(market: Pool) -> Pool:
    """Books with deposits, open orders, orders that were withdrawn, and deals, half added up."""
    await endow(market, ["ann", "bob"], [1, 2])
    traders = Traders(market)
    for price in (100, 110, 120):
        await traders.place("ann", "buy", price)
        await traders.place("bob", "sell", price - 5)
    assert (await orders.match(market, limit=100, again_s=0.001)).deals == 3
    assert await ledger.fold(market, limit=1) == 1
    await traders.place("ann", "buy", 90)
    await traders.place("bob", "sell", 130)
    while await market.fetchval("SELECT count(*) FROM arrivals"):
        await orders.match(market, limit=100, again_s=0.001)
    assert await traders.cancel(await traders.place("ann", "buy", 80))
    assert await market.fetchval("SELECT count(*) FROM account_changes") > 0
    for table in TABLES:
        await market.execute(f"CREATE TABLE public.saved_{table} AS TABLE onward.{table}")
    await market.execute(_OPENED)
    return market


async def restored(pool: Pool) -> None:
    """Put everything back as it was."""
    for table in TABLES:
        await pool.execute(
            f"DELETE FROM onward.{table}; INSERT INTO onward.{table} "  # noqa: S608 - constants
            f"OVERRIDING SYSTEM VALUE SELECT * FROM public.saved_{table}"
        )


def written(fault: str) -> str:
    """Fill in what depends on the law."""
    return rendered(fault.replace("{cancelled}", f"'{ORDER.moves['cancel'].target}'"))


# What is done to the books, and how the audit tells it.
FAULTS: dict[str, tuple[str, str]] = {
    "a cent too much": (
        "UPDATE accounts SET available = available + 1 WHERE user_id = 'ann' AND asset = 'EUR'",
        "ann has .* of EUR, but the ledger says",
    ),
    "a cent too little, held": (
        "UPDATE accounts SET held = held - 1 WHERE user_id = 'ann' AND asset = 'EUR'",
        "ann has .* held of EUR, but the ledger says",
    ),
    "less than nothing": (
        "UPDATE accounts SET available = -5 WHERE user_id = 'ann' AND asset = 'EUR'",
        "ann has -5 ",
    ),
    "an account that is gone": (
        "DELETE FROM accounts WHERE user_id = 'ann' AND asset = 'item:2'",
        "ann has 0 and 0 held of item:2, but the ledger says 1000000000000",
    ),
    "an account out of nowhere": (
        "INSERT INTO accounts (user_id, asset, available) VALUES ('eve', 'EUR', 7)",
        "eve has 7 and 0 held of EUR, but the ledger says 0 and 0",
    ),
    "a change of a deal that is gone": (
        "DELETE FROM account_changes WHERE id = (SELECT max(id) FROM account_changes)",
        "but the ledger says",
    ),
    "a change that came twice": (
        (
            "INSERT INTO account_changes (user_id, asset, available, held, at) "
            "SELECT user_id, asset, available, held, at FROM account_changes LIMIT 1"
        ),
        "but the ledger says",
    ),
    "a transfer that is gone": (
        "DELETE FROM transfers WHERE operation_id = (SELECT min(id) FROM operations)",
        "the entries of operation .* do not sum to zero, or there are none",
    ),
    "a transfer of another amount": (
        (
            "UPDATE transfers SET amount = amount + 1 "
            "WHERE operation_id = (SELECT min(id) FROM operations)"
        ),
        "but the ledger says",
    ),
    "a transfer to somebody else": (
        (
            "UPDATE transfers SET to_user = 'eve' "
            "WHERE operation_id = (SELECT min(id) FROM operations)"
        ),
        "eve has 0 and 0 held of .*, but the ledger says",
    ),
    "a transfer from a place that there is not": (
        "UPDATE transfers SET from_part = 'pocket' WHERE from_part = 'outside'",
        "operation .* moved something from or to a place that there is not",
    ),
    "an open order that is not in the book": (
        "DELETE FROM book WHERE side = 'buy'",
        "order .* is open and not in the book, or in the book and not open",
    ),
    "an order in the book at another price": (
        "UPDATE book SET rank = rank - 1 WHERE side = 'buy'",
        "order .* is open and not in the book, or in the book and not open",
    ),
    "two orders that could meet": (
        (
            "INSERT INTO book (order_id, side, user_id, item_id, currency, rank) "
            "SELECT -1, 'sell', 'eve', item_id, currency, 1 FROM book WHERE side = 'buy' LIMIT 1"
        ),
        "orders .* and -1 could meet, and nobody looks at them",
    ),
    "an operation without entries": (
        (
            "INSERT INTO operations (at, kind, user_id, asset, amount) "
            "VALUES (now(), 'deposit', 'ann', 'EUR', 5)"
        ),
        "the entries of operation .* do not sum to zero, or there are none",
    ),
    "an order that was closed and not paid back": (
        "UPDATE orders SET status = {cancelled} WHERE side = 'buy' AND price = 90",
        "ann has .* of EUR held, but open orders take 0",
    ),
    "an order that was opened and not paid for": (
        "UPDATE orders SET status = {open} WHERE side = 'buy' AND price = 80",
        "ann has .* of EUR held, but open orders take",
    ),
    "an order at another price than was paid for": (
        "UPDATE orders SET price = price + 1 WHERE side = 'buy' AND price = 90",
        "order .* is not what its deal and its payment say",
    ),
    "an order that is paid for by another's": (
        (
            "UPDATE orders SET payment_id = (SELECT min(payment_id) FROM orders) "
            "WHERE side = 'sell' AND price = 130"
        ),
        "order .* is not what its deal and its payment say",
    ),
    "a deal above the limit": (
        "UPDATE deals SET price = 1000 WHERE id = (SELECT min(id) FROM deals)",
        "deal .* is not what its orders allow",
    ),
    "a deal below the limit": (
        "UPDATE deals SET price = 1 WHERE id = (SELECT min(id) FROM deals)",
        "deal .* is not what its orders allow",
    ),
    "a deal at another price than was paid, within the limits": (
        (
            "UPDATE deals SET price = (SELECT price FROM orders WHERE id = sell_order_id) "
            "WHERE id = (SELECT min(id) FROM deals)"
        ),
        "operation .* did not move what its deal says",
    ),
    "a deal with oneself": (
        "UPDATE deals SET seller = 'ann' WHERE id = (SELECT min(id) FROM deals)",
        "deal .* is not what its orders allow",
    ),
    "a deal over another item": (
        "UPDATE deals SET item_id = 2 WHERE id = (SELECT min(id) FROM deals)",
        "deal .* is not what its orders allow",
    ),
    "a deal whose commission was another": (
        (
            "UPDATE deals SET buyer_commission = buyer_commission + 1 "
            "WHERE id = (SELECT min(id) FROM deals)"
        ),
        "deal .* is not what its orders allow",
    ),
    "a deal whose order was withdrawn": (
        "UPDATE orders SET status = {cancelled} WHERE id = (SELECT min(id) FROM orders)",
        "deal .* is not what its orders allow",
    ),
    "a deal that is gone": (
        "DELETE FROM deals WHERE id = (SELECT min(id) FROM deals)",
        "order .* is not what its deal and its payment say",
    ),
    "an order that says it was in another's deal": (
        (
            "UPDATE orders SET deal_id = (SELECT max(id) FROM deals) "
            "WHERE id = (SELECT min(id) FROM orders)"
        ),
        "order .* is not what its deal and its payment say",
    ),
    "a filled order without a deal": (
        "UPDATE orders SET status = {filled} WHERE side = 'sell' AND price = 130",
        "order .* is not what its deal and its payment say",
    ),
    "a deal that was paid in part": (
        (
            "DELETE FROM transfers WHERE n = 1 "
            "AND operation_id = (SELECT min(operation_id) FROM deals)"
        ),
        "operation .* did not move what its deal says",
    ),
    "an operation of the market without a deal": (
        (
            "UPDATE operations SET kind = 'deal', user_id = '', key = NULL, request = NULL "
            "WHERE id = (SELECT min(id) FROM operations)"
        ),
        "operation .* did not move what its deal says",
    ),
}


async def test_books_that_are_right_have_no_faults(books: Pool):
    await restored(books)
    found = await audit(books)
    assert found.faults == ()
    assert (found.deals, found.open_orders) == (3, 2)
    assert found.operations == await books.fetchval("SELECT count(*) FROM operations")
    assert found.totals["item:1"] == {
        "available": 2 * 10**12 - 1,
        "held": 1,
        "outside": -2 * 10**12,
    }
    assert sum(found.totals["EUR"].values()) == 0


async def test_each_kind_of_fault_is_found(books: Pool, tried: Tried):
    for case, (planted, told) in FAULTS.items():
        await restored(books)
        assert not (await books.execute(written(planted))).endswith(" 0"), case
        faults = (await audit(books)).faults
        assert any(re.search(told, fault) for fault in faults), (case, faults)
    await restored(books)
    assert (await audit(books)).faults == ()
    tried("faults planted in the books", len(FAULTS), "all found")


async def test_of_many_faults_of_a_kind_the_first_ten_are_told(books: Pool):
    await restored(books)
    await books.execute(
        "INSERT INTO accounts (user_id, asset, available) "
        "SELECT 'user ' || n, 'EUR', 1 FROM generate_series(1, 1000) AS n"
    )
    assert len((await audit(books)).faults) == 10
    await restored(books)
