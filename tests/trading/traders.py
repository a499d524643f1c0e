"""Users who trade: they have enough of everything, and know the tokens of their orders."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID, uuid4

from onward.store import orders
from onward.store.database import Pool
from onward.store.ledger import Outcome, item_asset
from onward.store.orders import NewOrder, Side
from tests.trading.reference_book import Wanted

CURRENCY: Final = "EUR"
SIDES: Final[tuple[Side, Side]] = ("buy", "sell")
PURSE: Final = 10**12  # of every asset, for every user

_ENDOW: Final = """
WITH account AS MATERIALIZED (
    SELECT user_id, asset, nextval('operations_id_seq') AS id
      FROM unnest($1::text[]) AS user_id CROSS JOIN unnest($2::text[]) AS asset
), posted AS (
    INSERT INTO operations (id, at, kind, user_id, asset, amount) OVERRIDING SYSTEM VALUE
    SELECT id, now(), 'deposit', user_id, asset, $3 FROM account
), transferred AS (
    INSERT INTO transfers (operation_id, n, asset, amount, from_part, to_part, to_user)
    SELECT id, 1, asset, $3, 'outside', 'available', user_id FROM account
)
INSERT INTO accounts (user_id, asset, available, version)
SELECT user_id, asset, $3, 2 FROM account
ON CONFLICT (user_id, asset) DO UPDATE
   SET available = accounts.available + excluded.available, version = accounts.version + 1
"""


async def endow(pool: Pool, users: Sequence[str], items: Iterable[int]) -> None:
    """Give everybody enough of everything."""
    assets = [CURRENCY, *map(item_asset, items)]
    await pool.execute(_ENDOW, users, assets, PURSE)


class Traders:
    """Some users on a pool, whom nobody else places orders for."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._tokens: dict[tuple[str, Side], UUID] = {}

    async def place(
        self, user: str, side: Side, price: int, *, item: int = 1, commission_bp: int = 25
    ) -> Wanted:
        """Place an order, which has to succeed."""
        if (user, side) not in self._tokens:
            self._tokens[user, side] = await orders.token_of(self._pool, user, side)
        placed = await orders.place(
            self._pool,
            user,
            NewOrder(side, item, CURRENCY, price, commission_bp),
            token=self._tokens[user, side],
            new_token=uuid4(),
            key=None,
        )
        assert placed.outcome is Outcome.OK
        assert placed.order_id is not None
        assert placed.token is not None
        self._tokens[user, side] = placed.token
        return Wanted(placed.order_id, user, side, item, price, commission_bp)

    async def place_any(
        self, chance: random.Random, users: Sequence[str], items: Sequence[int]
    ) -> Wanted:
        """Place an order that may well cross another, at a price that others have too."""
        side = chance.choice(SIDES)
        return await self.place(
            chance.choice(users),
            side,
            chance.randint(90, 110),
            item=chance.choice(items),
            commission_bp=chance.choice((0, 25, 333, 10_000)),
        )

    async def cancel(self, order: Wanted) -> bool:
        """Withdraw an order, and say whether it was still open."""
        answer = await orders.cancel(
            self._pool, order.user, order.side, order.id, source=order.user
        )
        assert answer is not None
        return answer.changed
