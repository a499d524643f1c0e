"""A worker that is asked to leave, and one that cannot be asked any more."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence

import pytest

from onward.channels.simulated import What
from tests.engines.ground import Ground, descendants, ground, until
from tests.fleet.test_engine import replayed


@pytest.fixture(scope="module")
async def grounds(server: tuple[str, str]) -> AsyncIterator[Sequence[Ground]]:
    """A ground for each engine, on which tests start workers themselves: on all of them at once."""
    async with ground("embedded", server) as embedded, ground("celery", server) as celery:
        embedded.hurried = celery.hurried = True
        yield embedded, celery


async def test_what_runs_may_end_and_the_rest_is_left_to_others(grounds: Sequence[Ground]):
    await asyncio.gather(*map(leave_the_rest, grounds))


async def leave_the_rest(there: Ground) -> None:
    worker = await there.start()
    hosts = await there.hosts(4)
    first = await there.submit(hosts, sleep_s=4.0)  # longer than a worker takes to hear it
    rest = await there.submit(hosts)
    await there.until_begun(hosts, 4)

    async def queued() -> bool:
        return await there.counts(rest) == {"QUEUED": 4}

    await until(queued, of=there)
    assert await worker.leave() == 0

    assert await there.executions(first, "status", "attempt") == [("SUCCESS", 1)] * 4
    assert await there.executions(rest, "status", "attempt", "retries") == [("QUEUED", 0, 0)] * 4
    assert await there.pool.fetchval("SELECT bool_and(stopped_at IS NOT NULL) FROM workers")
    held = (
        "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
        "WHERE d.datname = current_database() AND locktype = 'advisory' "
        "AND objid = ANY ($1::oid[])"
    )
    assert await there.pool.fetchval(held, hosts.ids) == 0

    await there.start()
    assert await there.ended(rest) == {"SUCCESS": 4}


async def test_another_worker_takes_over_what_a_killed_one_had(grounds: Sequence[Ground]):
    await asyncio.gather(*map(take_over, grounds))


async def take_over(there: Ground) -> None:
    """The hosts still run it, and answer the second worker from their journal or run it anew."""
    while there.workers:
        there.workers.pop().end()
    worker, hosts = await there.start(), await there.hosts(6)
    job_id = await there.submit(hosts, sleep_s=1.5)
    await there.until_begun(hosts, 6)
    for pid in (worker.pid, *descendants(worker.pid)):
        os.kill(pid, signal.SIGKILL)
    await there.start()
    assert await there.ended(job_id) == {"SUCCESS": 6}
    assert there.promises_broken() == []
    assert await there.executions(job_id, "retries") == [(0,)] * 6
    assert there.count(hosts, What.FINISHED) == 6
    await replayed(there.pool)
