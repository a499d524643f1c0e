"""Orders to measure with: made by the server itself, with the money and the ledger behind them."""

from __future__ import annotations

from typing import Final, NamedTuple

from onward.bench.runner import Progress
from onward.core.lifecycles import ORDER
from onward.errors import InvariantBroken
from onward.store.database import Pool
from onward.store.orders import Side
from onward.trading.audit import audit

CURRENCY: Final = "EUR"
ITEMS: Final = 10
_USERS: Final = 1_000  # of each side
_COMMISSION_BP: Final = 25
_CHUNK: Final = 100_000

# Those who buy and those who sell are different people, and everybody has what the orders take.
# Prices are scattered, so that orders which are next to each other in the book are so nowhere else.
_MADE: Final = """
WITH made AS MATERIALIZED (
    SELECT nextval('orders_id_seq') AS id, nextval('operations_id_seq') AS payment_id,
           $1::text || '-' || n % $6::bigint AS user_id, 1 + n % $7::bigint AS item_id, p.price,
           commission_v1(p.price, $9::integer) AS commission
      FROM generate_series($2::bigint, $3::bigint) AS n
     CROSS JOIN LATERAL (SELECT $4::bigint + n * 7919 % $5::bigint AS price) AS p
), held AS MATERIALIZED (
    SELECT m.*, CASE $1 WHEN 'buy' THEN $8::text ELSE 'item:' || m.item_id END AS asset,
           CASE $1 WHEN 'buy' THEN m.price + m.commission ELSE 1 END AS amount
      FROM made m
), brought AS MATERIALIZED (
    SELECT h.user_id, h.asset, sum(h.amount)::bigint AS amount,
           nextval('operations_id_seq') AS operation_id
      FROM held h
     GROUP BY h.user_id, h.asset
), operated AS (
    INSERT INTO operations (id, at, kind, user_id, asset, amount, order_id)
    OVERRIDING SYSTEM VALUE
    SELECT b.operation_id, now(), CASE $1 WHEN 'buy' THEN 'deposit' ELSE 'issue' END, b.user_id,
           b.asset, b.amount, NULL::bigint
      FROM brought b
     UNION ALL
    SELECT h.payment_id, now(), 'hold', h.user_id, h.asset, h.amount, h.id FROM held h
), transferred AS (
    INSERT INTO transfers (operation_id, n, asset, amount, from_part, from_user, to_part, to_user)
    SELECT b.operation_id, 1, b.asset, b.amount, 'outside', '', 'available', b.user_id
      FROM brought b
     UNION ALL
    SELECT h.payment_id, 1, h.asset, h.amount, 'available', h.user_id, 'held', h.user_id
      FROM held h
), kept AS (
    INSERT INTO accounts AS a (user_id, asset, held)
    SELECT b.user_id, b.asset, b.amount FROM brought b
    ON CONFLICT (user_id, asset) DO UPDATE SET held = a.held + excluded.held
), placed AS (
    INSERT INTO orders (id, side, user_id, item_id, currency, payment_id, price, commission,
                        commission_bp, token, status, created_at, updated_at)
    OVERRIDING SYSTEM VALUE
    SELECT h.id, $1, h.user_id, h.item_id, $8, h.payment_id, h.price, h.commission, $9,
           gen_random_uuid(), $10, now(), now()
      FROM held h
)
"""
_STANDS: Final = f"""{_MADE}
INSERT INTO book (order_id, side, user_id, item_id, currency, rank)
SELECT h.id, $1, h.user_id, h.item_id, $8, CASE $1 WHEN 'buy' THEN -h.price ELSE h.price END
  FROM held h
"""  # noqa: S608 - made of the constant above
_ARRIVES: Final = f"""{_MADE}
INSERT INTO arrivals (order_id, due_at) SELECT h.id, now() FROM held h
"""  # noqa: S608 - made of the constant above

_GIVEN: Final = (_USERS, ITEMS, CURRENCY, _COMMISSION_BP, ORDER.initial)
_TABLES: Final = (
    "accounts, account_changes, operations, transfers, orders, order_timeline, book, arrivals, "
    "deals"
)


class Prices(NamedTuple):
    """From which price on, and how far up."""

    first: int
    spread: int


BIDS: Final = Prices(1, 900_000)
OFFERS: Final = Prices(1_000_000, 900_000)
TAKERS: Final = Prices(2_000_000, 1)  # who buy whatever is offered


async def empty(pool: Pool) -> None:
    """Leave nothing of a former market."""
    await pool.execute(f"TRUNCATE {_TABLES}")


async def stand(
    pool: Pool, side: Side, prices: Prices, count: int, progress: Progress | None = None
) -> None:
    """Make orders that stand in the book."""
    for first in range(0, count, _CHUNK):
        last = min(first + _CHUNK, count)
        await pool.execute(_STANDS, side, first, last - 1, *prices, *_GIVEN)
        if progress:
            progress(f"loaded {last:,} of {count:,} that {side}")


async def arrive(pool: Pool, side: Side, prices: Prices, count: int) -> None:
    """Make orders that nobody has looked at yet."""
    await pool.execute(_ARRIVES, side, 0, count - 1, *prices, *_GIVEN)


async def tidy(pool: Pool) -> None:
    """Let what is measured begin with nothing left to do for the server."""
    await pool.execute(f"VACUUM (ANALYZE) {_TABLES}")
    await pool.execute("CHECKPOINT")


async def verify(pool: Pool, deals: int) -> None:
    """Make sure that so many deals were made, and that the books are right."""
    found = await audit(pool)
    faults = list(found.faults)
    if found.deals != deals:
        faults.append(f"{found.deals:,} deals instead of {deals:,}")
    if faults:
        raise InvariantBroken(f"What was measured is wrong: {'; '.join(faults[:3])}")
