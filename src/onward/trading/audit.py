"""Whether the books are right: everything that can be derived is derived again, in one snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from onward.store import orders
from onward.store.database import Connection, Pool, answering
from onward.store.ledger import SQL

_SHOWN: Final = 10  # of each kind of fault


@dataclass(frozen=True, slots=True)
class Audit:
    """What was looked at, and what was found wrong."""

    operations: int
    accounts: int
    deals: int
    open_orders: int
    totals: dict[str, dict[str, int]]  # by asset, how much is in which part
    faults: tuple[str, ...]


async def audit(pool: Pool) -> Audit:
    """Derive balances, holds and deals from the ledger, and say where they differ."""
    with answering():
        async with (
            pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            counted = await connection.fetchrow(SQL["counted"])
            assert counted is not None  # noqa: S101 - counts always have a row
            totals: dict[str, dict[str, int]] = {}
            for asset, part, sum_ in await connection.fetch(SQL["totals"]):
                totals.setdefault(asset, {})[part] = sum_
            faults = [fault async for fault in _faults(connection)]
    faults += _unequal(totals)
    return Audit(**counted, totals=totals, faults=tuple(faults))


async def _faults(connection: Connection) -> AsyncIterator[str]:
    for user, asset, available, derived, held, derived_held in await connection.fetch(
        SQL["drift"], _SHOWN
    ):
        yield (
            f"{user} has {available} and {held} held of {asset}, "
            f"but the ledger says {derived} and {derived_held}"
        )
    for (operation_id,) in await connection.fetch(SQL["unbalanced"], _SHOWN):
        yield f"the entries of operation {operation_id} do not sum to zero, or there are none"
    for user, asset, held, wanted in await connection.fetch(SQL["unheld"], _SHOWN):
        yield f"{user} has {held} of {asset} held, but open orders take {wanted}"
    for (deal_id,) in await connection.fetch(SQL["wrong_deals"], _SHOWN):
        yield f"deal {deal_id} is not what its orders allow"
    for (order_id,) in await connection.fetch(SQL["wrong_orders"], _SHOWN):
        yield f"order {order_id} is not what its deal and its payment say"
    for (operation_id,) in await connection.fetch(SQL["wrong_payments"], _SHOWN):
        yield f"operation {operation_id} did not move what its deal says"
    for (operation_id,) in await connection.fetch(SQL["nowhere"], _SHOWN):
        yield f"operation {operation_id} moved something from or to a place that there is not"
    for (order_id,) in await connection.fetch(orders.SQL["misplaced"], _SHOWN):
        yield f"order {order_id} is open and not in the book, or in the book and not open"
    for buy, sell in await connection.fetch(orders.SQL["crossed"], _SHOWN):
        yield f"orders {buy} and {sell} could meet, and nobody looks at them"


def _unequal(totals: dict[str, dict[str, int]]) -> Iterator[str]:
    for asset, parts in totals.items():
        if sum(parts.values()):
            yield f"{asset}: all parts together are {sum(parts.values())}, not nothing"
