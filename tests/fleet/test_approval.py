"""Approve and reject: one of two wins, and the other learns what happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.core.selectors import parse
from onward.errors import JobConflict
from onward.store import hosts, jobs
from onward.store.database import Connection, Pool
from onward.store.jobs import Decided, Decision, Edited
from tests.fleet.conftest import MakeHosts, Submit
from tests.present import TESTER, block, unblock

BOUND_S = 30.0
OTHER: dict[Decision, Decision] = {"APPROVED": "REJECTED", "REJECTED": "APPROVED"}


async def decide(pool: Pool, job_id: int, state: Decision, by: str) -> Decided:
    found = await jobs.decide(pool, job_id, version=1, state=state, by=by, reason="")
    assert found is not None
    return found


async def until_waiting(watcher: Connection, count: int) -> None:
    """Return when so many sessions of this database wait for a lock; not for ever."""
    async with asyncio.timeout(BOUND_S):
        while count != await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND cardinality(pg_blocking_pids(pid)) > 0"
        ):
            pass  # every query gives the loop a turn


@pytest.mark.parametrize("first", OTHER)
async def test_of_an_approval_and_a_rejection_the_first_to_come_wins(
    pool: Pool, make_hosts: MakeHosts, submit: Submit, *, first: Decision
):
    """Both are waiting for the row, one behind the other, when it becomes free."""
    await make_hosts(3)
    job = await submit(command_type="deploy")
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", job.job_id)
            winner = asyncio.create_task(decide(pool, job.job_id, first, "bob"))
            await until_waiting(watcher, 1)
            loser = asyncio.create_task(decide(pool, job.job_id, OTHER[first], "eve"))
            await until_waiting(watcher, 2)
        won, lost = await winner, await loser
    assert won == Decided(first, 2, decided=True, decided_by="bob")
    assert lost == Decided(first, 2, decided=False, decided_by="bob")
    told = await pool.fetchval("SELECT count(*) FROM outbox")
    counts = await jobs.counts(pool, job.job_id)
    assert (told, counts) == ((1, {"NEW": 3}) if first == "APPROVED" else (0, {"CANCELLED": 3}))


async def test_an_approval_of_another_plan_than_the_present_one_is_refused(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit(command_type="deploy")
    await pool.execute("UPDATE jobs SET version = version + 1")
    assert await decide(pool, job.job_id, "APPROVED", "bob") == Decided(
        "WAIT_APPROVAL", 2, decided=False
    )


async def test_what_was_decided_is_not_decided_again(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    """Not even by somebody who has seen the job as it is now."""
    await make_hosts(1)
    job = await submit(command_type="deploy")
    await decide(pool, job.job_id, "APPROVED", "bob")
    again = await jobs.decide(
        pool, job.job_id, version=2, state="REJECTED", by="eve", reason="too late"
    )
    assert again == Decided("APPROVED", 2, decided=False, decided_by="bob")


async def test_whoever_asked_cannot_approve(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(1)
    job = await submit(command_type="deploy", requested_by="ann")
    refused = await decide(pool, job.job_id, "APPROVED", "ann")
    assert refused == Decided("WAIT_APPROVAL", 1, decided=False, had_a_hand=True)


async def test_whoever_changed_the_plan_cannot_approve_it(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit(command_type="deploy", requested_by="ann")
    edited = await jobs.edit(pool, job.job_id, version=1, by="bob", params='{"x": 1}')
    assert edited == Edited(2, edited=True, approval_state="WAIT_APPROVAL", cancelled=False)
    refused = await jobs.decide(
        pool, job.job_id, version=2, state="APPROVED", by="bob", reason="mine"
    )
    assert refused == Decided("WAIT_APPROVAL", 2, decided=False, had_a_hand=True)
    approved = await jobs.decide(
        pool, job.job_id, version=2, state="APPROVED", by="eve", reason="fine"
    )
    assert approved is not None
    assert approved.decided


async def test_a_repeat_of_the_webhook_is_one_also_after_the_plan_was_changed(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit(command_type="deploy", params='{"x": 1}')
    await jobs.edit(pool, job.job_id, version=1, by="bob", params='{"x": 2}', max_concurrency=3)
    again = await submit(command_type="deploy", params='{"x": 1}')
    assert (again.job_id, again.duplicate) == (job.job_id, True)
    with pytest.raises(JobConflict, match="another params"):
        await submit(command_type="deploy", params='{"x": 2}')


async def test_what_was_approved_is_not_edited_any_more(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit(command_type="deploy", params='{"x": 1}')
    await decide(pool, job.job_id, "APPROVED", "bob")
    refused = await jobs.edit(pool, job.job_id, version=2, by="ann", params='{"x": 2}')
    assert refused == Edited(2, edited=False, approval_state="APPROVED", cancelled=False)
    assert await pool.fetchval("SELECT params FROM jobs") == '{"x": 1}'


async def test_a_job_that_does_not_exist_is_not_decided(pool: Pool):
    assert await jobs.decide(pool, 1, version=1, state="APPROVED", by="bob", reason="") is None


async def test_an_approved_job_is_planned(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(3)
    job = await submit(command_type="deploy")
    await decide(pool, job.job_id, "APPROVED", "bob")
    assert len(await jobs.plan(pool, job.job_id, batch=10)) == 3
    assert await jobs.counts(pool, job.job_id) == {"QUEUED": 3}


async def test_who_decided_when_and_why_is_kept(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(1)
    job = await submit(command_type="deploy")
    await jobs.decide(
        pool, job.job_id, version=1, state="REJECTED", by="bob", reason="not on a Friday"
    )
    row = await pool.fetchrow("SELECT decided_by, decided_at, decision_reason FROM jobs")
    assert row is not None
    assert (row["decided_by"], row["decision_reason"]) == ("bob", "not on a Friday")
    assert row["decided_at"] is not None


async def test_an_approval_is_refused_when_a_block_has_changed_the_plan_since(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    """Made, lifted, or a host switched off: what was seen is not what would run."""
    one, two, _ = await make_hosts(3)
    job, other = await submit("a", "deploy"), await submit("b", "noop")
    version = job.version
    rule: dict[str, Any] = {"reason": "", "owner": "bob", "expires_at": None}
    assert (await block(pool, two, "noop")).block  # another type is not in this plan
    for change in (
        lambda: block(pool, one, "deploy"),
        lambda: unblock(pool, one, "deploy"),
        lambda: hosts.block_chosen(pool, parse("all"), "deploy", **rule, by=TESTER),
        lambda: hosts.lift_chosen(pool, parse("all"), "deploy", by=TESTER),
        lambda: hosts.change(pool, two, version=4, state="DISABLED", by=TESTER),
    ):
        await change()
        decided = await jobs.decide(
            pool, job.job_id, version=version, state="APPROVED", by="bob", reason=""
        )
        assert decided is not None
        assert not decided.decided
        assert decided.version == version + 1
        version = decided.version
    assert await hosts.change(
        pool, two, version=5, labels={"a": "b"}, by=TESTER
    )  # not part of a plan
    decided = await jobs.decide(
        pool, job.job_id, version=version, state="APPROVED", by="bob", reason=""
    )
    assert decided is not None
    assert decided.decided
    assert await pool.fetchval("SELECT version FROM jobs WHERE id = $1", other.job_id) == 1
    events = await pool.fetch("SELECT event FROM job_timeline WHERE job_id = $1", job.job_id)
    assert [row["event"] for row in events].count("replan") == 5
