"""A worker in a process of its own: `python worker.py DATABASE_URL SOCKET SEED`."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

import onward
from onward.channels.simulated import RemoteSimulatedChannel
from onward.core.retry import Backoff
from onward.engines.embedded import Engine, Pace
from onward.settings import Settings
from onward.store.host_locks import HostLocks

PACE = Pace(
    capacity=100,
    claim_max=50,
    poll_s=0.02,
    reap_s=0.2,
    beat_s=0.2,
    lost_after_s=1.5,
    grace_s=1.0,
    backoff=Backoff(base_s=0.02, max_s=0.2),
)


async def main(url: str, path: str, seed: str) -> None:
    """Work until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    settings = Settings(database_url=url, require_durable=False, pool_size=4)
    locks = HostLocks(url)
    async with onward.open(settings) as opened, RemoteSimulatedChannel(Path(path)) as channel:
        engine = Engine(
            opened.commands.pool,
            locks,
            {"simulated": channel},
            chance=random.Random(seed).random,
            pace=PACE,
        )
        await engine.run(stopping)
    await locks.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
