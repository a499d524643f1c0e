"""Workers are killed in the middle; the hosts, which outlive them, bear witness."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from onward.channels.simulated.journal import check_journal
from onward.core.lifecycles import EXECUTION
from onward.store import jobs
from onward.store.database import Pool
from onward.wiring import Onward
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_engine import replayed, until_settled
from tests.proof_table import Tried

WORKER = Path(__file__).with_name("worker.py")
BOUND_S = 120.0
TERMINAL = [str(status) for status in EXECUTION.terminal]


@asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[Process]:
    """A Python program, ended at the latest when this is left."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def settled(pool: Pool) -> int:
    found = "SELECT count(*) FROM executions WHERE status = ANY ($1::text[])"
    return int(await pool.fetchval(found, TERMINAL))


async def until_more_than(pool: Pool, wanted: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while await settled(pool) <= wanted:  # noqa: ASYNC110 - the tables have no event
            await asyncio.sleep(0.005)


@pytest.mark.timeout(1_800)
async def test_nothing_is_lost_doubled_or_stuck_when_workers_are_killed(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, tried: Tried, *, proof: bool
):
    """Each kill hits a random one of two workers, at a random point of the job; it comes back."""
    pool = opened.commands.pool
    hosts, kills, seed = (1_000, 100, 11) if proof else (80, 4, 11)
    chance = random.Random(seed)
    await make_hosts(hosts)
    submitted = [await submit(f"job-{n}", "noop", '{"sleep_s": 0.05}') for n in range(2)]
    total = hosts * len(submitted)
    points = sorted(chance.sample(range(int(total * 0.95)), kills))

    with tempfile.TemporaryDirectory(prefix="onward-") as folder:
        socket, journal = f"{folder}/fleet", Path(folder) / "journal"
        async with AsyncExitStack() as stack:
            fleet = await stack.enter_async_context(
                program(
                    *("-m", "onward.channels.simulated", "--socket", socket, "--any-type"),
                    *("--journal", str(journal), "--hosts", str(hosts), "--seed", str(seed)),
                    *("--network", "bad", "--speed", "5"),
                )
            )
            assert fleet.stdout is not None
            assert (await fleet.stdout.readline()).strip() == b"ready"

            async def start(number: int) -> Process:
                return await stack.enter_async_context(
                    program(str(WORKER), opened.database_url, socket, str(number))
                )

            workers = [await start(n) for n in range(2)]
            for number, point in enumerate(points):
                await until_more_than(pool, point)
                victim = chance.randrange(2)
                workers[victim].kill()
                await workers[victim].wait()
                workers[victim] = await start(2 + number)
            await until_settled(pool)
            for worker in workers:
                worker.terminate()
                await asyncio.wait_for(worker.wait(), BOUND_S)
            fleet.terminate()
            await fleet.wait()

        for job in submitted:
            assert await jobs.counts(pool, job.job_id) == {"SUCCESS": hosts}
        assert check_journal(journal.read_text(encoding="utf-8").splitlines()) == []
        await replayed(pool)
    lost = await pool.fetchval(
        "SELECT count(*) FROM execution_timeline WHERE detail ->> 'cause' = 'WORKER_LOST'"
    )
    tried("workers killed in the middle of a job", kills, f"{lost} runs rescued, none lost")
