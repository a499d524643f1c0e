"""The bank's books as they stand in its tables, read row by row in one snapshot.

Nothing of the program's own reading is used here: what is added up is added up by the judge.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from onward.core.lifecycles import ORDER
from onward.store.database import Connection

OPEN = str(ORDER.initial)
CANCELLED = str(ORDER.moves["cancel"].target)
FILLED = str(ORDER.moves["fill"].target)

Place = tuple[str, str]  # the part, and whose it is: nobody's, outside and where the fees are
Owned = tuple[str, str]  # whose, and what


class Transfer(NamedTuple):
    """So much of something goes from one place to another."""

    asset: str
    amount: int
    source: Place
    target: Place


class Balance(NamedTuple):
    """What somebody has of something."""

    available: int
    held: int


class Operation(NamedTuple):
    """Something that was done."""

    id: int
    kind: str
    user: str
    asset: str
    amount: int
    order_id: int | None
    key: str | None
    available: int | None
    held: int | None
    version: int | None


class Order(NamedTuple):
    """Something that is wanted or offered."""

    id: int
    side: str
    user: str
    item: int
    payment_id: int
    deal_id: int | None
    price: int
    commission: int
    token: str
    status: str


class Deal(NamedTuple):
    """Two orders that met."""

    id: int
    item: int
    price: int
    operation_id: int
    buy_id: int
    sell_id: int
    buyer: str
    seller: str
    buyer_commission: int
    seller_commission: int


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that is written down."""

    operations: dict[int, Operation]
    transfers: dict[int, list[Transfer]]  # by operation
    balances: dict[Owned, Balance]
    orders: dict[int, Order]
    deals: list[Deal]
    arrivals: int  # orders that wait for a matcher


async def read(connection: Connection) -> Books:
    """Read everything, in the transaction that the connection is in or in one of its own."""
    async with connection.transaction(
        isolation=None if connection.is_in_transaction() else "repeatable_read"
    ):
        operations = await connection.fetch(
            "SELECT id, kind, user_id, asset, amount, order_id, key, available, held, version "
            "FROM onward.operations"
        )
        orders = await connection.fetch(
            "SELECT id, side, user_id, item_id, payment_id, deal_id, price, commission, "
            "token::text, status FROM onward.orders"
        )
        deals = await connection.fetch(
            "SELECT id, item_id, price, operation_id, buy_order_id, sell_order_id, buyer, seller, "
            "buyer_commission, seller_commission FROM onward.deals"
        )
        return Books(
            operations={row["id"]: Operation(*row) for row in operations},
            transfers=await _transfers(connection),
            balances=await balances(connection),
            orders={row["id"]: Order(*row) for row in orders},
            deals=[Deal(*row) for row in deals],
            arrivals=await connection.fetchval("SELECT count(*) FROM onward.arrivals"),
        )


async def balances(connection: Connection) -> dict[Owned, Balance]:
    """Return what the bank says that everybody has: what is added up already, and what is not."""
    found: dict[Owned, Balance] = {}
    for table in ("accounts", "account_changes"):
        rows = await connection.fetch(
            f"SELECT user_id, asset, available, held FROM onward.{table}"  # noqa: S608 - ours
        )
        for user, asset, available, held in rows:
            before = found.get((user, asset), Balance(0, 0))
            found[user, asset] = Balance(before.available + available, before.held + held)
    return found


async def _transfers(connection: Connection) -> dict[int, list[Transfer]]:
    found = defaultdict(list)
    for operation_id, asset, amount, *places in await connection.fetch(
        "SELECT operation_id, asset, amount, from_part, from_user, to_part, to_user "
        "FROM onward.transfers"
    ):
        source, target = (places[0], places[1]), (places[2], places[3])
        found[operation_id].append(Transfer(asset, amount, source, target))
    return dict(found)
