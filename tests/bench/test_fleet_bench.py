"""The measurements of the fleet: small, and only as to whether they measure what they say."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from onward.bench import fleet, host_rule, million
from onward.bench.fleet import Rival, Sizes
from onward.bench.instant import Instant
from onward.bench.peers.consumers import leave_times, steady_rate, workers
from onward.bench.work import Work, check, make_hosts, submit, until_settled, working
from onward.errors import InvariantBroken
from onward.store.database import Connection
from onward.wiring import Onward
from tests.bench.results import well_formed
from tests.proof_table import Tried

SMALL = Work(jobs=2, hosts=20)


def test_the_fleet_is_measured_beside_every_peer(tried: Tried, *, proof: bool):
    told: list[str] = []
    rivals = (Rival("procrastinate", 60, 20), Rival("celery", 60, 10), Rival("pgqueuer", 60, 1))
    sizes = Sizes(work=SMALL, rounds=1, setups=100 if proof else 1, rivals=rivals)
    results = list(fleet.end_to_end(told.append, sizes))
    assert [result.name.split()[-1] for result in results] == [rival.name for rival in rivals]
    assert all(well_formed(result) for result in results)
    assert all("jobs/s, " in str(result.against) for result in results)
    emptied = sum("jobs/s" in line for line in told)
    tried("times that a peer emptied its queue", emptied, "every job done once")


def test_a_peer_that_is_not_there_leaves_its_row_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fleet, "_peer", lambda _: None)
    sizes = Sizes(work=SMALL, rounds=1, rivals=(Rival("pgqueuer", 60, 1),))
    (result,) = fleet.end_to_end(lambda _: None, sizes)
    assert result.value > 0
    assert "not run" in str(result.against)
    assert (result.ratio, result.holds) == (None, None)


def test_a_narrow_queue_is_measured_beside_one_without_the_rule():
    told: list[str] = []
    sizes = host_rule.Sizes(jobs=5, hosts=4, rounds=1)
    (result,) = host_rule.host_rule(told.append, sizes)
    assert "20 queued over 4 hosts" in result.name
    assert well_formed(result)
    assert [line.split(": ")[1].rsplit(" ", 2)[0] for line in told[1:]] == [
        "one at a time",
        "a host each",
        "sharing hosts",
    ]


def test_a_large_job_is_measured_in_a_process_of_its_own():
    told: list[str] = []
    rate, memory = million.million(told.append, million.Sizes(large=300, small=100, rounds=1))
    assert well_formed(rate)
    assert "in a job of 100" in str(rate.against)
    assert well_formed(memory)
    assert memory.unit == "MB"
    assert 10 < memory.value < 1_000
    assert sum("a job of 100:" in line for line in told) == 2


SPOILED = {
    "an execution is missing": "DELETE FROM executions WHERE id = 1",
    "an execution was tried twice": "UPDATE executions SET attempt = 2 WHERE id = 1",
    "a run was left over": "INSERT INTO runs SELECT 1, 0, 1, false, 1, now()",
    "a counter is wrong": "UPDATE job_counts SET n = n + 1",
    "a move was not told": (
        "DELETE FROM execution_timeline WHERE execution_id = 1 AND event = 'plan'"
    ),
    "a refusal was told": "UPDATE execution_timeline SET verdict = 'STALE' WHERE execution_id = 1",
    "a line was not kept": "DELETE FROM execution_logs WHERE execution_id = 1",
    "two ran at once": (
        "UPDATE execution_timeline SET event = CASE event WHEN 'claim' THEN 'succeed' ELSE 'claim' "
        "END WHERE execution_id = 1 AND event <> 'plan'"
    ),
}


async def test_work_that_was_not_done_is_not_believed(opened: Onward):
    pool, channel = opened.commands.pool, Instant()
    await make_hosts(pool, SMALL)
    async with working(opened, channel):
        await submit(pool, SMALL)
        await until_settled(opened.database_url, SMALL)
    assert channel.delivered == SMALL.executions
    async with pool.acquire() as connection:
        await check(connection, SMALL)
        believed = [name for name in SPOILED if await believes(connection, SPOILED[name])]
    assert believed == []


async def believes(connection: Connection, spoiling: str) -> bool:
    """Say whether the check lets something through that is not as it should be."""
    spoiled = connection.transaction()
    await spoiled.start()
    await connection.execute(spoiling)
    try:
        await check(connection, SMALL)
    except InvariantBroken:
        return False
    finally:
        await spoiled.rollback()
    return True


async def test_jobs_of_groups_are_for_hosts_of_their_own(opened: Onward):
    work = Work(jobs=3, hosts=12, groups=3)
    pool = opened.commands.pool
    await make_hosts(pool, work)
    await submit(pool, work)
    assert work.executions == 12
    assert await pool.fetchval("SELECT count(DISTINCT host_id) FROM executions") == 12
    assert await pool.fetchval("SELECT count(DISTINCT job_id) FROM executions") == 3


def test_a_steady_rate_leaves_out_the_edges(tmp_path: Path):
    """100 jobs, ten a second but for a slow start and a slow end, noted by one worker."""
    times = [number / 10 for number in range(100)]
    times[0], times[-1] = -100.0, 100.0
    leave_times(str(tmp_path), array("d", times))
    assert steady_rate(str(tmp_path), 100) == pytest.approx(10.0)
    with pytest.raises(InvariantBroken, match="100 jobs were run instead of 101"):
        steady_rate(str(tmp_path), 101)


async def test_a_worker_that_cannot_start_says_why():
    with pytest.raises(InvariantBroken, match="No module named"):
        async with workers("onward.bench.peers.nobody", count=1):
            pass
