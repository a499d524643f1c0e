"""The doctor finds whatever is wrong, and nothing where nothing is, however busy the system is."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta

import asyncpg
import pytest

from onward.commands import create_command, record_event
from onward.core.selectors import parse
from onward.engines.equipment import Simulated, simulated_hosts
from onward.fleet.doctor import (
    INVARIANTS,
    SERVER,
    Check,
    Finding,
    Patient,
    State,
    examine,
    repair,
)
from onward.fleet.doctor import server as server_checks
from onward.store import doctor, jobs
from onward.store.database import Pool, pooled
from onward.store.jobs import NewJob
from onward.store.timeline import MONTHLY
from onward.wiring import Onward
from tests.conftest import settings_for
from tests.databases import copied, drop, make, on
from tests.fleet.faults import CASES, Case, written
from tests.fleet.lived_in import live_in
from tests.fleet.test_engine import QUICK, until_settled, working
from tests.proof_table import Tried

LIVED_IN = "onward_test_lived_in"
CHECKS = [*SERVER, *INVARIANTS]
LIMIT_S = 30.0
# The server of the tests may forget, and says so.
FORGETS = {"durable"}


@pytest.fixture(scope="module")
def lived_in(server_url: str, template: str) -> Iterator[str]:
    """The name of a database in which a little of everything has happened."""
    make(server_url, LIVED_IN, template)
    asyncio.run(live_in(on(server_url, LIVED_IN)))
    yield LIVED_IN
    drop(server_url, LIVED_IN)


@pytest.fixture
def copy_url(server_url: str, lived_in: str) -> Iterator[str]:
    """A copy of it, for whoever breaks something."""
    with copied(server_url, lived_in) as url:
        yield url


@pytest.fixture
async def patient(copy_url: str) -> AsyncIterator[Patient]:
    async with pooled(copy_url, size=2) as pool:
        yield Patient(settings_for(copy_url), LIMIT_S, pool)


def wrong(found: list[Finding]) -> dict[str, str]:
    """What does not hold, and what is told about it."""
    told = {finding.check.name: finding.told for finding in found if not finding.holds}
    return {name: text for name, text in told.items() if name not in FORGETS}


async def test_where_all_is_well_nothing_is_found(patient: Patient):
    found = await examine(patient, CHECKS)
    assert wrong(found) == {}
    assert {finding.state for finding in found} == {State.OK, State.WARNING}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
async def test_whatever_is_broken_is_found_and_mended(patient: Patient, case: Case):
    await patient.pool.execute(written(case.planted))
    found = await examine(patient, CHECKS)
    assert set(wrong(found)) == case.found
    assert all(finding.count for finding in found if not finding.holds)
    if not case.repaired:
        return
    mended = await repair(patient, CHECKS, found)
    assert wrong(mended) == {}
    names = {finding.check.name for finding in mended if finding.state is State.REPAIRED}
    assert names >= case.found
    before = await everything(patient.pool)
    for finding in mended:
        if finding.state is State.REPAIRED:
            assert finding.check.repair is not None
            await finding.check.repair.do(patient)
    assert await everything(patient.pool) == before, "a second repair changes nothing"
    assert wrong(await examine(patient, CHECKS)) == {}


async def everything(pool: Pool) -> dict[str, str]:
    """What is in every table of ours, as a digest."""
    tables = await pool.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'onward'::regnamespace "
        "AND relkind IN ('r', 'p') AND NOT relispartition"
    )
    return {
        name: await pool.fetchval(
            f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {name} t"  # noqa: S608
        )
        for (name,) in tables
    }


def test_every_check_of_the_tables_was_seen_to_fail(tried: Tried):
    planted = {name for case in CASES.values() for name in case.found}
    # These depend on the server and the settings; each has a test below.
    elsewhere = {"postgresql", "schema", "durable", "clock", "connections", "locks"}
    elsewhere |= {"long-transactions"}
    assert planted | elsewhere == {check.name for check in CHECKS}
    repaired = {name for case in CASES.values() if case.repaired for name in case.found}
    assert {check.name for check in CHECKS if check.repair} - repaired == {"lost-runs"}
    tried("faults planted for the doctor", len(CASES), "all found, and mended where it is safe")


def test_names_and_sentences_are_fit_to_be_read():
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for check in CHECKS:
        assert check.holds.endswith(".")
        assert check.advice.endswith(".")


def the(name: str) -> Check:
    return next(check for check in CHECKS if check.name == name)


async def test_lost_runs_are_rescued_as_a_worker_would(patient: Patient):
    await patient.pool.execute("UPDATE workers SET beat_at = now() - interval '1 hour'")
    checks = [the("lost-runs"), the("queue"), the("queued"), the("runs"), the("counters")]
    runs = await patient.pool.fetchval("SELECT count(*) FROM runs")
    mended = await repair(patient, checks, await examine(patient, checks))
    assert [finding.state for finding in mended] == [State.REPAIRED] + [State.OK] * 4
    assert f"({runs})" in mended[0].told
    causes = await patient.pool.fetchval(
        "SELECT count(*) FROM executions WHERE status = 'QUEUED' AND cause = 'WORKER_LOST'"
    )
    assert causes == runs


async def test_a_run_whose_place_is_taken_is_left_to_people(patient: Patient):
    await patient.pool.execute(written(CASES["two exclusive runs on a host"].planted))
    mended = {
        finding.check.name: finding
        for finding in await repair(patient, CHECKS, await examine(patient, CHECKS))
    }
    assert mended["one-at-a-time"].state is State.BROKEN
    assert mended["running"].state is State.BROKEN
    assert mended["counters"].state is State.REPAIRED


async def test_what_cannot_be_repaired_is_told_and_not_thrown(patient: Patient):
    """The constraint cannot be made while a row breaks it."""
    await patient.pool.execute(CASES["a status that there is not"].planted)
    checks = [the("constraints")]
    (mended,) = await repair(patient, checks, await examine(patient, checks))
    assert mended.state is State.BROKEN
    assert "could not be repaired: check constraint" in mended.told


async def test_of_many_breaches_some_are_shown_and_all_are_counted(patient: Patient):
    await patient.pool.execute(
        "INSERT INTO job_counts SELECT -n, 'NEW', 1 FROM generate_series(1, 12000) AS n"
    )
    (finding,) = await examine(patient, [the("counters")])
    assert finding.count == doctor.COUNTED_MAX + 1
    assert finding.told.count("; ") == 3
    assert finding.told.endswith("more than 10,000 more")


async def test_quick_leaves_out_what_reads_whole_tables(patient: Patient):
    await patient.pool.execute("DELETE FROM job_counts")
    found = await examine(patient, CHECKS, quick=True)
    left_out = {finding.check.name for finding in found if finding.state is State.NOT_RUN}
    assert left_out == {check.name for check in CHECKS if check.scans}
    assert wrong(found) == {}


async def test_a_question_that_takes_too_long_is_given_up(copy_url: str):
    async with pooled(copy_url, size=3) as pool, pool.acquire() as holder, holder.transaction():
        await holder.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        patient = Patient(settings_for(copy_url), 0.3, pool)
        finding, other = await examine(patient, [the("runs"), the("queue")])
    assert (finding.state, other.state) == (State.NOT_RUN, State.OK)
    assert "given up after 0.3 s" in finding.told


async def test_a_repair_does_not_wait_for_long(copy_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_LOCK_WAIT_S", 0.3)
    async with pooled(copy_url, size=3) as pool, pool.acquire() as holder, holder.transaction():
        await pool.execute("DELETE FROM queue")
        await holder.execute("SELECT FROM executions FOR UPDATE")
        patient = Patient(settings_for(copy_url), LIMIT_S, pool)
        (finding,) = await repair(patient, [the("queued")], await examine(patient, [the("queued")]))
    assert finding.state is State.BROKEN
    assert "could not be repaired: canceling statement due to lock timeout" in finding.told


async def test_two_who_repair_at_once_take_turns(patient: Patient, copy_url: str):
    """The second one finds the counters right, instead of adding what is missing once more."""
    await patient.pool.execute("DELETE FROM job_counts")
    async with pooled(copy_url, size=2) as pool:
        other = Patient(patient.settings, LIMIT_S, pool)
        mend = the("counters").repair
        assert mend is not None
        assert min(await asyncio.gather(mend.do(patient), mend.do(other))) == 0
    assert wrong(await examine(patient, [the("counters")])) == {}


async def test_a_role_that_may_not_look_is_told_so(patient: Patient):
    await patient.pool.execute("DROP ROLE IF EXISTS onward_blind; CREATE ROLE onward_blind LOGIN")
    assert patient.settings.database_url is not None
    url = patient.settings.database_url.replace("postgres@", "onward_blind@")
    try:
        async with pooled(url, size=2) as pool:
            blind = Patient(patient.settings, LIMIT_S, pool)
            found = {finding.check.name: finding for finding in await examine(blind, CHECKS)}
            await patient.pool.execute("GRANT USAGE ON SCHEMA onward TO onward_blind")
            (queue,) = await examine(blind, [the("queue")])
    finally:
        await patient.pool.execute("DROP OWNED BY onward_blind; DROP ROLE onward_blind")
    assert found["schema"].state is State.BROKEN
    assert "permission denied for schema" in found["schema"].told
    assert found["queue"].state is State.NOT_RUN
    assert (queue.state, queue.told) == (State.NOT_RUN, "permission denied for table queue")


# The server and the settings


async def test_an_open_transaction_is_seen(patient: Patient, copy_url: str):
    connection = await asyncpg.connect(copy_url, server_settings={"application_name": "slow"})
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_current_xact_id()")
            found = await doctor.breaches(patient.pool, "long_transactions", 0.0, limit_s=LIMIT_S)
            assert any("(slow)" in told for told in found.shown)
            assert wrong(await examine(patient, [the("long-transactions")])) == {}, "not yet"
    finally:
        await connection.close()


async def test_the_settings_are_weighed_against_the_server(patient: Patient, copy_url: str):
    greedy = settings_for(copy_url, pool_size=500, worker_capacity=100_000)
    found = await examine(
        Patient(greedy, LIMIT_S, patient.pool), [the("connections"), the("locks")]
    )
    assert [finding.state for finding in found] == [State.WARNING] * 2
    strict = greedy.model_copy(update={"require_durable": True})
    (finding,) = await examine(Patient(strict, LIMIT_S, patient.pool), [the("durable")])
    assert finding.state is State.BROKEN
    assert "fsync" in finding.told


async def test_a_clock_that_is_wrong_is_seen(patient: Patient, monkeypatch: pytest.MonkeyPatch):
    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(hours=1)

    monkeypatch.setattr(server_checks, "datetime", Ahead)
    (finding,) = await examine(patient, [the("clock")])
    assert finding.state is State.WARNING
    assert "-3600" in finding.told


async def test_without_the_schema_the_tables_are_not_asked(patient: Patient):
    await patient.pool.execute("UPDATE schema_revision SET version_num = '0007'")
    found = {finding.check.name: finding for finding in await examine(patient, CHECKS)}
    assert found["schema"].state is State.BROKEN
    assert "at 0007" in found["schema"].told
    assert found["clock"].state is State.OK
    assert {found[check.name].state for check in INVARIANTS} == {State.NOT_RUN}


async def test_without_a_server_that_is_what_is_told(copy_url: str):
    found = await examine(Patient(settings_for(copy_url), LIMIT_S, away="gone fishing"), CHECKS)
    assert (found[0].check.name, found[0].state, found[0].told) == (
        "postgresql",
        State.BROKEN,
        "gone fishing",
    )
    assert {finding.state for finding in found[1:]} == {State.NOT_RUN}


def test_every_table_of_months_is_looked_into():
    assert all(f"{table}_default" in doctor.SQL["caught"] for table in MONTHLY)


# A busy system


async def busy(opened: Onward, count: int, sleep_s: float) -> None:
    """Submit jobs of all kinds, and hold back, cancel and let go some of them."""
    pool, chance = opened.commands.pool, random.Random(7)
    await pool.execute("INSERT INTO hosts (name) SELECT 'h' || n FROM generate_series(1, 60) AS n")
    await pool.execute(
        "INSERT INTO command_types (name, read_only, timeout_s, max_retries) "
        "VALUES ('noop', false, 1, 50), ('look', true, 1, 50)"
    )
    for number in range(count):
        kind, limit = chance.choice(["noop", "look"]), chance.choice([None, None, 7])
        params = json.dumps({"sleep_s": sleep_s})
        wanted = NewJob(f"job {number}", kind, params, parse("all"), limit, "ann")
        made = await jobs.submit(pool, wanted)
        await say_something(chance)
        match number % 5:
            case 1:
                await asyncio.sleep(0.05)
                await jobs.cancel(pool, made.job_id, by="ann")
            case 2:
                paused = await jobs.pause(
                    pool, made.job_id, version=made.version, paused=True, by="ann"
                )
                assert paused is not None
                await jobs.pause(pool, made.job_id, version=paused.version, paused=False, by="ann")


async def say_something(chance: random.Random) -> None:
    """Make commands, and say of each what may or may not fit."""
    for _ in range(10):
        made = await create_command(node="pump")
        assert made.record is not None
        cmd_id = made.record.cmd_id
        events = chance.sample(["send", "ack", "done", "send_fail", "fail", "timeout"], 3)
        await asyncio.gather(*(record_event(cmd_id, event) for event in events))


async def test_a_busy_engine_gives_no_false_alarm(opened: Onward, tried: Tried, proof):
    """Hosts answer late, twice and not at all, jobs come and go, and every look finds all well."""
    looks = 0
    async with (
        simulated_hosts(Simulated("bad", seed=11)) as channel,
        working(opened, channel, QUICK),
        pooled(opened.database_url, size=2) as pool,
    ):
        patient = Patient(opened.settings, LIMIT_S, pool)
        storm = asyncio.create_task(busy(opened, 100 if proof else 6, 0.03))
        settled = asyncio.create_task(_settled(storm, opened.commands.pool))
        while not settled.done():
            found = await repair(patient, CHECKS, await examine(patient, CHECKS))
            assert {finding.state for finding in found} <= {State.OK, State.WARNING}
            assert wrong(found) == {}
            looks += 1
        await settled
        assert looks > 3
        assert wrong(await examine(patient, CHECKS)) == {}
    tried("looks of the doctor at a busy engine", looks * len(CHECKS), "0 false alarms")


async def _settled(storm: asyncio.Task[None], pool: Pool) -> None:
    await storm
    await until_settled(pool)


async def test_a_busy_engine_is_mended_under_its_hands(opened: Onward):
    """What was taken away is put back while others move: nothing is lost, doubled or miscounted."""
    async with (
        simulated_hosts(Simulated("calm", seed=3)) as channel,
        working(opened, channel, QUICK),
        pooled(opened.database_url, size=2) as pool,
    ):
        patient = Patient(opened.settings, LIMIT_S, pool)
        storm = asyncio.create_task(busy(opened, 8, 0.2))
        settled = asyncio.create_task(_settled(storm, opened.commands.pool))
        broken = 0
        while not settled.done():
            taken = await pool.execute(
                "DELETE FROM queue WHERE ctid = ANY (ARRAY(SELECT ctid FROM queue LIMIT 20))"
            )
            broken += int(taken.split()[1])
            if not broken:
                continue  # nothing waits yet, and soon something will
            await pool.execute(
                "INSERT INTO job_counts SELECT id, 'SUCCESS', 3 FROM jobs ORDER BY id LIMIT 3"
            )
            await repair(patient, CHECKS, await examine(patient, CHECKS))
        assert broken
        await settled
        assert wrong(await repair(patient, CHECKS, await examine(patient, CHECKS))) == {}
