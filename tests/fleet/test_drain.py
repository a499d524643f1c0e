"""A worker that is asked to leave: what runs may end, what has not begun goes back untouched."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from onward.channels.base import Delivery, Output, Report
from onward.engines.embedded import Engine
from onward.store import executions
from onward.store.host_locks import HostLocks
from onward.wiring import Onward
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_engine import BOUND_S, QUICK


class Slow:
    """Hosts that run until they are let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()

    async def deliver(self, _delivery: Delivery, _output: Output) -> Report:
        self.begun += 1
        await self.go.wait()
        return Report(succeeded=True, exit_code=0)

    async def cancel(self, _delivery: Delivery) -> bool:
        return False


async def started(opened: Onward, channel: Slow, stopping: asyncio.Event, drain_s: float):
    locks = HostLocks(opened.database_url)
    pace = replace(QUICK, drain_s=drain_s)
    chance = random.Random(1).random
    engine = Engine(opened.commands.pool, locks, {"simulated": channel}, chance=chance, pace=pace)

    async def work() -> None:
        await engine.run(stopping)
        await locks.close()

    return asyncio.create_task(work())


async def until_begun(channel: Slow, count: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while channel.begun < count:  # noqa: ASYNC110 - several events, and any may be the last
            await asyncio.sleep(0.005)


async def test_what_runs_ends_before_the_worker_leaves(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool, channel, stopping = opened.commands.pool, Slow(), asyncio.Event()
    await make_hosts(3)
    await submit()
    work = await started(opened, channel, stopping, drain_s=BOUND_S)
    await until_begun(channel, 3)
    stopping.set()
    channel.go.set()
    await asyncio.wait_for(work, BOUND_S)
    rows = await pool.fetch("SELECT status, attempt FROM executions")
    assert [tuple(row) for row in rows] == [("SUCCESS", 1)] * 3
    assert await pool.fetchval("SELECT stopped_at IS NOT NULL FROM workers")


async def test_what_was_claimed_and_not_begun_goes_back_and_costs_no_attempt(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, monkeypatch
):
    """The word to stop comes while the claim is on its way back from PostgreSQL."""
    pool, channel, stopping = opened.commands.pool, Slow(), asyncio.Event()
    claim = executions.claim

    async def claim_and_stop(*args, **kwargs):
        answer = await claim(*args, **kwargs)
        stopping.set()
        return answer

    monkeypatch.setattr(executions, "claim", claim_and_stop)
    await make_hosts(3)
    await submit()
    await asyncio.wait_for(await started(opened, channel, stopping, drain_s=1), BOUND_S)
    assert channel.begun == 0
    rows = await pool.fetch("SELECT status, attempt, retries, cause FROM executions")
    assert [tuple(row) for row in rows] == [("QUEUED", 0, 0, "HANDED_BACK")] * 3
    assert await pool.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_what_does_not_end_in_time_is_rescued_by_the_next_worker(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool, stuck, stopping = opened.commands.pool, Slow(), asyncio.Event()
    await make_hosts(2)
    await submit()
    work = await started(opened, stuck, stopping, drain_s=0.05)
    await until_begun(stuck, 2)
    stopping.set()
    await asyncio.wait_for(work, BOUND_S)

    healthy, stopping = Slow(), asyncio.Event()
    healthy.go.set()
    work = await started(opened, healthy, stopping, drain_s=BOUND_S)
    await until_begun(healthy, 2)
    stopping.set()
    await asyncio.wait_for(work, BOUND_S)
    rows = await pool.fetch("SELECT status, attempt, retries FROM executions")
    assert [tuple(row) for row in rows] == [("SUCCESS", 2, 0)] * 2
