"""The service as a process: how it starts, what it says, and every way in which it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from onward.service.listening import listening, serve
from tests.cli.running import (
    BOUND_S,
    counts,
    environment,
    folder_for_servers,
    make_fleet,
    on_database,
    onward_up,
    settled,
    submit,
    until,
)

SECONDS = 20.0  # what "in seconds" means on a machine that has other things to do


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory."""
    with folder_for_servers() as path:
        yield path


def refused(folder: Path, *options: str, **settings: str) -> str:
    """Start a service that cannot be, and return the one line that it says."""
    ended = subprocess.run(
        [sys.executable, "-m", "onward", "up", *options],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env=environment(folder, **settings),
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    return line


async def attempts(url: str) -> list[tuple[object, ...]]:
    """What has been counted for the executions, each kind once."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT DISTINCT status, attempt, retries FROM onward.executions ORDER BY 1"
    )
    await connection.close()
    return [tuple(row) for row in rows]


async def test_one_command_starts_everything_and_takes_a_job_to_its_end(folder: Path):
    """On servers of its own; the second start finds the data, and the key, of the first."""
    with onward_up(folder) as up, up.client() as client:
        assert f"docs     {up.address}/docs\n" in up.said
        assert f"{folder}/admin-key" in up.said
        assert up.address.startswith("http://127.0.0.1:")
        assert stat.S_IMODE((folder / "admin-key").stat().st_mode) == 0o600
        assert client.get("/me").raise_for_status().json()["role"] == "admin"
        until(lambda: httpx2.get(f"{up.address}/health/ready").status_code == 200)
        assert httpx2.get(f"{up.address}/docs").status_code == 200
        run_dir = (folder / "run").resolve()
        await make_fleet(f"postgresql://postgres@/onward?host={run_dir}&port=5432", 20)
        job = submit(client, "one", lines=2)
        until(lambda: settled(client, job) == 20)
        assert counts(client, job) == {"SUCCESS": 20}
        assert up.stop() < SECONDS
        assert up.process.returncode == 0
    said, key = up.said + up.log.read_text("utf-8"), up.key
    assert key not in said
    assert not (folder / "run").exists(), "the servers are stopped"

    with onward_up(folder) as up, up.client() as client:
        assert f"{folder}/admin-key" in up.said
        assert counts(client, job) == {"SUCCESS": 20}
        assert up.key == key
        up.stop(signal.SIGINT)
        assert up.process.returncode == 0


async def test_a_service_that_is_asked_to_leave_lets_what_runs_end_and_costs_no_attempt(
    database_url: str, folder: Path
):
    """The word comes in the middle of a job; the next start does the rest."""
    await make_fleet(database_url, 60)
    settings = {**on_database(database_url), "ONWARD_WORKER_CAPACITY": "7"}
    with onward_up(folder, **settings) as up, up.client() as client:
        job = submit(client, "one", sleep_s=0.05)
        until(lambda: settled(client, job) >= 7)
        assert up.stop() < SECONDS
        assert up.process.returncode == 0
    left = await attempts(database_url)
    assert ("QUEUED", 0, 0) in left
    assert {row[0] for row in left} == {"QUEUED", "SUCCESS"}
    assert not (folder / "postgresql").exists(), "it was given a database, and started none"

    with onward_up(folder, **settings) as up, up.client() as client:
        until(lambda: settled(client, job) == 60)
        up.stop()
    assert await attempts(database_url) == [("SUCCESS", 1, 0)]


async def test_a_service_that_is_told_twice_waits_for_nothing(database_url: str, folder: Path):
    await make_fleet(database_url, 5)
    settings = on_database(database_url)
    with onward_up(folder, **settings, ONWARD_DRAIN_S="3600") as up, up.client() as client:
        job = submit(client, "one", sleep_s=15)
        until(lambda: counts(client, job) == {"RUNNING": 5})
        up.process.send_signal(signal.SIGTERM)
        until(lambda: "leaving" in up.log.read_text("utf-8"))
        assert up.stop() < SECONDS
        assert up.process.returncode == 130
    assert "Traceback" not in up.log.read_text("utf-8")
    # What was left behind is not lost: the next start finds whose it was, and that they are gone.
    with onward_up(folder, **settings, ONWARD_DRAIN_S="0") as up, up.client() as client:
        until(lambda: counts(client, job) == {"RUNNING": 5})


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 130)])
def test_a_service_that_is_told_to_leave_while_it_starts_leaves_no_server_behind(
    folder: Path, times: int, code: int
):
    """Its servers are being made at that moment, which nobody can interrupt."""
    with subprocess.Popen(
        [sys.executable, "-m", "onward", "up", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(folder),
    ) as process:
        until((folder / "postgresql.log").exists)
        assert process.stderr is not None
        try:
            for _ in range(times):
                process.send_signal(signal.SIGTERM)
                process.stderr.readline()  # Two that are sent at once would be one.
            said, told = process.communicate(timeout=BOUND_S)
        finally:
            process.kill()
    assert (process.returncode, said) == (code, b"")
    assert b"Traceback" not in told
    assert not (folder / "run").exists()


async def test_a_service_that_was_killed_goes_on_where_it_was(database_url: str, folder: Path):
    await make_fleet(database_url, 60)
    settings = {
        **on_database(database_url),
        "ONWARD_WORKER_CAPACITY": "7",
        "ONWARD_WORKER_LOST_AFTER_S": "1",
    }
    with onward_up(folder, **settings) as up, up.client() as client:
        job = submit(client, "one", sleep_s=0.05)
        until(lambda: settled(client, job) >= 7)
        up.stop(signal.SIGKILL)
    with onward_up(folder, **settings) as up, up.client() as client:
        until(lambda: settled(client, job) == 60)
        assert counts(client, job) == {"SUCCESS": 60}
    assert {row[0::2] for row in await attempts(database_url)} == {("SUCCESS", 0)}


def test_what_is_logged_is_one_object_a_line_when_nobody_watches(database_url: str, folder: Path):
    with onward_up(folder, "--access-log", **on_database(database_url)) as up:
        with up.client() as client:
            client.get("/me")
        up.stop()
    logged = [json.loads(line) for line in up.log.read_text("utf-8").splitlines()]
    assert [each["event"] for each in logged if each["logger"] == "onward.service"] == [
        "up",
        "leaving",
        "left",
    ]
    assert any("GET /me" in each["event"] for each in logged if each["logger"] == "uvicorn.access")


def test_streams_end_when_the_service_leaves(database_url: str, folder: Path):
    """As a whole: whoever listens would be told if the answer had been cut."""
    with onward_up(folder, **on_database(database_url)) as up, up.client() as client:
        with client.stream("GET", "/events") as response:
            lines = response.iter_lines()
            assert next(lines).startswith("retry: ")
            up.process.send_signal(signal.SIGTERM)
            assert [line for line in lines if line.startswith("data")] == []
        assert up.process.wait(SECONDS) == 0
    assert "Traceback" not in up.log.read_text("utf-8")


async def test_an_answer_that_is_being_written_is_finished_before_the_service_leaves():
    stopping, begun, go_on, hung_up = (asyncio.Event() for _ in range(4))

    async def slow(_: Request) -> Response:
        begun.set()
        await go_on.wait()
        return PlainTextResponse("finished")

    app = Starlette(routes=[Route("/slow", slow)])
    with listening("127.0.0.1", 0) as found:
        serving = asyncio.create_task(
            serve(app, found, stopping, access_log=False, ready=lambda: None, hang_up=hung_up.set)
        )
        async with httpx2.AsyncClient(timeout=BOUND_S) as client, asyncio.timeout(BOUND_S):
            answer = asyncio.create_task(client.get(f"{found.address}/slow"))
            await begun.wait()
            stopping.set()
            await hung_up.wait()
            assert not serving.done()
            go_on.set()
            assert (await answer).text == "finished"
            await serving


def test_a_port_that_is_taken_is_told_in_one_line(database_url: str, folder: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = refused(folder, "--port", port, **on_database(database_url))
    assert line.startswith(f"onward: port: {port} at 127.0.0.1 is taken by another program; end it")
    assert list(folder.iterdir()) == [], "nothing was started for it"


def test_what_cannot_be_is_told_in_one_line(database_url: str, folder: Path):
    nowhere = {"ONWARD_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"}
    backwards = {"ONWARD_BASE_BACKOFF_S": "60", "ONWARD_MAX_BACKOFF_S": "30"}
    short = {**on_database(database_url), "ONWARD_ADMIN_KEY": "short"}
    free = ("--port", "0")
    cases: Sequence[tuple[Sequence[str], Mapping[str, str], str]] = (
        (free, nowhere, "PostgreSQL at 127.0.0.1:1 cannot be used"),
        (free, {"ONWARD_WORKER_CAPACITY": "many"}, "ONWARD_WORKER_CAPACITY: "),
        (free, backwards, "ONWARD_BASE_BACKOFF_S: 60 is more than ONWARD_MAX_BACKOFF_S, 30"),
        ((*free, "--host", "192.0.2.1"), {}, "host: '192.0.2.1' is no address of this machine"),
        ((*free, "--host", "no.such.host.invalid"), {}, "host: 'no.such.host.invalid' is no"),
        (free, short, "ONWARD_ADMIN_KEY: is not a key"),
    )
    with ThreadPoolExecutor() as at_once:
        said = [
            at_once.submit(refused, folder, *options, **settings) for options, settings, _ in cases
        ]
    for line, (_, _, told) in zip(said, cases, strict=True):
        assert line.result().startswith(f"onward: {told}")


def test_whoever_listens_to_the_world_is_warned(database_url: str, folder: Path):
    with onward_up(folder, "--host", "0.0.0.0", **on_database(database_url)) as up:  # noqa: S104
        up.stop()
    assert "there is no TLS" in up.log.read_text("utf-8").splitlines()[0]
