"""Approve and reject: one of two wins, and the other learns what happened."""

from __future__ import annotations

import asyncio

import pytest

from onward.store import jobs
from onward.store.database import Connection, Pool
from onward.store.jobs import Decided
from tests.fleet.conftest import MakeHosts, Submit
from tests.store.asking import until_blocked


async def decide(connection: Connection, job_id: int, state: str, by: str) -> Decided:
    found = await jobs.decide(connection, job_id, version=1, state=state, by=by, reason="")
    assert found is not None
    return found


@pytest.mark.parametrize("first", ["APPROVED", "REJECTED"])
async def test_of_an_approval_and_a_rejection_the_first_to_commit_wins(
    pool: Pool, make_hosts: MakeHosts, submit: Submit, *, first: str
):
    """The second is already waiting for the row when the first commits: forced, not slept for."""
    second = {"APPROVED": "REJECTED", "REJECTED": "APPROVED"}[first]
    await make_hosts(3)
    job = await submit(command_type="deploy")
    async with pool.acquire() as one, pool.acquire() as other, pool.acquire() as watcher:
        async with one.transaction():
            won = await decide(one, job.job_id, first, "bob")
            late = asyncio.create_task(decide(other, job.job_id, second, "eve"))
            await until_blocked(watcher, by=one.get_server_pid())
        lost = await late
    assert won == Decided(first, 2, decided=True)
    assert lost == Decided(first, 2, decided=False)
    told = await pool.fetchval("SELECT count(*) FROM outbox")
    assert told == (1 if first == "APPROVED" else 0)


async def test_an_approval_of_another_plan_than_the_present_one_is_refused(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    job = await submit(command_type="deploy")
    await pool.execute("UPDATE jobs SET version = version + 1")
    async with pool.acquire() as connection:
        assert not (await decide(connection, job.job_id, "APPROVED", "bob")).decided


async def test_whoever_asked_cannot_approve(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(1)
    job = await submit(command_type="deploy", requested_by="ann")
    async with pool.acquire() as connection:
        refused = await decide(connection, job.job_id, "APPROVED", "ann")
    assert refused == Decided("WAIT_APPROVAL", 1, decided=False)


async def test_an_approved_job_is_planned(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(3)
    job = await submit(command_type="deploy")
    async with pool.acquire() as connection:
        await decide(connection, job.job_id, "APPROVED", "bob")
    assert await jobs.plan(pool, job.job_id, batch=10) == 3
    assert await jobs.counts(pool, job.job_id) == {"QUEUED": 3}
