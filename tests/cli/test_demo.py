"""The demo: what it says, what it leaves behind, and that it can say no."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from onward import embedded
from onward.demo import evidence, invariants, sabotage
from onward.demo.evidence import Evidence
from onward.store import database
from tests.cli.running import BOUND_S, Ended, at_once, folder_for_servers, until

HOSTS = 15


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """A place for temporary files and for data that is kept."""
    with folder_for_servers() as path:
        yield path


@pytest.fixture(scope="module")
def demos(temporary: Path) -> Iterator[list[Future[Ended]]]:
    """A small demo that goes well and keeps its data, and one of which a promise is broken."""
    planted = temporary / "planted"
    planted.mkdir()
    well = ("--seed", "7", "--data-dir", str(temporary / "kept"), str(temporary))
    with at_once(onward_demo, well, ("--plant", "one-at-a-time", str(planted))) as begun:
        yield begun


@pytest.fixture(scope="module")
def kept(temporary: Path, demos: list[Future[Ended]]) -> Iterator[Path]:
    """The data of a small demo that went well."""
    folder = temporary / "kept"
    demo = demos[0].result()
    assert demo.code == 0, demo.told
    (folder / "report").write_text(demo.report + demo.told, encoding="utf-8")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def connection(kept: Path) -> AsyncIterator[database.Connection]:
    """A connection to what the small demo has left."""
    with embedded.servers(kept) as servers:
        opened = await database.connect(servers.database_url)
        yield opened
        await opened.close()


def onward_demo(*options: str, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "onward", "demo", "--hosts", str(HOSTS), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whatever the machine's own service is set to must not matter here.
        env={**os.environ, "TMPDIR": str(temporary), "ONWARD_DATABASE_URL": "postgresql://x@/no"},
    )


async def gathered(connection: database.Connection, kept: Path, *more: str) -> Evidence:
    journal = (kept / "journal").read_text("utf-8").splitlines()
    hosts = frozenset(row["id"] for row in await connection.fetch("SELECT id FROM hosts"))
    return await evidence.gather(connection, [*journal, *more], hosts=hosts, before_approval=0)


def test_a_demo_keeps_every_promise_and_shows_it(kept: Path):
    report = (kept / "report").read_text("utf-8")
    assert "Every promise held." in report
    assert report.count("holds") == len(sabotage.PLANTS)
    assert f"{3 * HOSTS} executions on {HOSTS} hosts" in report
    assert "seed 7" in report
    assert "ann tries to approve her own job with another key, and may not" in report
    assert "ben approves upgrade" in report
    assert re.search(r"killed worker 1 \(pid \d+, SIGKILL\)", report)


def test_a_demo_that_finds_a_promise_broken_names_it_and_leaves_with_one(
    temporary: Path, demos: list[Future[Ended]]
):
    """It also shows that nothing is left behind in the end."""
    code, report, told = demos[1].result()
    assert code == 1, told
    assert "Broken: one-at-a-time." in report
    assert re.search(r"BROKEN +one-at-a-time", report)
    assert re.search(r"holds +only-forward", report)
    assert "Traceback" not in told
    assert list((temporary / "planted").iterdir()) == []


async def test_every_promise_of_the_demo_can_be_found_broken(
    kept: Path, connection: database.Connection
):
    """Each is broken behind everybody's back, in a transaction that is then taken back."""
    whole = await gathered(connection, kept)
    assert [one.name for one in invariants.check(whole) if not one.holds] == []
    assert {one.name for one in invariants.check(whole)} == set(sabotage.PLANTS)
    for name in sabotage.PLANTS:
        transaction = connection.transaction()
        await transaction.start()
        forged = await sabotage.plant(connection, whole, name)
        broken = invariants.check(await gathered(connection, kept, *forged))
        await transaction.rollback()
        found = {one.name: one for one in broken}
        assert not found[name].holds, name
        assert found[name].summary != found[name].basis


def test_a_demo_that_is_ended_early_takes_everything_with_it(temporary: Path):
    """Also when it is killed: all that it has started notice, and the last stops the servers."""
    numbers = {signal.SIGINT: 130, signal.SIGKILL: -9}
    places = {number: temporary / f"ended-{number}" for number in numbers}
    begun = {}
    for number, place in places.items():
        place.mkdir()
        begun[number] = onward_demo(temporary=place)
    for number, demo in begun.items():
        assert demo.stderr is not None
        for line in demo.stderr:
            if "ann asks for upgrade" in line:
                break
        started = processes_with(str(places[number]))
        assert len(started) > 4, "a service, two workers, hosts, and servers"
        demo.send_signal(number)
    for number, code in numbers.items():
        ended_early(begun[number], places[number], code)
    assert list(places[signal.SIGINT].iterdir()) == []


def ended_early(demo: subprocess.Popen[str], place: Path, code: int) -> None:
    """See that a demo which was told to leave has done so, with all that it had started."""
    report, told = demo.communicate(timeout=BOUND_S)
    assert (demo.returncode, report) == (code, "")
    assert "Traceback" not in told
    until(lambda: processes_with(str(place)) == [])


def processes_with(word: str) -> list[int]:
    """The processes whose command line or environment names something."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        if int(path.name) == os.getpid():
            continue
        try:
            known = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if word.encode() in known:
            found.append(int(path.name))
    return found


def test_a_folder_that_holds_something_is_not_used(temporary: Path):
    place = temporary / "full"
    place.mkdir()
    (place / "something").touch()
    demo = onward_demo("--data-dir", str(place), temporary=temporary)
    _, told = demo.communicate(timeout=BOUND_S)
    assert demo.returncode == 1
    assert told.splitlines()[-1].endswith("is not empty; name a folder that is new")
