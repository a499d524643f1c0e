"""Cancel is a request: what waits ends at once, what runs when its host confirms."""

from __future__ import annotations

import asyncio

import pytest

from onward.channels.base import Delivery, Output, Report
from onward.channels.simulated import Journal, Network, SimulatedChannel, SimulatedFleet
from onward.store import executions, jobs, workers
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, ExecutionEvent
from onward.store.jobs import Cancellation
from onward.wiring import Onward
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_claim import claim_all
from tests.fleet.test_engine import BOUND_S, QUICK, until_settled, working
from tests.present import pause


async def test_what_waits_is_cancelled_at_once_and_what_runs_is_not(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(5)
    job = await submit(max_concurrency=3)
    await jobs.plan(pool, job.job_id, batch=3)
    await pool.execute("UPDATE executions SET due_at = now() + interval '1 h' WHERE id % 5 = 0")
    claimed = await claim_all(pool, await workers.register(pool, "w"))

    assert await jobs.cancel(pool, job.job_id, by="ann") is Cancellation.CANCELLED

    assert await jobs.counts(pool, job.job_id) == {
        "CANCELLED": 5 - len(claimed),
        "RUNNING": len(claimed),
    }
    assert await jobs.cancel(pool, job.job_id, by="bob") is Cancellation.CANCELLED_BEFORE
    assert await pool.fetchval("SELECT cancelled_by FROM jobs") == "ann"


async def test_a_retry_of_a_cancelled_job_is_cancelled_by_the_reaper(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(2)
    job = await submit()
    await jobs.plan(pool, job.job_id, batch=3)
    claimed = await claim_all(pool, await workers.register(pool, "w"))
    await jobs.cancel(pool, job.job_id, by="ann")
    failed = [ExecutionEvent(c.execution_id, "retry", c.epoch) for c in claimed]
    await EXECUTIONS.record_all(pool, failed, batch_max=10)
    assert await executions.candidates(pool, after_host=0, limit=10) == []

    await jobs.finish_cancelling(pool, limit=10)

    assert await jobs.counts(pool, job.job_id) == {"CANCELLED": 2}
    assert not await pool.fetchval("SELECT cancel_open FROM jobs")


async def test_a_run_is_cancelled_when_its_host_confirms(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool = opened.commands.pool
    hosts = await make_hosts(4)
    journal = Journal()
    fleet = SimulatedFleet(hosts, journal=journal, command_types=None)
    job = await submit(params='{"sleep_s": 4.9}')

    async with working(opened, SimulatedChannel(fleet, Network.calm(1)), QUICK):
        async with asyncio.timeout(BOUND_S):
            while len(journal.effects) < len(hosts):  # noqa: ASYNC110 - until all have begun
                await asyncio.sleep(0.01)
        await jobs.cancel(pool, job.job_id, by="ann")
        await until_settled(pool)
    await fleet.aclose()

    assert await jobs.counts(pool, job.job_id) == {"CANCELLED": len(hosts)}
    assert {effect.what for effect in journal.effects} == {"started", "stopped"}


class Stoppable:
    """A host that can be stopped, and says so and what came of it in the order it is told."""

    def __init__(self, order: str) -> None:
        self.begun, self.asked, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._order = order

    async def deliver(self, _delivery: Delivery, _output: Output) -> Report:
        self.begun.set()
        await self.asked.wait()
        if self._order == "it never ends by itself":
            await asyncio.Event().wait()
        self.ended.set()
        done = self._order == "it had finished"
        return Report(succeeded=done, exit_code=0 if done else 143)

    async def cancel(self, _delivery: Delivery) -> bool:
        self.asked.set()
        if self._order == "its end is told first":
            await self.ended.wait()
            for _ in range(10):  # turns of the loop, in which its end could be reported
                await asyncio.sleep(0)
        return self._order != "it had finished"


@pytest.mark.parametrize(
    ("order", "status"),
    [
        ("its end is told first", "CANCELLED"),
        ("the stop is confirmed first", "CANCELLED"),
        ("it never ends by itself", "CANCELLED"),
        ("it had finished", "SUCCESS"),
    ],
)
async def test_a_run_that_was_stopped_ends_once_and_as_cancelled(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, *, order: str, status: str
):
    """What its host says of its end is only that it was stopped, and no retry follows from it."""
    pool, channel = opened.commands.pool, Stoppable(order)
    await make_hosts(1)
    await pool.execute("UPDATE command_types SET max_retries = 0 WHERE name = 'noop'")
    job = await submit()
    async with working(opened, channel, QUICK):
        await asyncio.wait_for(channel.begun.wait(), BOUND_S)
        await jobs.cancel(pool, job.job_id, by="ann")
        await until_settled(pool)
    assert await jobs.counts(pool, job.job_id) == {status: 1}
    told = await pool.fetch("SELECT event FROM execution_timeline ORDER BY seq")
    assert len(told) == 3  # planned, claimed, and one end


async def test_a_paused_job_waits_and_goes_on(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(2)
    job = await submit()
    assert await pause(pool, job.job_id, paused=True)
    assert not await pause(pool, job.job_id, paused=True)
    assert await jobs.plan(pool, job.job_id, batch=10) == []
    assert await pause(pool, job.job_id, paused=False)
    assert len(await jobs.plan(pool, job.job_id, batch=10)) == 2


class Twice:
    """A host that shares, and ends each attempt when it is told to."""

    def __init__(self) -> None:
        self.begun: dict[int, asyncio.Event] = {}  # epoch -> whether it may end
        self.asked: list[int] = []

    async def deliver(self, delivery: Delivery, _output: Output) -> Report:
        may_end = self.begun[delivery.epoch] = asyncio.Event()
        await may_end.wait()
        return Report(succeeded=False, exit_code=143)

    async def cancel(self, delivery: Delivery) -> bool:
        self.asked.append(delivery.epoch)
        self.begun[delivery.epoch].set()
        return True

    async def has_begun(self, attempts: int) -> list[int]:
        """Wait until so many attempts have begun; returns their epochs."""
        async with asyncio.timeout(BOUND_S):
            while len(self.begun) < attempts:  # noqa: ASYNC110 - a host has no event for it
                await asyncio.sleep(0.01)
        return list(self.begun)


async def test_an_attempt_is_stopped_although_the_former_one_has_just_ended_here(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    """A run that shares its host was taken from the worker, which has claimed it again."""
    pool, host = opened.commands.pool, Twice()
    await make_hosts(1)
    job = await submit(command_type="look")
    async with working(opened, host, QUICK):
        (first,) = await host.has_begun(1)
        execution_id = await pool.fetchval("SELECT id FROM executions")
        taken = ExecutionEvent(execution_id, "retry", first, "reaper")
        await EXECUTIONS.record_all(pool, [taken], batch_max=1)
        _, second = await host.has_begun(2)
        host.begun[first].set()
        async with asyncio.timeout(BOUND_S):
            while not await pool.fetchval(  # noqa: ASYNC110 - the tables have no event for it
                "SELECT count(*) FROM execution_timeline WHERE verdict = 'STALE_EPOCH'"
            ):
                await asyncio.sleep(0.01)
        await jobs.cancel(pool, job.job_id, by="ann")
        await until_settled(pool)
    assert host.asked == [second]
    assert await jobs.counts(pool, job.job_id) == {"CANCELLED": 1}
