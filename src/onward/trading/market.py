"""What is done at the market: orders are placed and withdrawn, and those who match are told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from onward.core.verdicts import Transition
from onward.store import orders
from onward.store.database import Pool
from onward.store.ledger import Outcome, Posts
from onward.store.orders import NewOrder, OrderState, Placed, Side
from onward.trading.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Market:
    """The market as one process sees it."""

    pool: Pool
    tokens: Tokens
    posts: Posts
    currencies: tuple[str, ...]  # the first one is meant when none is named
    commission_bp: int  # hundredths of a percent, of either side
    arrived: asyncio.Event = field(default_factory=asyncio.Event)  # a hint for matchers

    async def place(
        self, user: str, side: Side, wanted: tuple[int, str, int], *, token: UUID, key: str | None
    ) -> Placed:
        """Place an order for an item, in a currency, at a price, after the last one's `token`."""
        order = NewOrder(side, *wanted, self.commission_bp)
        placed = await orders.place(self.pool, user, order, token=token, new_token=uuid4(), key=key)
        # What a repeat is told was the present one then, and may not be by now.
        if placed.token is not None and placed.outcome is not Outcome.REPEATED:
            await self.tokens.remember(user, side, placed.token)
        if placed.outcome is Outcome.OK:
            self.arrived.set()
        return placed

    async def cancel(self, user: str, side: Side, order_id: int) -> Transition[OrderState] | None:
        """Withdraw a user's own order; nothing if there is none."""
        return await orders.cancel(self.pool, user, side, order_id, source=user)
