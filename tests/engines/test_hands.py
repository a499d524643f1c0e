"""What one process of a Celery worker does with a message, in this process and without a broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from onward.engines.celery import hands as module
from onward.engines.celery import names
from onward.engines.celery.hands import Hands, Message
from onward.engines.pace import Pace
from onward.errors import ServerUnreachable
from onward.store import executions, jobs
from onward.store.host_locks import HostLocks
from onward.wiring import Onward
from tests.engines.ground import until
from tests.fleet.conftest import *  # noqa: F403 - its fixtures
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_drain import Slow, until_begun
from tests.fleet.test_engine import BOUND_S, QUICK

PACE = replace(QUICK, lost_after_s=0.1, reap_s=0.02)


class Remembered:
    """A broker that only remembers what was sent."""

    def __init__(self, waiting: int | None = 0) -> None:
        self.sent: list[tuple[str, object]] = []
        self._waiting = waiting

    def send(self, task: str, messages: Sequence[Message]) -> None:
        self.sent += [(task, message.argument) for message in messages]

    def waiting(self) -> int | None:
        return self._waiting


@asynccontextmanager
async def living(
    opened: Onward, channel: Slow, broker: Remembered | None = None, pace: Pace = PACE
) -> AsyncIterator[Hands]:
    locks, ready = HostLocks(opened.database_url), asyncio.Event()
    found = Hands(
        opened.commands.pool,
        locks,
        {"simulated": channel},
        broker=broker or Remembered(),
        chance=random.Random(1).random,
        pace=pace,
    )
    work = asyncio.create_task(found.live(ready.set))
    await asyncio.wait_for(ready.wait(), BOUND_S)
    try:
        yield found
    finally:
        found.leave()
        await asyncio.wait_for(work, BOUND_S)
        await locks.close()


async def test_a_claim_whose_answer_was_lost_is_handed_back_and_costs_nothing(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, monkeypatch: pytest.MonkeyPatch
):
    pool, channel, claim = opened.commands.pool, Slow(), executions.claim
    channel.go.set()
    await make_hosts(3)
    job = await submit()
    ids = await jobs.plan(pool, job.job_id, batch=10)

    async def claim_and_lose(*given: object, **named: object) -> None:
        monkeypatch.setattr(executions, "claim", claim)
        await claim(*given, **named)  # type: ignore[arg-type]  # handed on
        raise ServerUnreachable("PostgreSQL did not answer")

    async with living(opened, channel) as found:
        monkeypatch.setattr(executions, "claim", claim_and_lose)
        with pytest.raises(ServerUnreachable):
            await found.take(ids)
        assert await jobs.counts(pool, job.job_id) == {"RUNNING": 3}

        async def handed_back() -> bool:
            return await jobs.counts(pool, job.job_id) == {"QUEUED": 3}

        await until(handed_back)
        await found.take(ids)

        async def ended() -> bool:
            return await jobs.counts(pool, job.job_id) == {"SUCCESS": 3}

        await until(ended)
    rows = await pool.fetch("SELECT attempt, retries FROM executions")
    assert [tuple(row) for row in rows] == [(1, 0)] * 3


async def test_what_finds_no_room_in_time_is_left_to_others(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, monkeypatch: pytest.MonkeyPatch
):
    pool, channel = opened.commands.pool, Slow()
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    await make_hosts(3)
    job = await submit()
    ids = await jobs.plan(pool, job.job_id, batch=10)
    async with living(opened, channel, pace=replace(PACE, capacity=2)) as found:
        await found.take(ids)
        await until_begun(channel, 2)
        assert await jobs.counts(pool, job.job_id) == {"RUNNING": 2, "QUEUED": 1}
        channel.go.set()


@pytest.mark.parametrize(("waiting", "again"), [(0, True), (20, True), (21, False), (None, False)])
async def test_what_is_due_is_told_again_unless_enough_waits_already(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, *, waiting: int | None, again: bool
):
    """Or nobody knows what waits, because the broker is away."""
    pool, broker = opened.commands.pool, Remembered(waiting)
    await make_hosts(2)
    planned, unplanned = await submit("a"), await submit("b")
    ids = await jobs.plan(pool, planned.job_id, batch=10)
    # Somebody else has just looked, so that it does not do so by itself.
    await pool.execute(
        "INSERT INTO ticks VALUES ($1, now()), ($2, now())", names.RECONCILE, names.PUBLISH_OUTBOX
    )
    async with living(opened, Slow(), broker) as found:
        await found.reconcile(every_s=0)
    told = [(names.PLAN_JOB, unplanned.job_id), (names.RUN_SHARD, sorted(ids))]
    assert broker.sent == (told if again else [])
