"""The engine of a process, with connections of its own."""

from __future__ import annotations

import asyncio
import random

from onward.engines.embedded import Engine
from onward.engines.equipment import Simulated, channels, pace
from onward.settings import Settings
from onward.store import database
from onward.store.host_locks import HostLocks


async def work(
    database_url: str, settings: Settings, simulated: Simulated, stopping: asyncio.Event
) -> None:
    """Plan, claim, deliver, report and rescue until `stopping` is set and what runs has ended."""
    # Connections of its own: no crowd of callers must keep a worker from breathing.
    locks = HostLocks(database_url)
    async with (
        database.pooled(database_url, size=settings.pool_size, walking=True) as pool,
        channels(simulated) as found,
    ):
        try:
            chance = random.SystemRandom().random
            await Engine(pool, locks, found, chance=chance, pace=pace(settings)).run(stopping)
        finally:
            await locks.close()
