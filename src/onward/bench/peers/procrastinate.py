"""procrastinate: PostgreSQL through psycopg, one job a fetch.

Its pages advise asynchronous tasks with `concurrency=30`, a pool of as many connections and one
more where jobs are short, and several workers, each a process, for more throughput.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from tempfile import TemporaryDirectory
from typing import Final

from procrastinate import App, PsycopgConnector

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

_TASK: Final = "noop"
_DONE: Final = "SELECT count(*)::int AS n FROM procrastinate_jobs WHERE status = 'succeeded'"

SETUPS: Final = (
    Setup("processes 1, concurrency 30", 1, ("30",)),
    Setup("processes 2, concurrency 30", 2, ("30",)),
)


async def rate(servers: Servers, jobs: int, setup: Setup) -> float:
    """No-op jobs a second."""
    url = await new_database(servers.database_url, "bench_procrastinate")
    app = _app(url, array("d"), connections=1)
    with TemporaryDirectory() as folder:
        async with app.open_async(), asyncio.timeout(PATIENCE_S):
            await app.schema_manager.apply_schema_async()
            await app.configure_task(_TASK).batch_defer_async(*({} for _ in range(jobs)))
            arguments = (url, folder, *setup.arguments)
            async with workers(__name__, *arguments, count=setup.processes) as started:
                await until_left(started, b"go\n")
            done = (await app.connector.execute_query_one_async(_DONE))["n"]
        if done != jobs:
            raise InvariantBroken(f"procrastinate says that {done:,} of {jobs:,} jobs succeeded")
        return steady_rate(folder, jobs)


def _app(url: str, times: array[float], *, connections: int) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=connections))

    @app.task(name=_TASK)
    async def noop() -> None:
        times.append(time.perf_counter())

    return app


async def _work(url: str, folder: str, concurrency: str) -> None:
    times = array("d")
    app = _app(url, times, connections=int(concurrency) + 1)
    async with app.open_async():
        wait_for_word()
        # It waits for no more jobs, as in its own measurement: it ends when the queue is empty.
        await app.run_worker_async(
            concurrency=int(concurrency), wait=False, install_signal_handlers=False
        )
    leave_times(folder, times)


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
