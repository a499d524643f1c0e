"""Everything that the Celery engine stands on is killed under it, at random moments of a job."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

import onward
from onward.channels.simulated import check_journal
from onward.settings import Settings
from tests.chaos.conftest import Mortal
from tests.chaos.deeds import Chaos
from tests.chaos.observer import Observer
from tests.chaos.parts import COMMANDS, Parts, running
from tests.chaos.test_restart import simulated_hosts
from tests.cli.running import folder_for_servers, make_fleet, until
from tests.cli.test_demo import processes_with
from tests.fleet.test_engine import replayed
from tests.mortal_valkey import MortalValkey, mortal_valkey
from tests.proof_table import Tried

SEED = 257
LATEST = 0.9  # the share of a job by which everything has been done to it


@pytest.mark.timeout(3_600)
async def test_nothing_is_lost_doubled_or_stuck_whatever_is_killed(
    mortal: Mortal, tried: Tried, *, proof: bool
):
    """Each kind of deed in each round, each at a share of the job that chance has drawn."""
    hosts, rounds = (2_000, 50) if proof else (150, 1)
    with (
        folder_for_servers() as folder,
        simulated_hosts(folder) as (socket, journal),
        mortal_valkey() as valkey,
    ):
        settings = settings_for(mortal, valkey, socket=socket, hosts=hosts)
        with running(folder, **settings) as parts:
            await make_fleet(mortal.url, hosts, timeout_s=3)
            chaos = Chaos(parts, mortal, valkey, random.Random(SEED))
            async with Observer(mortal.url, parts.keep) as observer:
                for number in range(1, rounds + 1):
                    await one_round(chaos, observer, number, hosts=hosts)
            until(parts.ready)
            until(lambda: all(parts.program(name) for name in COMMANDS))
            parts.leave(*parts.started)
        assert await replayed_whole(mortal.url) == {"SUCCESS": rounds * hosts}
        assert check_journal(journal.read_text("utf-8").splitlines()) == []
        until(lambda: len(processes_with(str(folder))) == 1)  # the hosts
    print("", *(f"{times} x {name}" for name, times in chaos.done.most_common()), sep="\n")
    tried(
        "parts killed, wiped or restarted under the Celery engine",
        chaos.done.total(),
        "no job stuck",
    )
    tried("executions of the Celery engine through all that", rounds * hosts, "each ended once")


def settings_for(
    postgresql: Mortal, valkey: MortalValkey, *, socket: Path, hosts: int
) -> dict[str, str]:
    """Small workers, so that the job is never over at once, and little patience."""
    return {
        "ONWARD_DATABASE_URL": postgresql.url,
        "ONWARD_REDIS_URL": valkey.url,
        "ONWARD_SIMULATED_FLEET": str(socket),
        "ONWARD_WORKER_CAPACITY": str(max(20, hosts // 20)),
        "ONWARD_WORKER_LOST_AFTER_S": "2",
        "ONWARD_BASE_BACKOFF_S": "0.05",
        "ONWARD_MAX_BACKOFF_S": "0.5",
    }


async def one_round(chaos: Chaos, observer: Observer, number: int, *, hosts: int) -> None:
    """A job for all hosts, and what is done to it; in the end it has succeeded everywhere."""
    print(f"\nseed {SEED}, round {number}", end="", flush=True)
    began = time.monotonic()
    job = submitted(chaos.parts, f"round-{number}")
    deeds = chaos.drawn()
    points = sorted(chaos.chance.sample(range(int(hosts * LATEST)), len(deeds)))
    for point, deed in zip(points, deeds, strict=True):
        await observer.until_settled(job, point)
        print(f", {deed.__name__} at {point}", end="", flush=True)
        chaos.do(deed)
    await observer.until_settled(job, hosts)
    print(f": {time.monotonic() - began:.1f} s", end="", flush=True)
    assert await observer.statuses(job) == {"SUCCESS": hosts}


def submitted(parts: Parts, name: str) -> int:
    """Send a job for all hosts until it is taken: the API may be away, and so may its servers."""
    params = {"sleep_s": 1.0}
    body = {"external_id": name, "command_type": "noop", "params": params, "selector": "all"}
    answers: Counter[int] = Counter()
    job = 0

    def taken() -> bool:
        nonlocal job
        parts.keep()
        try:
            with parts.client() as client:
                answer = client.post("/webhook/jobs", json=body)
        except httpx2.TransportError:
            return False
        answers[answer.status_code] += 1
        job = int(answer.json().get("job_id", 0))
        return bool(job)

    until(taken)
    # Accepted, or accepted before by an API that could not say so any more; until then, try later.
    assert set(answers) <= {202, 200, 503}, answers
    return job


async def replayed_whole(url: str) -> dict[str, int]:
    """Replay all timelines, and return how many executions there are in each status."""
    async with onward.open(Settings(database_url=url)) as opened:
        pool = opened.commands.pool
        await replayed(pool)
        assert await pool.fetchval("SELECT count(*) FROM queue") == 0
        assert await pool.fetchval("SELECT count(*) FROM runs") == 0
        rows = await pool.fetch("SELECT status, count(*) FROM executions GROUP BY status")
        return dict(map(tuple, rows))
