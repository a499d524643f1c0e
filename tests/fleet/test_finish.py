"""A job has finished once nothing of it is open any more, and it is noted when that was."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import onward
from onward.core.retry import Backoff
from onward.fleet.reap import reap
from onward.store import jobs, overview
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, ExecutionEvent
from tests.conftest import settings_for
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_retry import run, say
from tests.present import pause
from tests.proof_table import Tried


async def reaped(pool: Pool) -> None:
    await reap(pool, lost_after_s=60, backoff=Backoff(1.0, 1.0), chance=lambda: 0.5)


async def finished_at(pool: Pool, job_id: int) -> datetime | None:
    found: datetime | None = await pool.fetchval(
        "SELECT finished_at FROM jobs WHERE id = $1", job_id
    )
    return found


async def last_end(pool: Pool, job_id: int) -> datetime:
    found: datetime = await pool.fetchval(
        "SELECT max(finished_at) FROM executions WHERE job_id = $1", job_id
    )
    return found


async def test_a_job_finishes_when_the_last_of_it_ends_and_not_before(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(4)
    job = await submit()
    await reaped(pool)
    assert await finished_at(pool, job.job_id) is None, "it has not begun"
    claimed = await run(pool, job)
    await say(pool, claimed[:3], "succeed", "fail", "timeout")
    await reaped(pool)
    assert await finished_at(pool, job.job_id) is None, "one of it runs"
    await say(pool, claimed[3:], "retry")
    await reaped(pool)
    assert await finished_at(pool, job.job_id) is None, "one of it waits for another attempt"
    (again,) = await run(pool, job)
    await say(pool, [again], "succeed")
    await reaped(pool)
    assert await finished_at(pool, job.job_id) == await last_end(pool, job.job_id)


async def test_the_end_is_when_it_was_however_late_somebody_looks(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    """Also if the counters were summed up in between."""
    await make_hosts(3)
    job = await submit()
    claimed = await run(pool, job)
    began = datetime.now(UTC)
    for number, each in enumerate(claimed):
        event = ExecutionEvent(each.execution_id, "succeed", each.epoch)
        now = began + timedelta(hours=number)
        await EXECUTIONS.record_all(pool, [event], batch_max=1, now=now)
        await jobs.sum_counts(pool, above=1)
    await reaped(pool)
    assert await finished_at(pool, job.job_id) == began + timedelta(hours=2)


async def test_a_job_that_was_rejected_or_cancelled_finishes_as_well(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(2)
    rejected, cancelled, waiting, stopped = [
        await submit(name, kind)
        for name, kind in (
            ("rejected", "deploy"),
            ("cancelled", "deploy"),
            ("waiting", "deploy"),
            ("stopped", "noop"),
        )
    ]
    await jobs.decide(pool, rejected.job_id, version=1, state="REJECTED", by="bob", reason="")
    await jobs.cancel(pool, cancelled.job_id, by="ann")
    running = await run(pool, stopped)
    await jobs.cancel(pool, stopped.job_id, by="ann")
    await reaped(pool)
    for job in (rejected, cancelled):
        assert await finished_at(pool, job.job_id) == await last_end(pool, job.job_id)
    assert await finished_at(pool, waiting.job_id) is None
    assert await finished_at(pool, stopped.job_id) is None, "its hosts have not stopped yet"
    await say(pool, running, "cancel", "cancel")
    await reaped(pool)
    assert await finished_at(pool, stopped.job_id) == await last_end(pool, stopped.job_id)


async def test_what_ends_while_its_job_is_paused_ends_it(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit()
    claimed = await run(pool, job)
    await pause(pool, job.job_id, paused=True)
    await reaped(pool)
    assert await finished_at(pool, job.job_id) is None
    await say(pool, claimed, "succeed")
    await reaped(pool)
    assert await finished_at(pool, job.job_id) is not None


async def test_finishing_is_no_change_of_the_plan(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit()
    await say(pool, await run(pool, job), "succeed")
    before = await pool.fetchrow("SELECT version, updated_at FROM jobs")
    await reaped(pool)
    assert await pool.fetchrow("SELECT version, updated_at FROM jobs") == before
    noted = await finished_at(pool, job.job_id)
    await reaped(pool)
    assert await finished_at(pool, job.job_id) == noted


async def test_a_job_that_somebody_has_locked_is_not_waited_for(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    first, second = await submit("first"), await submit("second")
    for job in (first, second):
        await say(pool, await run(pool, job), "succeed")
    async with pool.acquire() as other, other.transaction():
        await other.execute("SELECT FROM jobs WHERE id = $1 FOR NO KEY UPDATE", first.job_id)
        async with asyncio.timeout(30):
            await jobs.finish(pool, limit=10)
    assert await finished_at(pool, first.job_id) is None
    assert await finished_at(pool, second.job_id) is not None
    await jobs.finish(pool, limit=10)
    assert await finished_at(pool, first.job_id) is not None


async def test_the_counters_of_a_finished_job_are_one_row_a_status_and_the_same(
    pool: Pool, make_hosts: MakeHosts, submit: Submit, tried: Tried
):
    """Any number of reapers may finish it, and sum it up, at the same moment."""
    rounds = 5
    await make_hosts(12)
    for number in range(rounds):
        job = await submit(f"job {number}")
        claimed = await run(pool, job)
        for each in claimed:
            await say(pool, [each], "fail" if each.host_id % 3 == 0 else "succeed")
        expected = await jobs.counts(pool, job.job_id)
        await asyncio.gather(
            *(jobs.finish(pool, limit=10) for _ in range(4)),
            *(jobs.sum_counts(pool, above=1) for _ in range(4)),
        )
        assert await jobs.counts(pool, job.job_id) == expected == {"SUCCESS": 8, "FAILED": 4}
        assert await finished_at(pool, job.job_id) == await last_end(pool, job.job_id)
        await jobs.finish(pool, limit=10)
    tried("jobs finished by four reapers at once", rounds)


async def test_the_counters_of_one_that_is_finished_alone_are_summed_up_for_good(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(12)
    job = await submit()
    for each in await run(pool, job):
        await say(pool, [each], "succeed")
    await jobs.finish(pool, limit=10)
    rows = await pool.fetch("SELECT status, n FROM job_counts")
    assert [tuple(row) for row in rows] == [("SUCCESS", 12)]


# Taken back, and as far as it was before the revision that brought it.
_BEFORE = """
    ALTER TABLE executions DROP COLUMN output;
    ALTER TABLE job_counts DROP COLUMN at;
    ALTER TABLE jobs DROP COLUMN finished_at;
    DROP INDEX jobs_requester;
    DROP INDEX jobs_type;
    DROP TABLE activity;
    UPDATE schema_revision SET version_num = '0007';
"""


async def test_jobs_of_former_versions_have_finished_when_they_did(
    pool: Pool, make_hosts: MakeHosts, submit: Submit, database_url: str
):
    await make_hosts(2)
    over, running, waiting = (
        await submit("over"),
        await submit("running", "look"),
        await submit("waiting", "deploy"),
    )
    await say(pool, await run(pool, over), "succeed", "fail")
    await say(pool, (await run(pool, running))[:1], "succeed")
    await pool.execute(_BEFORE)
    async with onward.open(settings_for(database_url)):
        pass
    assert await finished_at(pool, over.job_id) == await last_end(pool, over.job_id)
    assert await finished_at(pool, running.job_id) is None
    assert await finished_at(pool, waiting.job_id) is None


# How much ended in each minute


async def activity(pool: Pool) -> dict[str, int]:
    rows = await pool.fetch("SELECT status, sum(n)::integer AS n FROM activity GROUP BY status")
    return {row["status"]: row["n"] for row in rows}


async def test_every_end_is_counted_once_and_nothing_else_is(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(7)
    job = await submit()
    claimed = await run(pool, job)
    assert await activity(pool) == {}
    ends = ("succeed", "succeed", "fail", "timeout", "cancel", "retry", "retry")
    await say(pool, claimed, *ends)
    await say(pool, claimed[:4], "succeed", "fail", "succeed", "succeed")
    await jobs.cancel(pool, job.job_id, by="ann")
    expected = {"SUCCESS": 2, "FAILED": 1, "TIMEOUT": 1, "CANCELLED": 3}
    assert await activity(pool) == expected
    assert await jobs.counts(pool, job.job_id) == expected


async def test_what_ended_is_told_minute_by_minute(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(4)
    claimed = await run(pool, await submit())
    ends = ((0, "succeed"), (1, "fail"), (59, "succeed"), (60, "succeed"))
    # In one transaction, which is at one moment.
    async with pool.acquire() as connection, connection.transaction():
        now = await connection.fetchval("SELECT now()")
        for each, (minutes, event) in zip(claimed, ends, strict=True):
            said = ExecutionEvent(each.execution_id, event, each.epoch)
            await EXECUTIONS.record(connection, [said], now - timedelta(minutes=minutes))
        found = await overview.activity(connection)
    assert found == {"SUCCESS": [1, *[0] * 58, 1], "FAILED": [*[0] * 58, 1, 0]}


async def test_summing_up_what_ended_changes_none_of_it(pool: Pool):
    await pool.execute(
        "INSERT INTO activity SELECT date_trunc('minute', now()) - make_interval(mins => m), s, 1 "
        "FROM generate_series(0, 3) m, unnest(ARRAY['SUCCESS', 'FAILED']) s, generate_series(1, 9)"
    )
    before = await overview.activity(pool)
    await asyncio.gather(*(overview.sum_activity(pool, above=30) for _ in range(4)))
    await overview.sum_activity(pool, above=30)
    found = await overview.activity(pool)
    assert sorted(map(sum, found.values())) == sorted(map(sum, before.values())) == [36, 36]
    # Minutes that are over are summed up wholly, the present one if it has many changes.
    assert await pool.fetchval("SELECT count(*) FROM activity") <= 3 * 2 + 18
    await overview.sum_activity(pool, above=1)
    assert await pool.fetchval("SELECT count(*) FROM activity") == 4 * 2


@pytest.mark.parametrize(("age", "left"), [("47 hours", 1), ("49 hours", 0)])
async def test_what_ended_two_days_ago_is_forgotten(pool: Pool, age: str, left: int):
    await pool.execute(f"INSERT INTO activity VALUES (now() - interval '{age}', 'SUCCESS', 1)")  # noqa: S608 - ours
    await reaped(pool)
    assert await pool.fetchval("SELECT count(*) FROM activity") == left


async def test_no_move_of_an_execution_touches_an_index(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    """Each is a HOT update, also with what is kept of an execution for those who look."""
    await make_hosts(20)
    output = '{"exit_code": 0, "output": "00112233445566778899aabbccddeeff"}'
    async with pool.acquire() as connection, connection.transaction():
        claimed = await run(pool, await submit())
        events = [ExecutionEvent(c.execution_id, "succeed", c.epoch, "", output) for c in claimed]
        await EXECUTIONS.record(connection, events)
        row = await connection.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables "
            "WHERE relname = 'executions'"
        )
    assert tuple(row or ()) == (20, 20)
