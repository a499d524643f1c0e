"""PostgreSQL goes away under the service, and comes back."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx2
import pytest

import onward
from onward.channels.simulated import check_journal
from onward.settings import Settings
from onward.store import jobs
from tests.chaos.conftest import Mortal
from tests.cli.running import folder_for_servers, make_fleet, onward_up, settled, submit, until
from tests.fleet.test_engine import replayed
from tests.proof_table import Tried

BOUND_S = 180.0


@contextmanager
def simulated_hosts(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Hosts in a process of their own, over a bad network; gives their socket and their journal."""
    path, journal = folder / "fleet", folder / "journal"
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "onward.channels.simulated", "--any-type"),
            *("--socket", str(path), "--journal", str(journal)),
            *("--network", "bad", "--speed", "5", "--seed", "5"),
        ],
        stdout=subprocess.PIPE,
    ) as fleet:
        try:
            assert fleet.stdout is not None
            assert fleet.stdout.readline() == b"ready\n"
            yield path, journal
        finally:
            fleet.terminate()


class Caller(threading.Thread):
    """Somebody who keeps asking while the database is away, and notes every answer."""

    def __init__(self, address: str, key: str) -> None:
        super().__init__()
        self._url = f"{address}/jobs"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._over = threading.Event()
        self.answers: Counter[tuple[int, str, str | None]] = Counter()

    def run(self) -> None:
        with httpx2.Client(headers=self._headers, timeout=BOUND_S) as client:
            while not self._over.wait(0.02):
                answer = client.get(self._url)
                kind = answer.headers["content-type"]
                self.answers[answer.status_code, kind, answer.headers.get("retry-after")] += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


@pytest.mark.timeout(1_200)
async def test_the_service_resumes_by_itself_when_postgresql_comes_back(
    mortal: Mortal, tried: Tried, *, proof: bool
):
    """Each time in the middle of a job, and each time as if the machine had crashed."""
    hosts, times = (1_000, 20) if proof else (150, 2)
    unavailable = (503, "application/problem+json", "2")
    with folder_for_servers() as folder, simulated_hosts(folder) as (socket, journal):
        settings = {
            "ONWARD_DATABASE_URL": mortal.url,
            "ONWARD_BASE_BACKOFF_S": "0.05",
            "ONWARD_MAX_BACKOFF_S": "0.5",
            "ONWARD_WORKER_CAPACITY": "40",
        }
        with onward_up(folder, "--fleet", str(socket), **settings) as up, up.client() as client:
            await make_fleet(mortal.url, hosts, timeout_s=1)
            job = submit(client, "one", sleep_s=0.2)
            with Caller(up.address, up.key) as caller:
                for number in range(times):
                    enough = number * hosts // times
                    until(lambda: settled(client, job) > enough)  # noqa: B023 - asked at once
                    mortal.strike_down()
                    seen = caller.answers[unavailable]
                    until(lambda: caller.answers[unavailable] > seen)  # noqa: B023 - as above
                    mortal.raise_up()
                    until(lambda: client.get(f"/jobs/{job}").status_code == 200)
                until(lambda: settled(client, job) == hosts, bound_s=BOUND_S)
            assert up.process.poll() is None
            up.stop()
            assert up.process.returncode == 0
        assert set(caller.answers) == {(200, "application/json", None), unavailable}
        assert await judged(mortal.url, job) == {"SUCCESS": hosts}
        assert check_journal(journal.read_text("utf-8").splitlines()) == []
    tried("restarts of PostgreSQL under a running service", times, "each job ended everywhere")


async def judged(url: str, job: int) -> dict[str, int]:
    """Replay the timelines, and return how many rows of a job there are in each status."""
    async with onward.open(Settings(database_url=url)) as opened:
        pool = opened.commands.pool
        await replayed(pool)
        rows = await pool.fetch("SELECT status, count(*) AS n FROM executions GROUP BY status")
        found = {row["status"]: row["n"] for row in rows}
        assert await jobs.counts(pool, job) == found
        return found
