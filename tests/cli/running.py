"""A real `onward up` in a process of its own, and calls to it over HTTP."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import httpx2

from onward.core.lifecycles import EXECUTION

BOUND_S = 60.0
TERMINAL = sorted(map(str, EXECUTION.terminal))


@dataclass(frozen=True, slots=True)
class Up:
    """A service that has said that it is ready."""

    process: subprocess.Popen[str]
    said: str  # the block that it printed
    log: Path
    data_dir: Path

    @property
    def address(self) -> str:
        found = re.search(r"address +(http://\S+)", self.said)
        assert found is not None, self.said
        return found[1]

    @property
    def key(self) -> str:
        return (self.data_dir / "admin-key").read_text("ascii").strip()

    def client(self) -> httpx2.Client:
        """Call it with the key of the first start."""
        return httpx2.Client(
            base_url=self.address,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=BOUND_S,
            verify=False,  # plain HTTP; to read whom one may trust takes long
        )

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Ask it to leave, and return how many seconds that took."""
        asked_at = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(BOUND_S)
        return time.monotonic() - asked_at


@contextmanager
def folder_for_servers() -> Iterator[Path]:
    """A folder that the servers' user may pass, which pytest's own do not allow."""
    path = Path(tempfile.mkdtemp(prefix="onward-test-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def environment(data_dir: Path, **changes: str) -> dict[str, str]:
    """The environment of a process, in which no setting of the machine's own is left."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONWARD_")}
    config = str(data_dir / "config.toml")
    return {**kept, "ONWARD_DATA_DIR": str(data_dir), "ONWARD_CONFIG": config, **changes}


def on_database(url: str) -> Mapping[str, str]:
    """The settings for a server of the tests, which may forget."""
    return {"ONWARD_DATABASE_URL": url, "ONWARD_REQUIRE_DURABLE": "false"}


class Ended(NamedTuple):
    """A program that has ended."""

    code: int
    report: str  # what it had to say
    told: str  # how it got on


@contextmanager
def at_once(
    begin: Callable[..., subprocess.Popen[str]], *options: Sequence[str]
) -> Iterator[list[Future[Ended]]]:
    """Run a program several times at once, with the options and in the place of each.

    Most of the time they wait, for servers to start or for a network that delays what they say.
    """

    def run(*given: str) -> Ended:
        *words, place = given
        with begin(*words, temporary=Path(place)) as program:
            report, told = program.communicate(timeout=4 * BOUND_S)
        return Ended(program.returncode, report, told)

    with ThreadPoolExecutor() as crowd:
        yield [crowd.submit(run, *given) for given in options]


@contextmanager
def onward_up(data_dir: Path, *options: str, **settings: str) -> Iterator[Up]:
    """Start the service on a free port and wait until it is ready; it is gone in the end."""
    log = data_dir / f"up-{time.monotonic_ns()}.log"
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "onward", "up", "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(data_dir, **settings),
        ) as process,
    ):
        try:
            yield Up(process, _block(process, log), log, data_dir)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End a service with the servers that it has started, which a kill would leave behind."""
    for _ in range(2):
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(BOUND_S)
    process.kill()


def _block(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "stop" in line:
            return "".join(lines)
    raise AssertionError(f"it ended before it was ready: {log.read_text('utf-8')}")


async def make_fleet(url: str, hosts: int, *, timeout_s: float = 20) -> None:
    """Make simulated hosts, and a command type `noop` that wants each of them for itself."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "INSERT INTO onward.hosts (name) SELECT 'h' || n FROM generate_series(1, $1) AS n", hosts
    )
    await connection.execute(
        "INSERT INTO onward.command_types (name, timeout_s, max_retries) VALUES ('noop', $1, 50)",
        timeout_s,
    )
    await connection.close()


def submit(client: httpx2.Client, name: str, **params: Any) -> int:
    """Send a job for all hosts through the webhook."""
    body = {"external_id": name, "command_type": "noop", "params": params, "selector": "all"}
    answer = client.post("/webhook/jobs", json=body)
    assert answer.status_code == 202, answer.text
    return int(answer.json()["job_id"])


def counts(client: httpx2.Client, job_id: int) -> dict[str, int]:
    """How many executions of a job are where."""
    return dict(client.get(f"/jobs/{job_id}").raise_for_status().json()["counts"])


def settled(client: httpx2.Client, job_id: int) -> int:
    """How many executions of a job have ended."""
    found = counts(client, job_id)
    return sum(found.get(status, 0) for status in TERMINAL)


def until(over: Callable[[], bool], *, bound_s: float = BOUND_S) -> None:
    """Look again and again, and not for ever."""
    deadline = time.monotonic() + bound_s
    while not over():
        assert time.monotonic() < deadline
        time.sleep(0.02)
