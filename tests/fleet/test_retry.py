"""A retry by hand: what went wrong runs again, once, and what was done after all does not."""

from __future__ import annotations

import asyncio

import pytest

from onward.core.lifecycles import EXECUTION
from onward.errors import InvalidInput, JobConflict
from onward.fleet.retry import Retried, RetryOutcome, retry_failed
from onward.store import jobs, workers
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, Claimed, ExecutionEvent
from onward.store.jobs import FAILED, RETRIED, Submitted
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_claim import claim_all


async def say(pool: Pool, claimed: list[Claimed], *events: str) -> None:
    """Report on what was claimed, one event each."""
    said = [
        ExecutionEvent(c.execution_id, event, c.epoch)
        for c, event in zip(claimed, events, strict=True)
    ]
    await EXECUTIONS.record_all(pool, said, batch_max=100)


async def run(pool: Pool, job: Submitted) -> list[Claimed]:
    await jobs.plan(pool, job.job_id, batch=100)
    return sorted(await claim_all(pool, await workers.register(pool, "w")))


async def hosts_of(pool: Pool, retried: Retried) -> list[int]:
    assert retried.made is not None
    rows = await pool.fetch(
        "SELECT host_id FROM executions WHERE job_id = $1 ORDER BY id", retried.made.job_id
    )
    return [row["host_id"] for row in rows]


def test_what_is_retried_is_whatever_ended_and_not_as_it_was_meant_to():
    succeeded = str(EXECUTION.moves["succeed"].target)
    assert {str(status) for status in EXECUTION.terminal} - {succeeded} == RETRIED
    assert FAILED < RETRIED


async def test_only_what_failed_or_timed_out_is_taken_up(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    ids = await make_hosts(4)
    job = await submit(params='{"x": [1.5, null, "ä"]}', max_concurrency=4)
    await say(pool, await run(pool, job), "fail", "timeout", "cancel", "succeed")
    retried = await retry_failed(pool, job.job_id, by="bob")
    assert retried.outcome is RetryOutcome.MADE
    assert await hosts_of(pool, retried) == ids[:2]
    asked = "SELECT params, max_concurrency, requested_by, retry_of FROM jobs WHERE id = $1"
    assert retried.made is not None
    row = await pool.fetchrow(asked, retried.made.job_id)
    assert row is not None
    assert tuple(row) == ('{"x": [1.5, null, "ä"]}', 4, "bob", job.job_id)


async def test_a_late_word_that_it_was_done_is_believed(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    """Also of what was cancelled; a late word that it failed changes nothing."""
    ids = await make_hosts(4)
    job = await submit()
    claimed = await run(pool, job)
    await say(pool, claimed, "timeout", "timeout", "cancel", "cancel")
    await say(pool, claimed, "succeed", "fail", "succeed", "fail")
    retried = await retry_failed(pool, job.job_id, by="bob", statuses=sorted(RETRIED))
    assert await hosts_of(pool, retried) == [ids[1], ids[3]]


async def test_asked_twenty_times_at_once_it_is_made_once(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(2)
    job = await submit()
    await say(pool, await run(pool, job), "fail", "fail")
    answers = await asyncio.gather(*(retry_failed(pool, job.job_id, by="bob") for _ in range(20)))
    made = [answer.made for answer in answers if answer.made is not None]
    assert len(made) == 20
    assert len({each.job_id for each in made}) == 1
    assert sum(not each.duplicate for each in made) == 1


async def test_a_retry_of_a_retry_takes_up_what_failed_again(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    ids = await make_hosts(2)
    job = await submit()
    await say(pool, await run(pool, job), "fail", "fail")
    first = (await retry_failed(pool, job.job_id, by="bob")).made
    assert first is not None
    await say(pool, await run(pool, first), "succeed", "fail")
    second = await retry_failed(pool, first.job_id, by="bob")
    assert await hosts_of(pool, second) == ids[1:]


async def test_hosts_that_were_disabled_since_are_left_alone(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    ids = await make_hosts(2)
    job = await submit()
    await say(pool, await run(pool, job), "fail", "fail")
    await pool.execute("UPDATE hosts SET state = 'DISABLED' WHERE id = $1", ids[0])
    assert await hosts_of(pool, await retry_failed(pool, job.job_id, by="bob")) == ids[1:]
    await pool.execute("UPDATE hosts SET state = 'DISABLED'")
    nobody = await retry_failed(pool, job.job_id, by="bob", external_id="nobody")
    assert nobody == Retried(RetryOutcome.NOTHING_TO_RETRY)


async def test_what_cannot_be_retried_is_told_why(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    assert await retry_failed(pool, 1, by="bob") == Retried(RetryOutcome.UNKNOWN_JOB)
    job = await submit()
    unfinished = await retry_failed(pool, job.job_id, by="bob")
    assert unfinished == Retried(RetryOutcome.NOT_FINISHED)
    await say(pool, await run(pool, job), "succeed")
    fine = await retry_failed(pool, job.job_id, by="bob")
    assert fine == Retried(RetryOutcome.NOTHING_TO_RETRY)
    with pytest.raises(InvalidInput, match=r"statuses: 'x+\.\.\. is not one of"):
        await retry_failed(pool, job.job_id, by="bob", statuses=["x" * 1_000])
    with pytest.raises(InvalidInput, match="external_id"):
        await retry_failed(pool, job.job_id, by="bob", external_id=" a")


async def test_a_type_that_is_gone_is_named(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(1)
    job = await submit()
    await say(pool, await run(pool, job), "fail")
    await pool.execute("DELETE FROM command_types WHERE name = 'noop'")
    with pytest.raises(InvalidInput, match="command_type: 'noop' is not one of"):
        await retry_failed(pool, job.job_id, by="bob")


async def test_an_id_that_stands_for_another_job_is_refused(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit("taken")
    await say(pool, await run(pool, job), "fail")
    with pytest.raises(
        JobConflict, match=f"'taken' is job {job.job_id}, but with another selector"
    ):
        await retry_failed(pool, job.job_id, by="bob", external_id="taken")
