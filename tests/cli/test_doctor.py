"""`onward doctor` as a person and a program see it: lines, JSON, exit codes, and no traceback."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from onward import scratch
from onward.cli.doctor import _checks
from onward.store import database, ledger
from tests.cli.running import BOUND_S, environment, folder_for_servers, on_database, onward_up

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_servers() as path:
        yield path


def doctor(folder: Path, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onward", "doctor", *options],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env=environment(folder, ONWARD_PORT="1", **settings),
    )


def states(said: str) -> dict[str, str]:
    """The state of every check, from JSON."""
    return {check["name"]: check["state"] for check in json.loads(said)["checks"]}


def told(said: str, name: str) -> dict[str, Any]:
    return next(check for check in json.loads(said)["checks"] if check["name"] == name)


def test_a_database_that_is_well_is_said_to_be(folder: Path, database_url: str):
    ended = doctor(folder, **on_database(database_url))
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert any(line.startswith("ok        queue ") for line in lines)
    assert any(line.startswith("warning   workers ") for line in lines), "nobody works here"
    assert "-> Start one: `onward up`, or `onward worker`." in ended.stdout
    assert lines[-1].startswith("Everything that was checked holds.")
    assert "\x1b" not in ended.stdout


def test_the_findings_are_there_for_programs_too(folder: Path, database_url: str):
    ended = doctor(folder, "-o", "json", "--quick", **on_database(database_url))
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert found["holds"] is True
    assert set(found["checks"][0]) == {
        *("name", "state", "holds", "told", "count", "advice", "repair"),
    }
    assert states(ended.stdout)["counters"] == "not run"
    assert states(ended.stdout)["books"] == "not run"


async def test_what_is_broken_is_planned_mended_and_looked_at_again(
    folder: Path, database_url: str
):
    settings = on_database(database_url)
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("INSERT INTO onward.queue VALUES (1, 7, 1, false, now())")
        broken = doctor(folder, **settings)
        assert (broken.returncode, broken.stderr) == (1, "")
        assert "broken    queue " in broken.stdout
        assert "there is no such execution" in broken.stdout
        assert "Broken: queue." in broken.stdout

        planned = doctor(folder, "--repair", "--dry-run", **settings)
        assert (planned.returncode, planned.stderr) == (1, "")
        assert (
            "--repair would write the rows of `queue` anew from the executions." in planned.stdout
        )
        assert await connection.fetchval("SELECT count(*) FROM onward.queue") == 1

        mended = doctor(folder, "--repair", **settings)
        assert mended.returncode == 0
        assert mended.stderr.startswith("repairing queue: write the rows")
        assert "repaired  queue " in mended.stdout
        assert await connection.fetchval("SELECT count(*) FROM onward.queue") == 0

        again = doctor(folder, "--repair", "-o", "json", **settings)
        assert (again.returncode, again.stderr) == (0, "")
        assert "repaired" not in states(again.stdout).values()
    finally:
        await connection.close()


async def test_the_books_are_looked_at_as_well(folder: Path, database_url: str):
    async with database.pooled(database_url, size=1) as pool:
        await ledger.post(pool, ledger.Post("ann", "EUR", 1, "deposit", 1_250))
        await pool.execute("UPDATE accounts SET available = available + 1")
    ended = doctor(folder, "-o", "json", **on_database(database_url))
    assert ended.returncode == 1
    assert told(ended.stdout, "books")["state"] == "broken"
    assert "ann has 1251" in told(ended.stdout, "books")["told"]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (NOWHERE, "PostgreSQL at 127.0.0.1:1 cannot be used"),
        ("postgresql://[", "not a PostgreSQL address"),
    ],
)
def test_without_a_server_the_rest_is_said_all_the_same(folder: Path, url: str, sentence: str):
    ended = doctor(folder, "-o", "json", ONWARD_DATABASE_URL=url)
    assert (ended.returncode, ended.stderr) == (1, "")
    found = states(ended.stdout)
    assert (found["python"], found["postgresql"], found["queue"]) == ("ok", "broken", "not run")
    assert sentence in told(ended.stdout, "postgresql")["told"]


async def test_a_wrong_password_is_told_without_it(
    folder: Path, server_url: str, database_url: str
):
    del server_url
    url = database_url.replace("postgres@", "nobody:s3cret-word@")
    ended = doctor(folder, ONWARD_DATABASE_URL=url)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert 'role "nobody" does not exist' in ended.stdout
    assert "s3cret-word" not in ended.stdout


def test_a_folder_without_a_database_is_left_so(folder: Path):
    ended = doctor(folder)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert f"There is no database in {folder} yet: run `onward up`" in ended.stdout
    assert list(folder.iterdir()) == []


async def test_a_database_without_our_schema_is_told_to_be_upgraded(folder: Path, server_url: str):
    name = f"onward_no_schema_{os.getpid()}"
    url = await scratch.new_database(server_url, name)
    try:
        ended = doctor(folder, "-o", "json", "--repair", **on_database(url))
    finally:
        connection = await asyncpg.connect(server_url)
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()
    assert (ended.returncode, ended.stderr) == (1, "")
    assert told(ended.stdout, "schema")["state"] == "broken"
    assert "at nothing" in told(ended.stdout, "schema")["told"]
    assert "onward db upgrade" in told(ended.stdout, "schema")["advice"]
    assert states(ended.stdout)["law"] == "not run"


def test_keys_that_others_can_read_are_closed_to_them(folder: Path, database_url: str):
    key = folder / "admin-key"
    key.write_text("secret", encoding="ascii")
    key.chmod(0o644)
    settings = on_database(database_url)
    ended = doctor(folder, "-o", "json", **settings)
    assert ended.returncode == 1
    assert told(ended.stdout, "secrets")["told"] == f"{key} can be read by others"
    assert states(doctor(folder, "-o", "json", "--repair", **settings).stdout)["secrets"] == (
        "repaired"
    )
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_servers_beside_it_that_are_away_are_warnings(folder: Path, database_url: str):
    ended = doctor(
        folder,
        "-o",
        "json",
        **on_database(database_url),
        ONWARD_REDIS_URL="redis://127.0.0.1:1",
        ONWARD_BROKER_URL="amqp://127.0.0.1:1",
        ONWARD_URL="http://127.0.0.1:1",
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    found = states(ended.stdout)
    assert {found["valkey"], found["broker"], found["api"]} == {"warning"}


def test_a_service_is_looked_at_while_it_works(folder: Path):
    """The embedded server is shared with it, and goes on when the doctor has left."""
    with onward_up(folder) as up:
        ended = doctor(folder, "-o", "json", ONWARD_URL=up.address)
        found = states(ended.stdout)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert set(found.values()) == {"ok"}
        assert told(ended.stdout, "api")["told"] == f"{up.address} answers"
        with up.client() as client:
            assert client.get("/health/ready").status_code == 200


def test_the_page_names_every_check_what_must_hold_and_how_it_is_repaired():
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text("utf-8")
    expected = [
        f"| {check.name} | {check.holds} | "
        f"{f'`--repair` can {check.repair.told}' if check.repair else ''} |"
        for check in _checks()
    ]
    found = page[page.index("| check | what must hold |") :].strip().splitlines()[2:]
    assert found == expected, "\n".join(["docs/doctor.md should say", *expected])
