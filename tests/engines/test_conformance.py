"""What every engine does, said once and tried with each of them."""

from __future__ import annotations

from collections import Counter

import pytest

from onward.channels.simulated import Effect, What
from onward.store import jobs
from onward.store.database import connect
from onward.store.jobs import Decision
from tests.engines.ground import Ground, at_work, ground, put_off, until
from tests.fleet.test_engine import replayed
from tests.present import block, pause
from tests.proof_table import Tried


@pytest.mark.timeout(1_800)
async def test_a_job_ends_everywhere_exactly_once(working: Ground, tried: Tried, *, proof: bool):
    await end_everywhere(working, tried, hosts=1_000 if proof else 60, kind="calm")


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("engine", ["embedded", "celery"])
async def test_a_job_over_a_bad_network_ends_everywhere_exactly_once(
    server: tuple[str, str], tried: Tried, *, engine: str, proof: bool
):
    async with ground(engine, server, network="bad", speed=50) as there, at_work(there):
        await end_everywhere(there, tried, hosts=1_000 if proof else 60, kind="bad")


async def end_everywhere(there: Ground, tried: Tried, *, hosts: int, kind: str) -> None:
    """Two jobs compete for the hosts; what ran is judged by the hosts' own journal."""
    found = await there.hosts(hosts)
    submitted = await there.submit(found), await there.submit(found, lines=2)
    await there.until_settled(*submitted)

    for job_id in submitted:
        assert await there.counts(job_id) == {"SUCCESS": hosts}
    assert there.promises_broken() == []
    done = Counter(effect.command_id for effect in there.effects(found) if effect.succeeded)
    assert done.total() == len(done) == 2 * hosts
    tried(f"executions over a {kind} network", 2 * hosts, "each ended once")
    tried("events of executions replayed through the core", await replayed(there.pool), "all agree")


async def test_two_jobs_on_the_same_hosts_run_one_after_the_other(working: Ground):
    hosts = await working.hosts(5)
    first = await working.submit(hosts, sleep_s=0.1)
    second = await working.submit(hosts, sleep_s=0.1)
    await working.until_settled(first, second)
    for job_id in (first, second):
        assert await working.counts(job_id) == {"SUCCESS": len(hosts)}
    for host_id in hosts.ids:
        there = [effect.what for effect in working.effects(hosts) if effect.host_id == host_id]
        assert there == [What.STARTED, What.FINISHED] * 2


async def test_what_always_fails_ends_after_its_retries_with_the_cause(working: Ground):
    hosts = await working.hosts(5)
    job_id = await working.submit(hosts, "fragile", exit_code=3)
    assert await working.ended(job_id) == {"FAILED": 5}
    found = await working.executions(job_id, "cause", "exit_code", "attempt", "retries")
    assert found == [("FAILED", 3, 3, 2)] * 5
    assert working.count(hosts, What.STARTED) == 15


async def test_a_retry_is_not_claimed_before_it_is_due(working: Ground):
    """The clock of the database says when, for both."""
    hosts = await working.hosts(10)
    job_id = await working.submit(hosts, fail_times=1)
    assert await working.ended(job_id) == {"SUCCESS": 10}
    early = await working.pool.fetchval(
        "SELECT count(*) FROM execution_timeline r JOIN executions e ON e.id = r.execution_id "
        "CROSS JOIN LATERAL (SELECT t.at FROM execution_timeline t WHERE t.seq > r.seq "
        "AND t.execution_id = r.execution_id AND t.event = 'claim' ORDER BY t.seq LIMIT 1) AS next "
        "WHERE e.job_id = $1 AND r.event = 'retry' "
        "AND next.at < r.at + make_interval(secs => (r.detail ->> 'delay_s')::float8)",
        job_id,
    )
    assert early == 0
    assert working.count(hosts, What.STARTED) == 20


async def test_what_is_due_later_waits_in_the_table_and_lets_others_pass(working: Ground):
    """When its time has come, nobody has to be told."""
    hosts = await working.hosts(3)
    first = await working.submit(hosts, sleep_s=1)
    await working.until_begun(hosts, 3)
    later = await working.submit(hosts)

    async def queued() -> bool:
        return await working.counts(later) == {"QUEUED": 3}

    await until(queued, of=working)
    await put_off(working, later, "1 h")
    assert await working.ended(await working.submit(hosts)) == {"SUCCESS": 3}
    assert await working.ended(first) == {"SUCCESS": 3}
    assert await working.counts(later) == {"QUEUED": 3}

    await put_off(working, later, "0 s")
    assert await working.ended(later) == {"SUCCESS": 3}


async def test_a_command_that_takes_too_long_ends_as_timed_out(working: Ground):
    hosts = await working.hosts(3)
    job_id = await working.submit(hosts, "brief", sleep_s=4)
    assert await working.ended(job_id) == {"TIMEOUT": 3}
    found = await working.executions(job_id, "cause", "exit_code", "attempt")
    assert found == [("TIMED_OUT", 124, 2)] * 3


async def test_a_block_keeps_a_command_from_its_host(working: Ground):
    hosts = await working.hosts(3)
    await block(working.pool, hosts.ids[1], "noop", reason="disk is full", owner="bob")
    job_id = await working.submit(hosts)
    assert await working.ended(job_id) == {"SUCCESS": 2, "BLOCKED": 1}
    assert {effect.host_id for effect in working.effects(hosts)} == {hosts.ids[0], hosts.ids[2]}


async def test_the_limit_of_a_job_holds_while_it_runs(working: Ground):
    hosts = await working.hosts(12)
    job_id = await working.submit(hosts, sleep_s=0.05, max_concurrency=4)
    assert await working.ended(job_id) == {"SUCCESS": 12}
    assert 1 <= most_at_once(working.effects(hosts)) <= 4


async def test_a_paused_job_waits_and_goes_on(working: Ground):
    hosts = await working.hosts(4)
    job_id = await working.submit(hosts, sleep_s=0.2, max_concurrency=2)
    await working.until_begun(hosts, 1)
    assert await pause(working.pool, job_id, paused=True)

    async def still() -> bool:
        return "RUNNING" not in await working.counts(job_id)

    await until(still, of=working)
    ran = working.count(hosts, What.STARTED)
    assert ran < 4
    # Whatever comes after it has been looked at, and the paused one with it.
    assert await working.ended(await working.submit(await working.hosts(2))) == {"SUCCESS": 2}
    assert working.count(hosts, What.STARTED) == ran

    assert await pause(working.pool, job_id, paused=False)
    assert await working.ended(job_id) == {"SUCCESS": 4}


async def test_what_runs_is_stopped_on_its_host_when_the_job_is_cancelled(working: Ground):
    hosts = await working.hosts(4)
    job_id = await working.submit(hosts, sleep_s=4.9, max_concurrency=2)
    await working.until_begun(hosts, 2)
    await jobs.cancel(working.pool, job_id, by="ann")
    waiting = await working.counts(job_id)
    assert waiting["CANCELLED"] >= 2
    assert await working.ended(job_id) == {"CANCELLED": 4}
    assert Counter(e.what for e in working.effects(hosts)) == {What.STARTED: 2, What.STOPPED: 2}


async def test_an_approved_job_is_planned_and_one_that_waits_or_is_rejected_is_not(
    working: Ground,
):
    hosts = await working.hosts(2)
    waits, approved = [await working.submit(hosts, "deploy") for _ in range(2)]
    await decide(working, approved, "APPROVED")
    assert await working.ended(approved) == {"SUCCESS": 2}
    assert await working.counts(waits) == {"NEW": 2}
    await decide(working, waits, "REJECTED")
    assert await working.ended(waits) == {"CANCELLED": 2}
    assert working.count(hosts, What.STARTED) == 2


async def test_commands_that_only_look_share_a_host(working: Ground):
    hosts = await working.hosts(1)
    looks = [await working.submit(hosts, "look", sleep_s=1.5) for _ in range(2)]
    await working.until_settled(*looks)
    assert most_at_once(working.effects(hosts)) == 2


async def test_waiting_for_a_busy_host_costs_no_retry(working: Ground):
    hosts = await working.hosts(1)
    first = await working.submit(hosts, sleep_s=0.5)
    await working.until_begun(hosts, 1)
    second = await working.submit(hosts, "fragile")
    await working.until_settled(first, second)
    assert await working.executions(second, "status", "attempt", "retries") == [("SUCCESS", 1, 0)]


async def test_what_is_printed_is_stored_in_order(working: Ground):
    hosts = await working.hosts(3)
    job_id = await working.submit(hosts, lines=40, sleep_s=0.8)
    assert await working.ended(job_id) == {"SUCCESS": 3}
    for (execution_id,) in await working.executions(job_id, "id"):
        rows = await working.pool.fetch(
            "SELECT line, stream, text FROM execution_logs WHERE execution_id = $1 ORDER BY line",
            execution_id,
        )
        streams = ["stdout", "stderr"] * 20
        assert [tuple(row) for row in rows] == [
            (number, stream, f"line {number} of 40") for number, stream in enumerate(streams, 1)
        ]


async def test_a_job_whose_word_was_lost_is_planned_all_the_same(working: Ground):
    hosts = await working.hosts(3)
    await working.pool.execute(
        "CREATE FUNCTION unheard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    await working.pool.execute(
        "CREATE TRIGGER unheard BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION unheard()"
    )
    job_id = await working.submit(hosts)
    await working.pool.execute("DROP FUNCTION unheard CASCADE")
    assert await working.ended(job_id) == {"SUCCESS": 3}


@pytest.mark.timeout(1_800)
async def test_the_engine_goes_on_when_every_connection_is_cut(
    working: Ground, tried: Tried, *, proof: bool
):
    """Also the one that holds the host locks: then the epoch alone keeps two runs apart."""
    hosts = await working.hosts(300 if proof else 60)
    submitted = [await working.submit(hosts, sleep_s=0.05) for _ in range(2)]
    cuts = 20 if proof else 3
    observer = await connect(working.opened.database_url)
    for cut in range(cuts):

        async def so_far(wanted: int = cut * len(hosts) // cuts) -> bool:
            return len(working.effects(hosts)) >= wanted

        await until(so_far, of=working)
        await observer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await observer.close()
    await working.until_settled(*submitted)
    for job_id in submitted:
        assert await working.counts(job_id) == {"SUCCESS": len(hosts)}
    assert working.promises_broken() == []
    await replayed(working.pool)
    tried("times that every connection was cut in the middle of a job", cuts, "none lost")


async def decide(there: Ground, job_id: int, state: Decision) -> None:
    told = await jobs.decide(there.pool, job_id, version=1, state=state, by="bob", reason="")
    assert told is not None
    assert told.decided


def most_at_once(effects: list[Effect]) -> int:
    running = most = 0
    for effect in effects:
        running += {"started": 1, "finished": -1, "stopped": -1}.get(effect.what, 0)
        most = max(most, running)
    return most
