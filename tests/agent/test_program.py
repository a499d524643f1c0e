"""The agent as somebody starts it, against the real server: enrolled once, and gone when told."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import onward
from onward.agent import enrolment, state
from onward.agent.server import server_at
from onward.agent.state import Identity, State
from onward.channels.base import Delivery, Report, Target
from onward.cli import agent as command
from onward.cli import app
from onward.errors import InvalidInput, ServerUnreachable
from onward.fleet.agents import make_token
from onward.store import hosts
from onward.store.hosts import NewHost
from tests.agent.grounds import until
from tests.agents.ground import Server, serving
from tests.conftest import settings_for
from tests.present import TESTER

AS_ROOT = ("--allow-root",) if os.geteuid() == 0 else ()


@pytest.fixture(scope="module")
async def server(shared_url: str) -> AsyncIterator[Server]:
    async with onward.open(settings_for(shared_url)) as opened, serving(opened) as found:
        yield found


async def new_host(server: Server, name: str) -> tuple[int, str]:
    """A host, and a token for it."""
    made = await hosts.create(server.services.pool, NewHost(name, {}, "agent", ""), by=TESTER)
    assert made is not None
    token = await make_token(server.services.pool, made.host_id, by=TESTER)
    assert token is not None
    return made.host_id, token.token


@asynccontextmanager
async def started(
    server: Server, folder: Path, *words: str, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`onward agent`, until the block ends."""
    url = server.url.replace("ws", "http", 1)
    with (folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "onward", "agent", "--server", url),
            *("--state", str(folder / "state"), "--grace-s", "0.5", *AS_ROOT, *words),
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def sent(server: Server, host_id: int, number: int, *argv: str) -> tuple[Report, str]:
    said: list[str] = []
    delivery = Delivery(
        str(number), number, Target(host_id, "h", "", 1), "RUN", {"argv": [*argv]}, 20.0
    )
    report = await server.services.hub.deliver(delivery, lambda _, text: said.append(text))
    return report, "".join(said)


async def test_an_agent_enrols_once_runs_what_it_is_told_and_leaves_when_told(
    server: Server, tmp_path: Path
):
    host_id, token = await new_host(server, "enrolled")
    token_file = tmp_path / "token"
    token_file.write_text(f"{token}\n")
    hub = server.services.hub
    program = ("sh", "-c", 'echo ran >> "$0"; echo hello', str(tmp_path / "effects"))
    async with started(server, tmp_path, "--token-file", str(token_file)) as agent:
        await until(lambda: hub.has(host_id))
        assert await sent(server, host_id, 1, *program) == (Report(True, 0), "hello\n")
        for path in (tmp_path / "state", *(tmp_path / "state").iterdir()):
            assert path.stat().st_mode & 0o077 == 0 or path.name.startswith("journal")
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
        agent.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(agent.wait(), 20.0) == 0
    await until(lambda: not hub.has(host_id))
    token_file.unlink()
    async with started(server, tmp_path, "--token-file", str(token_file)):
        await until(lambda: hub.has(host_id))
        # Unless its receipt came before the signal, the result is said again without being asked
        # for, and then it is no repeat.
        report, _ = await sent(server, host_id, 1, *program)
        assert (report.succeeded, report.exit_code) == (True, 0)
    assert (tmp_path / "effects").read_text() == "ran\n", "its memory has outlived it"
    log = (tmp_path / "log").read_text()
    key = json.loads((tmp_path / "state/key.json").read_text())["key"]
    assert token not in log
    assert key not in log
    assert all(json.loads(line) for line in log.splitlines())


async def test_two_agents_cannot_share_a_directory(server: Server, tmp_path: Path):
    host_id, token = await new_host(server, "shared")
    async with started(server, tmp_path, ONWARD_AGENT_TOKEN=token):
        await until(lambda: server.services.hub.has(host_id))
        async with started(server, tmp_path, ONWARD_AGENT_TOKEN=token) as second:
            assert await asyncio.wait_for(second.wait(), 20.0) == 1
    assert "another agent uses" in (tmp_path / "log").read_text()


async def test_an_answer_that_got_lost_is_asked_for_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The agent was killed after the server had answered and before the key was on its disk."""
    _, token = await new_host(server, "asked-again")
    mine, at = State(tmp_path), server_at(server.url)
    with monkeypatch.context() as killed:
        killed.setattr(State, "keep_identity", _die)
        with pytest.raises(RuntimeError, match="killed"):
            await enrolment.identity(mine, at, token)
    found = await enrolment.identity(mine, at, token)
    assert mine.identity() == found
    assert found.host == "asked-again"
    assert not (tmp_path / "enrolment.json").exists()
    elsewhere = State(tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    with pytest.raises(InvalidInput, match="ask for another"):
        await enrolment.identity(elsewhere, at, token)  # who has seen the token, and not the nonce


def _die(*_: object) -> None:
    raise RuntimeError("killed")


async def test_a_new_token_brings_a_new_key_and_the_old_one_is_kept_without(
    server: Server, tmp_path: Path
):
    host_id, token = await new_host(server, "renewed")
    at = server_at(server.url)
    first = await enrolment.identity(State(tmp_path), at, token)
    assert await enrolment.identity(State(tmp_path), at, token) == first
    assert await enrolment.identity(State(tmp_path), at, None) == first
    again = await make_token(server.services.pool, host_id, by=TESTER)
    assert again is not None
    second = await enrolment.identity(State(tmp_path), at, again.token)
    assert (second.host_id, second.generation) == (host_id, first.generation + 1)
    assert second.key != first.key


async def test_a_token_that_is_none_is_told_with_what_to_do(server: Server, tmp_path: Path):
    async with started(server, tmp_path, ONWARD_AGENT_TOKEN="oat_never-made") as agent:  # noqa: S106 - it is none
        assert await asyncio.wait_for(agent.wait(), 20.0) == 1
    log = (tmp_path / "log").read_text()
    assert log.splitlines()[-1].startswith("onward: ONWARD_AGENT_TOKEN: ")
    assert "Traceback" not in log
    assert "oat_never-made" not in log


async def test_a_server_that_does_not_answer_is_asked_again_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(enrolment, "_TRIES_S", (0.0, 0.0))
    with pytest.raises(ServerUnreachable, match="does not answer"):
        await enrolment.identity(State(tmp_path), server_at("http://127.0.0.1:1"), "token")


async def test_a_host_without_a_key_and_a_token_is_told_what_to_do(tmp_path: Path):
    with pytest.raises(InvalidInput, match="make a token"):
        await enrolment.identity(State(tmp_path), server_at("http://127.0.0.1:1"), None)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"host_id": 1}', '{"key": "!"}'])
def test_a_key_that_is_damaged_is_told_with_what_to_do(tmp_path: Path, content: str):
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(InvalidInput, match="holds no key: remove it"):
        State(tmp_path).identity()


def test_a_journal_that_is_damaged_is_told_with_what_to_do(tmp_path: Path):
    from onward.agent.journal import Journal  # noqa: PLC0415 - beside its one use

    (tmp_path / "journal.sqlite").write_bytes(b"no journal at all, and longer than a header" * 90)
    with pytest.raises(InvalidInput, match="restore it, or remove it"):
        Journal(tmp_path / "journal.sqlite")


def test_a_directory_of_others_is_closed_to_them(tmp_path: Path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    with state.opened(folder) as found:
        assert folder.stat().st_mode & 0o777 == 0o700
        found.keep_identity(Identity(1, "h", 1, b"k" * 32))
        assert (folder / "key.json").stat().st_mode & 0o777 == 0o600
        assert base64.urlsafe_b64encode(b"k" * 32).decode() not in repr(found.identity())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--server", "http://example.com"], "use https"),
        (["--server", "nonsense"], "takes an address"),
        (["--server", "https://localhost", "--ca", "/etc/passwd"], "holds no certificates"),
        (["--server", "https://localhost", "--token-file", "/"], "cannot be read"),
        (["--server", "https://localhost", "--user", "no-such-user"], "there is no user"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(tmp_path: Path, words: list[str], told: str):
    said = subprocess.run(
        [sys.executable, "-m", "onward", "agent", "--state", tmp_path / "state", *AS_ROOT, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 1
    assert told in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_an_agent_of_root_wants_that_to_be_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InvalidInput, match="--allow-root"):
        command._check_user(None, allow_root=False)
    command._check_user(None, allow_root=True)
    command._check_user("root", allow_root=False)
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    command._check_user(None, allow_root=False)
    with pytest.raises(InvalidInput, match="only root"):
        command._check_user("root", allow_root=False)


def test_help_names_where_the_token_is():
    said = CliRunner().invoke(app, ["agent", "--help"], terminal_width=200)
    assert "ONWARD_AGENT_TOKEN" in said.output


def test_an_agent_loads_nothing_of_the_servers():
    """It has to start fast on a small machine, and to have little that can be wrong."""
    code = (
        "import sys, onward.agent.program; "
        "sys.exit(str([name for name in sys.modules if name.split('.')[0] in "
        "{'asyncpg', 'fastapi', 'pydantic', 'sqlalchemy', 'celery', 'httpx2'} "
        "or name.startswith(('onward.store', 'onward.fleet', 'onward.api', 'onward.settings'))]))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert said.stderr == "[]\n"
