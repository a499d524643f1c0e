"""PgQueuer: PostgreSQL through asyncpg, jobs in batches.

Its own measurement runs five queue managers in one process, each with a connection and batches of
ten, on uvloop. Its pages on deployment run one manager in each of several processes, and those on
tuning advise its settings for autovacuum and, where jobs are short, larger batches, such as 25.
Tables are logged, which is its default: nothing is lost in a crash.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from itertools import product
from tempfile import TemporaryDirectory
from typing import Final

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from onward.bench.peers.consumers import (
    PATIENCE_S,
    Setup,
    leave_times,
    steady_rate,
    until_left,
    wait_for_word,
    workers,
)
from onward.embedded import Servers
from onward.errors import InvariantBroken
from onward.scratch import new_database

_ENTRYPOINT: Final = "noop"
_AT_ONCE: Final = 5_000  # jobs in one call that fills the queue
_DONE: Final = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"


def _setup(processes: int, managers: int, batch: int) -> Setup:
    shown = f"processes {processes}, managers {managers}, batch {batch}"
    return Setup(shown, processes, (str(managers), str(batch)))


SETUPS: Final = tuple(_setup(*choice) for choice in product((1, 2), (1, 5), (10, 25)))


async def rate(servers: Servers, jobs: int, setup: Setup) -> float:
    """No-op jobs a second."""
    url = await new_database(servers.database_url, "bench_pgqueuer")
    connection = await asyncpg.connect(url)
    try:
        queries = Queries(AsyncpgDriver(connection))
        await _fill(queries, jobs)
        with TemporaryDirectory() as folder:
            async with asyncio.timeout(PATIENCE_S):
                arguments = (url, folder, *setup.arguments)
                async with workers(__name__, *arguments, count=setup.processes) as started:
                    await until_left(started, b"go\n")
            done, left = await connection.fetchval(_DONE), await queries.queue_size()
            if done != jobs or left:
                raise InvariantBroken(f"PgQueuer says that {done:,} of {jobs:,} jobs succeeded")
            return steady_rate(folder, jobs)
    finally:
        await connection.close()


async def _fill(queries: Queries, jobs: int) -> None:
    await queries.install()
    await queries.optimize_autovacuum()
    for first in range(0, jobs, _AT_ONCE):
        count = min(_AT_ONCE, jobs - first)
        await queries.enqueue([_ENTRYPOINT] * count, [None] * count, [0] * count)


async def _manager(url: str, times: array[float]) -> PgQueuer:
    manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @manager.entrypoint(_ENTRYPOINT)
    async def noop(_: Job) -> None:
        times.append(time.perf_counter())

    return manager


async def _work(url: str, folder: str, managers: str, batch: str) -> None:
    times = array("d")
    working = [await _manager(url, times) for _ in range(int(managers))]
    wait_for_word()
    await asyncio.gather(
        *(each.run(batch_size=int(batch), mode=QueueExecutionMode.drain) for each in working)
    )
    leave_times(folder, times)


if __name__ == "__main__":
    uvloop.run(_work(*sys.argv[1:]))
