"""The matchers of a process, and whoever adds up what they leave."""

from __future__ import annotations

import asyncio

from onward.settings import Settings
from onward.store import database
from onward.trading.market import Market
from onward.trading.matching import add_up_until, match_until


async def trade(
    market: Market, database_url: str, settings: Settings, stopping: asyncio.Event
) -> None:
    """Match what arrives until `stopping` is set."""
    if not settings.matchers:
        return
    # Connections of their own: no crowd of callers must keep orders waiting.
    async with (
        database.pooled(database_url, size=settings.matchers + 1) as pool,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(add_up_until(stopping, pool))
        for _ in range(settings.matchers):
            group.create_task(match_until(stopping, pool, arrived=market.arrived))
