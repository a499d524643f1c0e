"""Celery on Valkey, in whichever of its pools is fastest.

Its pages advise as many pool processes or threads as there are processors, a large prefetch where
tasks are short, such as 128, no results where nobody reads them, and to try several worker
instances. Valkey keeps nothing on disk, which is kind: all others commit durably.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from array import array
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from celery import Celery, signals
from redis.asyncio import Redis

from onward.bench.peers.consumers import (
    PATIENCE_S,
    Setup,
    leave_times,
    say_ready,
    steady_rate,
    until_left,
    workers,
)
from onward.embedded import Servers
from onward.errors import InvariantBroken

_TASK: Final = "noop"
_STAGED: Final = "staged"
_QUEUE: Final = "celery"
_UNDER_WAY: Final = "unacked"
_PREFETCH: Final = 128
_GREEN: Final = 100  # green threads; its pages have figures of 100 to 1000
_LOOK_S: Final = 0.05


def _setup(pool: str, workers: int, concurrency: int) -> Setup:
    shown = f"{pool}, workers {workers}, concurrency {concurrency}"
    return Setup(shown, workers, (pool, str(concurrency)))


def _setups() -> tuple[Setup, ...]:
    pools = {"prefork": os.cpu_count() or 1, "threads": os.cpu_count() or 1, "solo": 1}
    pools |= {pool: _GREEN for pool in ("gevent", "eventlet") if find_spec(pool)}
    return tuple(_setup(pool, workers, pools[pool]) for pool in pools for workers in (1, 2))


SETUPS: Final = _setups()


async def rate(servers: Servers, jobs: int, setup: Setup) -> float:
    """No-op tasks a second."""
    if servers.redis_url is None:
        raise InvariantBroken("Celery is to be measured, and there is no Valkey")
    broker, redis = _broker(servers.redis_url), Redis.from_url(servers.redis_url)
    try:
        await redis.flushall()
        await asyncio.to_thread(_fill, broker, jobs)
        with TemporaryDirectory() as folder:
            async with asyncio.timeout(PATIENCE_S):
                arguments = (broker, folder, *setup.arguments)
                async with workers(__name__, *arguments, count=setup.processes) as started:
                    await _until_empty(redis)
                    for worker in started:
                        worker.terminate()
                    await until_left(started)
            return steady_rate(folder, jobs)
    finally:
        await redis.aclose()


def _broker(redis_url: str) -> str:
    parts = urlsplit(redis_url)
    return f"redis+socket://{parts.path}?virtual_host=0" if parts.scheme == "unix" else redis_url


def _fill(broker: str, jobs: int) -> None:
    """Put the tasks where no worker looks, so that all of them begin on a full queue."""
    app = Celery("bench", broker=broker)
    with app.producer_or_acquire() as producer:
        for _ in range(jobs):
            app.send_task(_TASK, queue=_STAGED, producer=producer, ignore_result=True)


async def _until_empty(redis: Redis) -> None:
    await redis.rename(_STAGED, _QUEUE)
    # A worker that is then asked to leave finishes what it has begun.
    while await redis.llen(_QUEUE) or await redis.hlen(_UNDER_WAY):  # noqa: ASYNC110 - no event
        await asyncio.sleep(_LOOK_S)


def _app(broker: str, times: array[float]) -> Any:  # noqa: ANN401 - Celery has no types
    app = Celery("bench", broker=broker)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=_PREFETCH)

    @app.task(name=_TASK)
    def noop() -> None:
        times.append(time.perf_counter())

    return app


def _work(broker: str, folder: str, pool: str, concurrency: str) -> None:
    times = array("d")

    def leave(**_: object) -> None:
        leave_times(folder, times)

    signals.worker_ready.connect(lambda **_: say_ready(), weak=False)
    # Tasks run in the children of this process, or in this process itself.
    ending = signals.worker_process_shutdown if pool == "prefork" else signals.worker_shutdown
    ending.connect(leave, weak=False)
    _app(broker, times).worker_main(
        [
            "worker",
            *(f"--pool={pool}", f"--concurrency={concurrency}", f"--hostname={os.getpid()}@bench"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            "--loglevel=ERROR",
        ]
    )


if __name__ == "__main__":
    _work(*sys.argv[1:])
