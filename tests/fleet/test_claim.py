"""Claims: one exclusive run a host, whoever claims."""

from __future__ import annotations

import asyncio

from onward.core.verdicts import TransitionResult
from onward.store import executions, jobs, workers
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, Claimed, ExecutionEvent
from tests.fleet.conftest import MakeHosts, Submit

HOSTS = 20
BOUND_S = 30.0


async def claim_all(pool: Pool, worker_id: int) -> list[Claimed]:
    found = await executions.candidates(pool, after_host=0, limit=1_000)
    claimed, _ = await executions.claim(
        pool, [c.execution_id for c in found], worker_id=worker_id, grace_s=1
    )
    return claimed


async def test_the_plan_stays_within_the_limit_of_the_job(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    """Two planners at once: together they queue what the job may have, and no more."""
    await make_hosts(HOSTS)
    job = await submit(max_concurrency=7)
    planned = await asyncio.gather(*(jobs.plan(pool, job.job_id, batch=5) for _ in range(6)))
    assert sum(map(len, planned)) == 7
    assert await jobs.counts(pool, job.job_id) == {"NEW": HOSTS - 7, "QUEUED": 7}


async def test_two_jobs_on_the_same_hosts_run_one_after_the_other(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(HOSTS)
    first, second = await submit("a"), await submit("b")
    for job in (first, second):
        await jobs.plan(pool, job.job_id, batch=100)
    worker = await workers.register(pool, "w")

    claimed = await claim_all(pool, worker)

    assert len(claimed) == HOSTS
    assert await jobs.counts(pool, first.job_id) == {"RUNNING": HOSTS}
    assert await jobs.counts(pool, second.job_id) == {"QUEUED": HOSTS}
    assert await claim_all(pool, worker) == []


async def test_commands_that_may_share_a_host_do(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(2)
    for external_id in ("a", "b"):
        await jobs.plan(pool, (await submit(external_id, "look")).job_id, batch=100)
    worker = await workers.register(pool, "w")
    assert len(await claim_all(pool, worker)) == 2
    assert len(await claim_all(pool, worker)) == 2


async def test_many_claimers_share_the_work_and_nobody_gets_what_another_has(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(HOSTS)
    await jobs.plan(pool, (await submit()).job_id, batch=100)
    ids = [await workers.register(pool, f"w{n}") for n in range(8)]
    claims = await asyncio.gather(*(claim_all(pool, worker) for worker in ids))
    got = [claimed.execution_id for claim in claims for claimed in claim]
    assert len(got) == len(set(got)) == HOSTS


async def test_a_claim_does_not_wait_for_what_another_holds(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(3)
    await jobs.plan(pool, (await submit()).job_id, batch=100)
    worker = await workers.register(pool, "w")
    async with pool.acquire() as holder, holder.transaction():
        held = await holder.fetchval("SELECT id FROM executions ORDER BY id LIMIT 1 FOR UPDATE")
        async with asyncio.timeout(BOUND_S):
            claimed = await claim_all(pool, worker)
    assert len(claimed) == 2
    assert held not in {c.execution_id for c in claimed}
    assert [c.execution_id for c in await claim_all(pool, worker)] == [held]


async def test_a_blocked_command_is_blocked_with_the_rule_that_did_it(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    one, two = await make_hosts(2)
    await pool.execute(
        "INSERT INTO host_command_blocks (host_id, command_type, reason, owner, expires_at) "
        "VALUES ($1, 'noop', 'disk is full', 'ann', NULL), ($2, 'noop', 'over', 'ann', now())",
        one,
        two,
    )
    job = await submit()
    await jobs.plan(pool, job.job_id, batch=100)
    claimed = await claim_all(pool, await workers.register(pool, "w"))
    assert [c.host_id for c in claimed] == [two]
    error = await pool.fetchval("SELECT error FROM executions WHERE status = 'BLOCKED'")
    assert error == "blocked for noop by ann: disk is full"
    assert await jobs.counts(pool, job.job_id) == {"BLOCKED": 1, "RUNNING": 1}


async def test_the_runs_of_a_dead_worker_are_queued_again_and_its_late_word_is_stale(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(3)
    job = await submit()
    await jobs.plan(pool, job.job_id, batch=100)
    dead, alive = await workers.register(pool, "dead"), await workers.register(pool, "alive")
    lost = await claim_all(pool, dead)
    await workers.leave(pool, dead)

    rescued = await executions.rescue(pool, lost_after_s=60, limit=100)

    assert sorted(rescued) == sorted(claimed.execution_id for claimed in lost)
    early = [ExecutionEvent(c.execution_id, "succeed", c.epoch) for c in lost]
    answers = await EXECUTIONS.record_all(pool, early, batch_max=100)
    assert {answer.result for answer in answers} == {TransitionResult.STALE_EPOCH}
    again = {claimed.execution_id: claimed for claimed in await claim_all(pool, alive)}
    assert all(again[c.execution_id].epoch > c.epoch for c in lost)
    assert all(again[c.execution_id].attempt == 2 for c in lost)
    assert all(again[c.execution_id].retries == 0 for c in lost)  # it costs no retry
    late = [ExecutionEvent(c.execution_id, "succeed", c.epoch) for c in lost]
    answers = await EXECUTIONS.record_all(pool, late, batch_max=100)
    assert {answer.result for answer in answers} == {TransitionResult.STALE_EPOCH}
    assert await jobs.counts(pool, job.job_id) == {"RUNNING": 3}


async def test_a_worker_that_breathes_keeps_its_runs(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(3)
    await jobs.plan(pool, (await submit()).job_id, batch=100)
    worker = await workers.register(pool, "w")
    await claim_all(pool, worker)
    await workers.beat(pool, worker)
    assert await executions.rescue(pool, lost_after_s=60, limit=100) == []


async def test_a_paused_job_is_not_claimed(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(3)
    await jobs.plan(pool, (await submit()).job_id, batch=100)
    worker = await workers.register(pool, "w")
    await pool.execute("UPDATE jobs SET paused_at = now()")
    assert await claim_all(pool, worker) == []
    await pool.execute("UPDATE jobs SET paused_at = NULL")
    assert len(await claim_all(pool, worker)) == 3


async def test_summing_up_the_counters_changes_none_of_them(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(HOSTS)
    job = await submit()
    for _ in range(HOSTS):
        await jobs.plan(pool, job.job_id, batch=1)
    before = await jobs.counts(pool, job.job_id)
    await asyncio.gather(*(jobs.sum_counts(pool, above=3) for _ in range(4)))
    assert await jobs.counts(pool, job.job_id) == before == {"QUEUED": HOSTS}
    assert await pool.fetchval("SELECT count(*) FROM job_counts") < HOSTS
