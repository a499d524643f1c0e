"""The edge: exit codes, what goes to which stream, and that nobody is shown a traceback unasked."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import asyncpg
import pytest

import onward
from onward import cli, scratch
from onward.cli import EXIT_CODES
from onward.errors import OnwardError
from onward.store.schema import HEAD
from tests.cli.running import environment

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
_numbers = count(1)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onward", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def everything_below(error: type[OnwardError]) -> Iterator[type[OnwardError]]:
    yield error
    for below in error.__subclasses__():
        yield from everything_below(below)


def test_every_error_has_an_exit_code():
    for module in pkgutil.walk_packages(onward.__path__, "onward."):
        if not module.name.endswith((".__main__", ".env")) and ".versions." not in module.name:
            importlib.import_module(module.name)
    known = {error for error in everything_below(OnwardError) if error.__module__[:7] == "onward."}
    assert known == set(EXIT_CODES)
    assert all(0 < code < 128 for code in EXIT_CODES.values())


def test_a_failure_is_one_line_on_standard_error():
    ended = run("db", "status", ONWARD_DATABASE_URL=NOWHERE)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("onward: PostgreSQL at 127.0.0.1:1 cannot be used")


def test_the_traceback_is_shown_to_whoever_asks_for_it():
    ended = run("--debug", "db", "status", ONWARD_DATABASE_URL=NOWHERE)
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "ServerUnreachable" in ended.stderr


def test_a_wrong_setting_is_named_in_one_line():
    ended = run("db", "status", ONWARD_POOL_SIZE="many", ONWARD_DATABASE_URL=NOWHERE)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("onward: ONWARD_POOL_SIZE: ")


def test_an_interrupted_command_leaves_quietly_with_130(monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as left:
        cli.main(["storm"])
    assert left.value.code == 130
    assert capsys.readouterr() == ("", "")


def shell(script: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in which $onward is the command."""
    there = {"ONWARD_URL": "http://127.0.0.1:1", "ONWARD_KEY": "key"}
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(place, onward=f"{sys.executable} -m onward", **there),
    )


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("$onward --version >&-", 0, ""),
        ("$onward context show >&-", 1, "onward: cannot write: Bad file descriptor.\n"),
        ("$onward context show > /dev/full", 1, "onward: cannot write: No space left on device.\n"),
        ("$onward help output > /dev/full", 1, "onward: cannot write: No space left on device.\n"),
        ("$onward jobs show $'\\xff'", 2, "onward: what was given is not UTF-8"),
        ("$onward jobs --url 'http://a..b'", 2, "onward: --url: is not the address of a service"),
        (
            "$onward blocks add X --host h --reason r --until 99999999999d",
            2,
            "onward: --until 99999999999d: no calendar goes so far.\n",
        ),
        ("$onward jobs <&- 2>&-", 10, ""),
    ],
)
def test_what_cannot_be_written_or_meant_is_no_bug(
    tmp_path: Path, script: str, code: int, said: str
):
    ended = shell(script, tmp_path)
    assert (ended.returncode, ended.stdout) == (code, ""), ended
    assert ended.stderr.startswith(said)
    assert len(ended.stderr.splitlines()) == bool(said)


def test_a_command_line_that_is_not_understood_leaves_with_two():
    ended = run("strom")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_help_loads_neither_the_driver_nor_the_settings():
    asked = (
        "import sys\n"
        "from onward.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "print('LOADED', *sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, timeout=60, check=True
    )
    shown, _, loaded = ended.stdout.partition("LOADED")
    assert "storm" in shown
    heavy = {"asyncpg", "alembic", "pydantic", "onward.settings", "onward.wiring", "onward.store"}
    assert heavy & set(loaded.split()) == set()


@pytest.fixture
async def empty_database(server_url: str):
    """A database that has never seen Onward."""
    name = f"onward_cli_{os.getpid()}_{next(_numbers)}"
    yield await scratch.new_database(server_url, name)
    connection = await asyncpg.connect(server_url)
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


def test_a_database_is_looked_at_scripted_and_upgraded(empty_database: str):
    def db(*arguments: str) -> str:
        ended = run(
            "db", *arguments, ONWARD_DATABASE_URL=empty_database, ONWARD_REQUIRE_DURABLE="false"
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert "schema    nothing yet" in db("status")
    script = db("upgrade", "--sql")
    assert "CREATE TABLE onward.commands" in script
    assert "schema    nothing yet" in db("status"), "printing the script has changed nothing"
    assert db("upgrade") == f"The schema was at nothing and is now at {HEAD}.\n"
    assert f"schema    {HEAD}" in db("status")
    assert db("upgrade", "--sql").startswith("-- ")


def test_the_generated_pages_are_fresh():
    pages = Path(__file__).parents[2] / "docs"
    ended = run("docs", "--check", "--into", str(pages))
    assert ended.returncode == 0, ended.stderr


def test_a_stale_page_is_named_and_written_anew(tmp_path: Path):
    assert run("docs", "--into", str(tmp_path)).returncode == 0
    assert sorted(page.name for page in tmp_path.iterdir()) == [
        "cli.md",
        "lifecycles.md",
        "settings.md",
    ]
    stale = tmp_path / "settings.md"
    stale.write_text("edited by hand", encoding="utf-8")

    checked = run("docs", "--check", "--into", str(tmp_path))
    assert checked.returncode == 1
    assert checked.stderr == f"{stale} is stale; run `onward docs`.\n"
    assert stale.read_text(encoding="utf-8") == "edited by hand"

    assert run("docs", "--into", str(tmp_path)).stdout == f"wrote {stale}\n"
    assert run("docs", "--check", "--into", str(tmp_path)).returncode == 0
