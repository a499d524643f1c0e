"""The engine of a process, with connections of its own."""

from __future__ import annotations

import asyncio
import random

from onward.channels.agent.hub import Hub
from onward.engines.embedded import Engine
from onward.engines.equipment import Simulated, pace
from onward.engines.ways import ways
from onward.settings import Settings
from onward.store import database
from onward.store.host_locks import HostLocks


async def work(
    database_url: str,
    settings: Settings,
    simulated: Simulated,
    stopping: asyncio.Event,
    hub: Hub | None = None,
) -> None:
    """Plan, claim, deliver, report and rescue until `stopping` is set and what runs has ended.

    `hub` has the agents that are connected to this process, if any can be.
    """
    # Connections of its own: no crowd of callers must keep a worker from breathing.
    locks = HostLocks(database_url)
    async with (
        database.pooled(database_url, size=settings.pool_size, walking=True) as pool,
        ways(settings, pool, simulated, hub) as found,
    ):
        try:
            chance = random.SystemRandom().random
            await Engine(pool, locks, found, chance=chance, pace=pace(settings)).run(stopping)
        finally:
            await locks.close()
