"""The embedded engine, on simulated hosts, over good and bad networks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from onward.channels.base import Channel
from onward.channels.simulated import Journal, Network, SimulatedChannel, SimulatedFleet
from onward.channels.simulated.journal import check_journal
from onward.core.lifecycles import EXECUTION
from onward.core.retry import Backoff
from onward.core.verdicts import TransitionResult
from onward.engines.embedded import Engine, Pace
from onward.store import jobs
from onward.store.database import Pool, connect
from onward.store.host_locks import HostLocks
from onward.wiring import Onward
from tests.fleet.conftest import MakeHosts, Submit
from tests.proof_table import Tried

BOUND_S = 120.0
QUICK = Pace(
    poll_s=0.01,
    reap_s=0.05,
    grace_s=0.2,
    capacity=200,
    backoff=Backoff(base_s=0.005, max_s=0.05),
)


@asynccontextmanager
async def working(opened: Onward, channel: Channel, pace: Pace) -> AsyncIterator[None]:
    locks, stopping = HostLocks(opened.database_url), asyncio.Event()
    engine = Engine(
        opened.commands.pool,
        locks,
        {"simulated": channel},
        chance=random.Random(1).random,
        pace=pace,
    )
    work = asyncio.create_task(engine.run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await work
        await locks.close()


async def until_settled(pool: Pool) -> None:
    terminal = [str(status) for status in EXECUTION.terminal]
    async with asyncio.timeout(BOUND_S):
        while await pool.fetchval(  # noqa: ASYNC110 - the tables have no event to wait for
            "SELECT count(*) FROM executions WHERE status <> ALL ($1::text[])", terminal
        ):
            await asyncio.sleep(0.01)


async def replayed(pool: Pool) -> int:
    """Replay every timeline through the core; returns how many events were replayed."""
    events = await pool.fetch(
        "SELECT execution_id, event, verdict, from_status, to_status FROM execution_timeline "
        "ORDER BY execution_id, seq"
    )
    status: dict[int, str] = {}
    for execution_id, event, verdict, seen, target in events:
        at = status.get(execution_id, EXECUTION.initial)
        assert seen == at
        if verdict != TransitionResult.STALE_EPOCH:
            assert EXECUTION.decide(at, event) == (TransitionResult(verdict), target)
        status[execution_id] = target
    rows = await pool.fetch("SELECT id, status FROM executions")
    assert {row["id"]: row["status"] for row in rows} == status
    return len(events)


@pytest.mark.parametrize("kind", ["calm", "bad"])
async def test_a_job_over_a_network_ends_everywhere_exactly_once(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, tried: Tried, *, kind: str, proof: bool
):
    """Two jobs compete for the hosts; what ran is judged by the hosts' own journal."""
    pool = opened.commands.pool
    hosts = await make_hosts(1_000 if proof else 60)
    journal = Journal()
    fleet = SimulatedFleet(hosts, journal=journal, command_types=None, speed=50)
    network = Network.calm(7) if kind == "calm" else Network.bad(7)
    first, second = await submit("a", "noop"), await submit("b", "noop", '{"lines": 2}')

    async with working(opened, SimulatedChannel(fleet, network), QUICK):
        await until_settled(pool)
    await fleet.aclose()

    for job in (first, second):
        assert await jobs.counts(pool, job.job_id) == {"SUCCESS": len(hosts)}
    assert check_journal(journal.lines()) == []
    tried(f"executions over a {kind} network", 2 * len(hosts), "each ended once")
    tried("events of executions replayed through the core", await replayed(pool), "all agree")


async def test_what_always_fails_ends_after_its_retries_with_the_cause(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool = opened.commands.pool
    hosts = await make_hosts(5)
    await pool.execute("UPDATE command_types SET max_retries = 2 WHERE name = 'noop'")
    fleet = SimulatedFleet(hosts, command_types=None)
    job = await submit(params='{"exit_code": 3}')

    async with working(opened, SimulatedChannel(fleet, Network.calm(1)), QUICK):
        await until_settled(pool)

    assert await jobs.counts(pool, job.job_id) == {"FAILED": 5}
    rows = await pool.fetch("SELECT DISTINCT cause, exit_code, attempt, retries FROM executions")
    assert [tuple(row) for row in rows] == [("FAILED", 3, 3, 2)]


async def test_a_job_whose_word_was_lost_is_planned_by_the_reaper(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool = opened.commands.pool
    hosts = await make_hosts(5)
    job = await submit()
    await pool.execute("DELETE FROM outbox")

    fleet = SimulatedFleet(hosts, command_types=None)
    async with working(opened, SimulatedChannel(fleet, Network.calm(1)), QUICK):
        await until_settled(pool)

    assert await jobs.counts(pool, job.job_id) == {"SUCCESS": 5}


async def test_the_limit_of_a_job_holds_while_it_runs(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool = opened.commands.pool
    hosts = await make_hosts(30)
    journal = Journal()
    fleet = SimulatedFleet(hosts, journal=journal, command_types=None, speed=10)
    await submit(params='{"sleep_s": 0.1}', max_concurrency=4)

    async with working(opened, SimulatedChannel(fleet, Network.calm(1)), QUICK):
        await until_settled(pool)

    running = most = 0
    for effect in journal.effects:
        running += {"started": 1, "finished": -1}.get(effect.what, 0)
        most = max(most, running)
    assert 1 <= most <= 4


async def test_the_engine_goes_on_when_every_connection_is_cut(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, tried: Tried, *, proof: bool
):
    """Also the one that holds the host locks: then the epoch alone keeps two runs apart."""
    pool = opened.commands.pool
    hosts = await make_hosts(300 if proof else 60)
    journal = Journal()
    fleet = SimulatedFleet(hosts, journal=journal, command_types=None)
    submitted = [await submit(name, "noop", '{"sleep_s": 0.05}') for name in ("a", "b")]
    cuts = 20 if proof else 3
    observer = await connect(opened.database_url)

    async with working(opened, SimulatedChannel(fleet, Network.calm(3)), QUICK):
        for cut in range(cuts):
            async with asyncio.timeout(BOUND_S):
                while len(journal.effects) < cut * len(hosts) // cuts:  # noqa: ASYNC110 - until then
                    await asyncio.sleep(0.005)
            await observer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        terminal = [str(status) for status in EXECUTION.terminal]
        async with asyncio.timeout(BOUND_S):
            while await observer.fetchval(  # noqa: ASYNC110 - as in `until_settled`
                "SELECT count(*) FROM onward.executions WHERE status <> ALL ($1::text[])", terminal
            ):
                await asyncio.sleep(0.01)
    await observer.close()
    await fleet.aclose()

    for job in submitted:
        assert await jobs.counts(pool, job.job_id) == {"SUCCESS": len(hosts)}
    assert check_journal(journal.lines()) == []
    await replayed(pool)
    tried("times that every connection was cut in the middle of a job", cuts, "none lost")
