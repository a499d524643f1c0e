"""`onward api`, `worker` and `beat`, started while their PostgreSQL is away."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from onward.errors import ServerUnreachable
from onward.service import waiting
from onward.store import workers
from onward.store.database import Pool, is_away
from onward.wiring import Onward
from tests.api.relay import Relay, relayed
from tests.cli.running import BOUND_S, environment, folder_for_servers, on_database
from tests.conftest import settings_for
from tests.databases import on
from tests.engines.ground import alive, descendants

SECRET = "pa55-word"  # noqa: S105 - looked for in logs, where it must not be
COMMANDS = {"api": ("--port", "0"), "worker": ("--processes", "1"), "beat": ()}


@dataclass(frozen=True, slots=True)
class Started:
    """A program, and what it says."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, event: str) -> list[dict[str, Any]]:
        whole = self.log.read_bytes().rpartition(b"\n")[0].decode().splitlines()
        told = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in told if line["event"] == event]

    async def until(self, over: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not over():
                assert self.process.poll() is None, self.log.read_text("utf-8")
                await asyncio.sleep(0.02)

    async def left(self) -> int:
        return await asyncio.to_thread(self.process.wait, BOUND_S)


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_servers() as path:
        yield path


@pytest.fixture
async def way(database_url: str) -> AsyncIterator[Relay]:
    async with relayed(database_url, password=SECRET) as found:
        yield found


@pytest.fixture
def start(folder: Path, redis_url: str) -> Iterator[Callable[[str], dict[str, Started]]]:
    """Start all three on a database; they are gone in the end."""
    with ExitStack() as stack:

        def make(url: str) -> dict[str, Started]:
            servers = {**on_database(url), "ONWARD_REDIS_URL": redis_url}
            return {name: _started(stack, folder, name, servers) for name in COMMANDS}

        yield make


def _started(stack: ExitStack, folder: Path, name: str, servers: Mapping[str, str]) -> Started:
    log = folder / f"{name}.log"
    with log.open("wb") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "onward", name, *COMMANDS[name]],
            stdout=told,
            stderr=told,
            env=environment(folder, **servers),
        )
    stack.callback(_end, process)
    return Started(process, log)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait(BOUND_S)


async def test_what_is_started_before_its_postgresql_waits_for_it_and_begins(
    way: Relay, start: Callable[[str], dict[str, Started]], pool: Pool
):
    await way.cut()
    begun = start(way.url)
    for program in begun.values():
        await program.until(lambda: bool(program.said("waiting_for_server")))  # noqa: B023 - now
    await way.mend()
    await begun["api"].until(lambda: bool(begun["api"].said("up")))
    await begun["beat"].until(lambda: bool(descendants(begun["beat"].process.pid)))
    async with asyncio.timeout(BOUND_S):
        while not await pool.fetchval("SELECT count(*) FROM workers"):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    for program in begun.values():
        # Once, however long it was: a log is not the place to count tries.
        (told,) = program.said("waiting_for_server")
        assert (told["level"], "cannot be used" in told["problem"]) == ("warning", True)
        program.process.terminate()
        assert await program.left() == 0
        assert SECRET not in program.log.read_text("utf-8")


async def test_whoever_waits_is_gone_as_soon_as_it_is_told_to_leave(
    start: Callable[[str], dict[str, Started]],
):
    """Also in the middle of a try: the server that it tries has taken the call and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(BOUND_S)
        begun = start(f"postgresql://me:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/onward")
        calls = [await asyncio.to_thread(silent.accept) for _ in begun]
        for program in begun.values():
            program.process.send_signal(signal.SIGTERM)
        for program in begun.values():
            assert await program.left() == 0
            # The try has not come to an end by itself, or that would have been said.
            assert program.said("waiting_for_server") == []
            assert not any(map(alive, descendants(program.process.pid)))
        for call, _ in calls:
            call.close()


async def test_what_waiting_does_not_mend_is_told_at_once(server_url: str):
    for settings, problem in (
        (settings_for(on(server_url, "nothing_of_this_name")), "does not exist"),
        (settings_for(server_url.replace("postgres@", "nobody@")), 'role "nobody"'),
    ):
        with pytest.raises(ServerUnreachable, match=problem):
            async with waiting.opened(settings, asyncio.Event()):
                pass


async def test_a_server_that_is_lost_between_two_tries_is_waited_for_again(
    way: Relay, monkeypatch: pytest.MonkeyPatch
):
    """It answered, and is gone before it could be used."""
    tries: list[None] = []

    async def answers(*_: object) -> bool:
        tries.append(None)
        await (way.cut() if len(tries) == 1 else way.mend())
        return True

    monkeypatch.setattr(waiting, "_answers", answers)
    async with waiting.opened(settings_for(way.url), asyncio.Event()) as found:
        assert isinstance(found, Onward)
        assert await workers.register(found.commands.pool, "here") > 0
    assert len(tries) == 2


@pytest.mark.parametrize(
    ("cause", "away"),
    [
        (ConnectionRefusedError(), True),
        (socket.gaierror(), True),
        (TimeoutError(), True),
        (asyncpg.CannotConnectNowError(), True),
        (asyncpg.TooManyConnectionsError(), True),
        (asyncpg.ConnectionDoesNotExistError(), True),
        (asyncpg.InvalidPasswordError(), False),
        (asyncpg.InvalidCatalogNameError(), False),
        (asyncpg.InsufficientPrivilegeError(), False),
        (PermissionError(), False),
        (None, False),
    ],
)
def test_only_who_is_away_is_waited_for(cause: Exception | None, *, away: bool):
    error = ServerUnreachable("PostgreSQL cannot be used")
    error.__cause__ = cause
    assert is_away(error) == away
