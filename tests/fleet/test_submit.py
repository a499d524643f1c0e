"""A webhook makes one job, or none; a repeat finds it."""

from __future__ import annotations

import asyncio

import pytest

from onward.errors import InvalidInput, JobConflict
from onward.store import jobs
from onward.store.database import Pool
from tests.fleet.conftest import MakeHosts, Submit
from tests.proof_table import Tried

HOSTS = 10


async def written(pool: Pool) -> tuple[int, ...]:
    tables = ("jobs", "executions", "job_counts", "outbox")
    return tuple([await pool.fetchval(f"SELECT count(*) FROM {table}") for table in tables])  # noqa: S608


async def test_a_job_comes_with_its_executions_its_counters_and_its_word(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(HOSTS)
    made = await submit(selector="role=web")
    assert (made.total, made.duplicate, made.approval_state) == (HOSTS // 2, False, None)
    assert await jobs.counts(pool, made.job_id) == {"NEW": HOSTS // 2}
    assert await pool.fetchval("SELECT job_id FROM outbox") == made.job_id
    names = await pool.fetch(
        "SELECT h.name FROM executions e JOIN hosts h ON h.id = e.host_id ORDER BY h.id"
    )
    assert [name for (name,) in names] == ["h2", "h4", "h6", "h8", "h10"]


async def test_a_job_that_needs_approval_tells_nobody_to_plan_it(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    await make_hosts(1)
    made = await submit(command_type="deploy")
    assert made.approval_state == "WAIT_APPROVAL"
    assert await pool.fetchval("SELECT count(*) FROM outbox") == 0
    assert await jobs.plan(pool, made.job_id, batch=10) == []


async def test_twenty_deliveries_of_one_webhook_make_one_job(
    pool: Pool, make_hosts: MakeHosts, submit: Submit, tried: Tried, *, proof: bool
):
    await make_hosts(HOSTS)
    rounds = 50 if proof else 10
    for round_ in range(rounds):
        answers = await asyncio.gather(*(submit(f"hook-{round_}") for _ in range(20)))
        assert len({answer.job_id for answer in answers}) == 1
        assert sum(not answer.duplicate for answer in answers) == 1
    assert await pool.fetchval("SELECT count(*) FROM executions") == rounds * HOSTS
    tried("webhooks delivered twenty times at once", rounds, "one job each")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"params": '{"a": 1}'}, "params"),
        ({"selector": "role=web"}, "selector"),
        ({"command_type": "look"}, "command_type"),
        ({"max_concurrency": 3}, "max_concurrency"),
    ],
)
async def test_another_body_under_the_same_id_is_refused_and_the_difference_named(
    pool: Pool, make_hosts: MakeHosts, submit: Submit, *, change: dict[str, object], named: str
):
    await make_hosts(HOSTS)
    await submit()
    before = await written(pool)
    with pytest.raises(JobConflict, match=f"another {named}$"):
        await submit(**change)
    assert await written(pool) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"selector": ["h1", "gone", "lost"]}, "no such hosts: gone, lost"),
        ({"selector": "role=none"}, "no host matches"),
        ({"command_type": "dance"}, "'dance' is not one of"),
    ],
)
async def test_what_cannot_run_is_refused_in_words_and_nothing_is_written(
    pool: Pool, make_hosts: MakeHosts, submit: Submit, *, change: dict[str, object], says: str
):
    await make_hosts(HOSTS)
    before = await written(pool)
    with pytest.raises(InvalidInput, match=says):
        await submit(**change)
    assert await written(pool) == before


async def test_a_disabled_host_is_not_chosen(pool: Pool, make_hosts: MakeHosts, submit: Submit):
    await make_hosts(2)
    await pool.execute("UPDATE hosts SET state = 'DISABLED' WHERE name = 'h1'")
    assert (await submit()).total == 1
