"""The storm: what it says, what it leaves behind, and that it can say no."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import onward
from onward import commands
from onward.storm import invariants, journal, sabotage
from onward.storm.invariants import Evidence
from onward.storm.journal import Confirmation, Journal
from onward.storm.plan import SENDERS, draw, source_of
from onward.storm.sender import Job
from onward.wiring import Onward
from tests.conftest import settings_for

BOUND_S = 60


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A place for temporary files that other users may pass, which pytest's own do not allow."""
    path = Path(tempfile.mkdtemp(prefix="onward-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
async def opened(shared_url: str) -> AsyncIterator[Onward]:
    async with onward.open(settings_for(shared_url)) as found:
        yield found


@pytest.fixture(scope="module")
async def evidence(opened: Onward) -> Evidence:  # noqa: ARG001 - what is open is found by itself
    """A storm without wind: said in one process, the second sender's second half in a new life."""
    plan = draw(commands=60, seed=3, connections=4)
    for cmd_id, story in plan.commands:
        await commands.create_command(cmd_id, timeout_s=story.timeout_s)
    confirmed = {}
    half = len(plan.sayings) // 2
    for saying in plan.sayings:
        life = 2 if saying.sender == 1 and saying.number > half else 1
        source = source_of(saying.sender, life, saying.number)
        answer = await commands.record_event(saying.cmd_id, saying.event, source=source)
        confirmed[source] = answer.result.value
    timed_out = await commands.expire_due(now=datetime.now(UTC) + timedelta(hours=1))
    return Evidence(plan, confirmed, "south.1/", len(timed_out), looks=1, unwatched=0)


def onward_storm(*options: str, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "onward", "storm", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )


def test_a_storm_keeps_every_promise_and_leaves_nothing_behind(temporary: Path, proof):
    figures = ("--commands", "10000" if proof else "300", "--seed", "7")
    storm = onward_storm(*figures, temporary=temporary)
    report, told = storm.communicate(timeout=240)
    assert storm.returncode == 0, told
    assert "Every promise held." in report
    assert report.count("holds") == len(sabotage.PLANTS)
    assert "on 16 connections" in report
    assert "seed 7" in told
    assert re.search(r"killed sender south \(pid \d+, SIGKILL\)", told)
    assert list(temporary.iterdir()) == []


def test_a_storm_that_finds_a_promise_broken_names_it_and_leaves_with_one(temporary: Path):
    storm = onward_storm(
        "--commands", "60", "--plant", "ended-once", "--seed", "7", temporary=temporary
    )
    report, told = storm.communicate(timeout=240)
    assert storm.returncode == 1, told
    assert "Broken: ended-once." in report
    assert re.search(r"BROKEN +ended-once", report)
    assert re.search(r"holds +replayable", report)
    assert "Traceback" not in told


def test_an_interrupted_storm_stops_everything_it_started_and_says_nothing(temporary: Path):
    storm = onward_storm("--commands", "20000", temporary=temporary)
    _read_until(storm, "letting")
    senders = _children(storm.pid)
    assert len(senders) == len(SENDERS)
    storm.send_signal(signal.SIGINT)
    report, told = storm.communicate(timeout=BOUND_S)
    assert storm.returncode == 130
    assert "Traceback" not in told
    assert report == ""
    assert [pid for pid in senders if _runs(pid)] == []
    assert list(temporary.iterdir()) == []


def test_a_sender_leaves_with_its_conductor_and_begins_again_where_it_was_not_answered(
    database_url: str, tmp_path: Path
):
    """It has its answers up to the limit and waits to be killed; then its orders end instead."""
    told = tmp_path / "journal"
    job = Job(database_url, 20, 1, connections=2, sender=1, life=1, journal=str(told), limit=10)
    share = job.remaining()
    with subprocess.Popen(
        [sys.executable, "-m", "onward.storm.sender"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "ONWARD_REQUIRE_DURABLE": "false"},
    ) as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        sender.stdin.write(job.to_line())
        sender.stdin.flush()
        assert sender.stdout.readline() == b"ready\n"
        sender.stdin.write(b"go\n")
        sender.stdin.flush()
        _wait(lambda: journal.count(told) == 10)
        assert sender.poll() is None
        sender.stdin.close()
        try:
            assert sender.wait(timeout=BOUND_S) != 0
        finally:
            sender.kill()
    # Nobody has made these commands: that, too, is an answer.
    assert {confirmed.verdict for confirmed in journal.read(told)} == {"UNKNOWN_COMMAND"}
    assert replace(job, life=2).remaining() == share[10:]


async def test_what_the_storm_asks_the_database_is_answered_with_yes(evidence: Evidence, pool):
    async with pool.acquire() as connection:
        findings = await invariants.check(connection, evidence)
    assert [finding.name for finding in findings] == list(sabotage.PLANTS)
    assert [finding.summary for finding in findings if not finding.holds] == []


async def test_every_promise_of_the_storm_can_be_found_broken(evidence: Evidence, pool):
    """Each is broken behind Onward's back, in a transaction that is then taken back."""
    async with pool.acquire() as connection:
        for name in sabotage.PLANTS:
            transaction = connection.transaction()
            await transaction.start()
            await sabotage.plant(connection, name)
            found = {one.name: one for one in await invariants.check(connection, evidence)}
            await transaction.rollback()
            assert not found[name].holds, name
            assert found[name].summary != found[name].basis


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        # The killed sender's word may be missing; anybody else's may not.
        (lambda e: _without(e, "south.1/"), []),
        (lambda e: _without(e, "south.2/"), ["adds-up"]),
        (lambda e: _without(e, "north.1/"), ["adds-up"]),
        (lambda e: replace(e, timed_out=e.timed_out + 1), ["adds-up"]),
        (lambda e: replace(e, unwatched=1), ["always-watched"]),
        (lambda e: replace(e, plan=replace(e.plan, commands=e.plan.commands[1:])), ["ended-once"]),
    ],
)
async def test_the_accounts_do_not_add_up_when_an_answer_is_missing(
    evidence: Evidence, pool, change: Callable[[Evidence], Evidence], broken: list[str]
):
    async with pool.acquire() as connection:
        findings = await invariants.check(connection, change(evidence))
    found = [finding.name for finding in findings if not finding.holds]
    assert set(broken) <= set(found)
    assert bool(broken) == bool(found)


async def test_an_answer_that_was_never_given_is_noticed(evidence: Evidence, pool):
    """A sender that was told OK where the timeline says otherwise, or of what is not there."""
    source = next(s for s, verdict in evidence.confirmed.items() if verdict == "TERMINAL")
    lied_to = replace(evidence, confirmed={**evidence.confirmed, source: "OK"})
    async with pool.acquire() as connection:
        found = {one.name: one for one in await invariants.check(connection, lied_to)}
    assert found["adds-up"].breaches == (f"{source} was told OK, the timeline says TERMINAL",)

    ghost = replace(evidence, confirmed={**evidence.confirmed, "south.9/0": "OK"})
    async with pool.acquire() as connection:
        found = {one.name: one for one in await invariants.check(connection, ghost)}
    assert "was confirmed to south.9/0 and is gone" in found["nothing-lost"].summary


def test_a_storm_is_drawn_from_its_seed():
    drawn = draw(commands=50, seed=1, connections=4)
    assert draw(commands=50, seed=1, connections=4) == drawn
    assert draw(commands=50, seed=2, connections=4) != drawn


def test_every_event_is_said_twice_and_those_of_a_command_by_both_senders_in_turn():
    plan = draw(commands=500, seed=5, connections=16)
    said = Counter((saying.cmd_id, saying.event) for saying in plan.sayings)
    assert set(said.values()) == {2}
    assert len(said) == sum(len(command.story.events) for command in plan.commands)
    senders = defaultdict(list)
    for saying in plan.sayings:
        senders[saying.cmd_id].append(saying.sender)
    for turns in senders.values():
        assert all(one != next_ for one, next_ in pairwise(turns))
    assert sorted(saying.number for sender in (0, 1) for saying in plan.share(sender)) == [
        *range(len(plan.sayings))
    ]


def test_half_a_record_at_the_end_of_a_journal_is_forgotten(tmp_path: Path):
    path = tmp_path / "journal"
    with Journal(path) as told:
        told.confirm([Confirmation(1, 1, "OK"), Confirmation(2, 1, "UNKNOWN_COMMAND")])
    path.write_bytes(path.read_bytes()[:-5])
    assert journal.read(path) == [Confirmation(1, 1, "OK")]
    with Journal(path) as told:
        told.confirm([Confirmation(2, 2, "STALE")])
    assert journal.read(path) == [Confirmation(1, 1, "OK"), Confirmation(2, 2, "STALE")]
    assert journal.count(path) == 2


def _without(evidence: Evidence, whose: str) -> Evidence:
    """Take one confirmation away."""
    source = next(source for source in evidence.confirmed if source.startswith(whose))
    kept = {key: verdict for key, verdict in evidence.confirmed.items() if key != source}
    return replace(evidence, confirmed=kept)


def _read_until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    pytest.fail(f"it ended without saying {word!r}")


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for tasks in listed for child in tasks.read_text("ascii").split()]
    return [child for child in found if b"onward.storm.sender" in _command_line(child)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def _runs(pid: int) -> bool:
    # A zombie has no command line any more.
    return b"onward.storm.sender" in _command_line(pid)


def _wait(over: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not over():
        assert time.monotonic() < deadline
        time.sleep(0.02)
