"""Trading: what the demo says and leaves behind, that it can say no, and how books are checked."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from onward import embedded, scratch
from onward.demo.trading import evidence, invariants, journal, sabotage
from onward.demo.trading.evidence import Evidence
from onward.demo.trading.journal import Told
from onward.demo.trading.script import MARKETS
from onward.store import database, ledger
from tests.cli.running import BOUND_S, Ended, at_once, folder_for_servers, on_database
from tests.cli.test_demo import ended_early, processes_with

SECONDS = 3


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """A place for temporary files and for data that is kept."""
    with folder_for_servers() as path:
        yield path


@pytest.fixture(scope="module")
def demos(temporary: Path) -> Iterator[list[Future[Ended]]]:
    """A short demo that goes well and keeps its data, and one of which a promise is broken."""
    planted = temporary / "planted"
    planted.mkdir()
    well = ("--seed", "7", "--data-dir", str(temporary / "kept"), str(temporary))
    with at_once(trade_demo, well, ("--plant", "one-winner", str(planted))) as begun:
        yield begun


@pytest.fixture(scope="module")
def kept(temporary: Path, demos: list[Future[Ended]]) -> Iterator[Path]:
    """The data of a short demo that went well."""
    folder = temporary / "kept"
    demo = demos[0].result()
    assert demo.code == 0, demo.report + demo.told
    (folder / "report").write_text(demo.report + demo.told, encoding="utf-8")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def kept_url(kept: Path) -> Iterator[str]:
    """The database that the short demo has left."""
    with embedded.servers(kept) as servers:
        yield servers.database_url


def trade_demo(*options: str, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "onward", "trade", "demo", "--seconds", str(SECONDS), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whatever the machine's own service is set to must not matter here.
        env={**os.environ, "TMPDIR": str(temporary), "ONWARD_DATABASE_URL": "postgresql://x@/no"},
    )


def trade_check(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onward", "trade", "check"],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, **on_database(url)},
    )


async def gathered(pool: database.Pool, kept: Path, *more: Told) -> Evidence:
    told = [*journal.read(kept), *more]
    return await evidence.gather(pool, told, looks=0, missed=())


def test_a_demo_keeps_every_promise_and_shows_it(kept: Path):
    report = (kept / "report").read_text("utf-8")
    assert "Every promise held." in report
    assert len(re.findall("^holds ", report, re.MULTILINE)) == len(sabotage.PLANTS)
    assert "seed 7" in report
    for market in MARKETS:
        assert f"the book of {market.name}" in report
        assert re.search(rf"^{market.currency} +[\d,.]+ .* 0$", report, re.MULTILINE)
    assert re.search(r"emptied Valkey: \d+ locks and tokens", report)
    assert re.search(r"killed service 2 \(pid \d+, SIGKILL\)", report)
    assert re.search(r"^412 +stale +\d", report, re.MULTILINE)


def test_those_who_trade_are_accepted_refused_and_answered_again(kept: Path):
    told = list(journal.read(kept))
    assert {journal.ACCEPTED, 412, 422} <= {each.status for each in told}
    assert {journal.DEPOSIT, journal.BUY, journal.SELL} <= {
        each.wanted.deed for each in told if each.accepted
    }
    assert any(each.replayed for each in told)


def test_a_demo_that_finds_a_promise_broken_names_it_and_leaves_with_one(
    temporary: Path, demos: list[Future[Ended]]
):
    """It also shows that nothing is left behind in the end."""
    code, report, told = demos[1].result()
    assert code == 1, told
    assert re.search(r"Broken: .*one-winner", report)
    assert re.search(r"BROKEN +one-winner", report)
    assert re.search(r"holds +one-deal", report)
    assert "Traceback" not in told
    assert list((temporary / "planted").iterdir()) == []


async def test_every_promise_of_the_trading_can_be_found_broken(kept: Path, kept_url: str):
    """Each is broken behind everybody's back, in a copy of the database of its own."""
    async with database.pooled(kept_url, size=1) as pool:
        whole = invariants.check(await gathered(pool, kept))
    assert [one.name for one in whole if not one.holds] == []
    assert {one.name for one in whole} == set(sabotage.PLANTS)
    for name in sabotage.PLANTS:
        copy = await copied(kept_url, "broken")
        async with database.pooled(copy, size=1) as pool:
            forged = await sabotage.plant(pool, await gathered(pool, kept), name)
            broken = invariants.check(await gathered(pool, kept, *forged))
        found = {one.name: one for one in broken}
        assert not found[name].holds, name
        assert found[name].summary != found[name].basis


async def copied(url: str, name: str) -> str:
    """Copy a database that nobody is connected to."""
    original = urlsplit(url).path.removeprefix("/")
    postgres = await asyncpg.connect(scratch.database_at(url, "postgres"))
    try:
        await postgres.execute(f"DROP DATABASE IF EXISTS {name}")
        await postgres.execute(f"CREATE DATABASE {name} TEMPLATE {original}")
    finally:
        await postgres.close()
    return scratch.database_at(url, name)


def test_a_demo_that_is_ended_early_takes_everything_with_it(temporary: Path):
    """Also when it is killed: all that it has started notice, and the last stops the servers."""
    numbers = {signal.SIGINT: 130, signal.SIGKILL: -9}
    places = {number: temporary / f"ended-{number}" for number in numbers}
    begun = {}
    for number, place in places.items():
        place.mkdir()
        begun[number] = trade_demo(temporary=place)
    for number, demo in begun.items():
        assert demo.stderr is not None
        for line in demo.stderr:
            if "they trade" in line:
                break
        # One of the two services may just have been killed, which is part of the demonstration.
        assert len(processes_with(str(places[number]))) >= 3, "a service, and servers"
        demo.send_signal(number)
    for number, code in numbers.items():
        ended_early(begun[number], places[number], code)
    assert list(places[signal.SIGINT].iterdir()) == []


def test_a_folder_that_holds_something_is_not_used(temporary: Path):
    place = temporary / "full"
    place.mkdir()
    (place / "something").touch()
    demo = trade_demo("--data-dir", str(place), temporary=temporary)
    _, told = demo.communicate(timeout=BOUND_S)
    assert demo.returncode == 1
    assert told.splitlines()[-1].endswith("is not empty; name a folder that is new")


async def test_books_that_are_right_are_said_to_be_and_a_cent_too_much_is_found(database_url: str):
    async with database.pooled(database_url, size=1) as pool:
        await ledger.post(pool, ledger.Post("ann", "EUR", 1, "deposit", 1_250))
        right = trade_check(database_url)
        assert (right.returncode, right.stderr) == (0, "")
        assert "1 operations on 1 accounts, 0 deals, 0 open orders" in right.stdout
        assert "EUR: available 1,250, outside -1,250" in right.stdout
        assert right.stdout.splitlines()[-1].startswith("The books are right")
        await pool.execute("UPDATE accounts SET available = available + 1")
    wrong = trade_check(database_url)
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert "wrong: ann has 1251 and 0 held of EUR, but the ledger says 1250 and 0" in wrong.stdout
    assert wrong.stdout.splitlines()[-1] == "The books are wrong."


async def test_a_database_without_books_is_not_said_to_be_right(server_url: str):
    name = f"onward_no_books_{os.getpid()}"
    empty = await scratch.new_database(server_url, name)
    ended = trade_check(empty)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("onward: The database is at revision nothing")
    connection = await asyncpg.connect(server_url)
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()
