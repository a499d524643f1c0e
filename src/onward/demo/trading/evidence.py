"""What is left when the trading is over: the tables, and the journal of those who asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from onward.demo.trading.journal import Told
from onward.store.database import Pool
from onward.trading.audit import audit

_OPERATIONS: Final = """
SELECT id, kind, user_id, asset, amount, order_id, key, available, held, version
  FROM operations ORDER BY id
"""
_TRANSFERS: Final = """
SELECT operation_id, asset, amount, from_part, from_user, to_part, to_user
  FROM transfers ORDER BY operation_id, n
"""
_BALANCES: Final = """
SELECT user_id, asset, sum(available)::bigint, sum(held)::bigint
  FROM (SELECT user_id, asset, available, held FROM accounts
        UNION ALL
        SELECT user_id, asset, available, held FROM account_changes) AS a
 GROUP BY user_id, asset
 ORDER BY user_id, asset
"""
_ORDERS: Final = """
SELECT id, side, user_id, item_id, currency, price, commission_bp, status, token::text
  FROM orders ORDER BY id
"""
_DEALS: Final = """
SELECT id, item_id, currency, price, operation_id, buy_order_id, sell_order_id, buyer, seller,
       buyer_commission + seller_commission
  FROM deals ORDER BY id
"""


class Operation(NamedTuple):
    """Something that was done, as the table has it."""

    id: int
    kind: str
    user: str
    asset: str
    amount: int
    order_id: int | None
    key: str | None
    available: int | None  # as it left the account
    held: int | None
    version: int | None

    def __str__(self) -> str:
        whose = f" of {self.user}" if self.user else ""
        return f"operation {self.id} ({self.kind} {self.amount} {self.asset}{whose})"


class Transfer(NamedTuple):
    """What an operation took from one place and gave to another."""

    asset: str
    amount: int
    from_part: str
    from_user: str
    to_part: str
    to_user: str


class Balance(NamedTuple):
    """What somebody has of an asset."""

    user: str
    asset: str
    available: int
    held: int


class Order(NamedTuple):
    """An order, as the table has it."""

    id: int
    side: str
    user: str
    item_id: int
    currency: str
    price: int
    commission_bp: int
    status: str
    token: str  # what the next one of this user has to name

    @property
    def market(self) -> tuple[int, str]:
        """Where it stands."""
        return self.item_id, self.currency


class Deal(NamedTuple):
    """A deal, as the table has it."""

    id: int
    item_id: int
    currency: str
    price: int
    operation_id: int
    buy_order_id: int
    sell_order_id: int
    buyer: str
    seller: str
    fees: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it."""

    told: tuple[Told, ...]
    operations: Mapping[int, Operation]
    transfers: Mapping[int, Sequence[Transfer]]
    balances: Sequence[Balance]
    orders: Mapping[int, Order]
    deals: Sequence[Deal]
    waiting: int  # orders that no matcher has looked at
    faults: tuple[str, ...]  # that the audit has found
    looks: int  # how often everything was added up while they traded, and
    missed: tuple[str, ...]  # what was not right

    @property
    def accepted(self) -> Mapping[tuple[str, str], Told]:
        """What was accepted, once for each key that somebody made up for it."""
        return {
            (each.wanted.person, each.wanted.key): each
            for each in self.told
            if each.accepted and each.wanted.key is not None
        }


async def gather(
    pool: Pool, told: Iterable[Told], *, looks: int, missed: Iterable[str]
) -> Evidence:
    """Read everything; nobody may be writing by now."""
    transfers: dict[int, list[Transfer]] = defaultdict(list)
    for operation_id, *transfer in await pool.fetch(_TRANSFERS):
        transfers[operation_id].append(Transfer(*transfer))
    return Evidence(
        told=tuple(told),
        operations={row["id"]: Operation(*row) for row in await pool.fetch(_OPERATIONS)},
        transfers=transfers,
        balances=[Balance(*row) for row in await pool.fetch(_BALANCES)],
        orders={row["id"]: Order(*row) for row in await pool.fetch(_ORDERS)},
        deals=[Deal(*row) for row in await pool.fetch(_DEALS)],
        waiting=await pool.fetchval("SELECT count(*) FROM arrivals"),
        faults=(await audit(pool)).faults,
        looks=looks,
        missed=tuple(missed),
    )
