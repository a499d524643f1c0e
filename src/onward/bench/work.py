"""A piece of work for the embedded engine: a fleet and jobs for it, run, timed, and checked.

Hosts answer at once and every command prints a line, so that what is timed is Onward: the job and
its executions, the plan, the claims with their locks, guards and epochs, the timeline, the logs and
the reports. A time counts only once the tables say that all of it was done.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import onward
from onward.channels.base import Channel
from onward.core.lifecycles import EXECUTION
from onward.core.verdicts import TransitionResult
from onward.engines.embedded import Engine, Pace
from onward.errors import InvariantBroken
from onward.fleet.submit import new_job
from onward.scratch import new_database
from onward.service.garbage import seldom_collected
from onward.settings import Settings
from onward.store import database, hosts, jobs
from onward.store.audit import Doer
from onward.store.database import Connection, Pool
from onward.store.host_locks import HostLocks
from onward.wiring import Onward

COMMAND_TYPE: Final = "noop"
PARAMS: Final = {"lines": 1, "text": "done"}
PATH: Final = ("plan", "claim", "succeed")  # what every execution goes through, and nothing else

_LOOK_S: Final = 0.02
_STALLED_S: Final = 120.0
_DONE: Final = str(EXECUTION.moves[PATH[-1]].target)
_CHUNK: Final = 100_000

_HOSTS: Final = """
INSERT INTO hosts (name, labels)
SELECT 'host-' || n, jsonb_build_object('group', (n % $3)::text)
  FROM generate_series($1::integer, $2::integer) AS n
"""
_SETTLED: Final = "SELECT coalesce(sum(n), 0)::bigint FROM job_counts WHERE status = ANY ($1)"
_STATUSES: Final = "SELECT status, count(*), max(attempt) FROM executions GROUP BY status"
_LEFT: Final = "SELECT (SELECT count(*) FROM queue) + (SELECT count(*) FROM runs)"
_COUNTS: Final = "SELECT status, sum(n)::bigint FROM job_counts GROUP BY status HAVING sum(n) <> 0"
_TIMELINE: Final = "SELECT event, verdict, count(*) FROM execution_timeline GROUP BY event, verdict"
_LINES: Final = "SELECT count(*), count(DISTINCT execution_id) FROM execution_logs"
# Along a host's history, a run that begins before the one before it has ended.
_OVERLAPS: Final = """
SELECT count(*)
  FROM (
        SELECT t.event, lag(t.event) OVER (PARTITION BY e.host_id ORDER BY t.seq) AS before
          FROM execution_timeline t
          JOIN executions e ON e.id = t.execution_id
         WHERE t.event = ANY ($1)
       ) AS told
 WHERE event = before
"""


@dataclass(frozen=True, slots=True)
class Work:
    """Jobs for a fleet. Hosts are shared out among groups, and each job is for the next group."""

    jobs: int
    hosts: int
    groups: int = 1
    read_only: bool = False  # whether its commands may share a host

    @property
    def executions(self) -> int:
        """How many there are when all jobs are submitted."""
        return self.jobs * (self.hosts // self.groups)


@asynccontextmanager
async def fleet(server_url: str, name: str, work: Work) -> AsyncIterator[Onward]:
    """Open Onward on a new database that has the hosts of a piece of work, and no jobs."""
    url = await new_database(server_url, name)
    async with onward.open(Settings(database_url=url)) as opened:
        await make_hosts(opened.commands.pool, work)
        yield opened


async def make_hosts(pool: Pool, work: Work) -> None:
    """Make the hosts of a piece of work, and the type of its commands."""
    await hosts.put_type(
        pool,
        COMMAND_TYPE,
        needs_approval=False,
        read_only=work.read_only,
        timeout_s=60.0,
        max_retries=3,
        by=Doer("bench"),
    )
    for first in range(0, work.hosts, _CHUNK):
        last = min(first + _CHUNK, work.hosts)
        await pool.execute(_HOSTS, first + 1, last, work.groups)
    # As in a fleet that has been there for a while; and no round pays for the one before it.
    await pool.execute("VACUUM (ANALYZE) hosts")
    await pool.execute("CHECKPOINT")


async def submit(pool: Pool, work: Work, params: Mapping[str, object] | None = None) -> None:
    """Submit all jobs, one after the other, as the webhook does."""
    params = PARAMS if params is None else params
    for number in range(work.jobs):
        job = new_job(
            external_id=f"bench-{number}",
            command_type=COMMAND_TYPE,
            params=params,
            selector="all" if work.groups == 1 else f"group={number % work.groups}",
            max_concurrency=None,
            requested_by="bench",
            params_max_bytes=len(json.dumps(params)),
        )
        await jobs.submit(pool, job)


@asynccontextmanager
async def working(opened: Onward, channel: Channel) -> AsyncIterator[None]:
    """Let an engine work as it does in a service, from when it has a worker's identity."""
    locks, stopping = HostLocks(opened.database_url), asyncio.Event()
    size = opened.settings.pool_size
    with seldom_collected():
        async with database.pooled(opened.database_url, size=size, walking=True) as pool:
            chance = random.Random(0).random
            engine = Engine(pool, locks, {"simulated": channel}, chance=chance, pace=Pace())
            run = asyncio.create_task(engine.run(stopping))
            try:
                while not await pool.fetchval("SELECT count(*) FROM workers"):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(_LOOK_S)
                yield
            finally:
                stopping.set()
                await run
                await locks.close()


async def until_settled(url: str, work: Work, told: Callable[[int], None] = lambda _: None) -> None:
    """Wait until every execution has ended; `told` hears how many have, whenever that changes."""
    terminal = sorted(str(status) for status in EXECUTION.terminal)
    connection = await database.connect(url)
    settled, since = -1, time.monotonic()
    try:
        while settled < work.executions:
            now_settled = await connection.fetchval(_SETTLED, terminal)
            if now_settled != settled:
                settled, since = now_settled, time.monotonic()
                told(settled)
            elif time.monotonic() - since > _STALLED_S:
                raise InvariantBroken(f"nothing moves: {settled:,} of {work.executions:,} settled")
            else:
                await asyncio.sleep(_LOOK_S)
    finally:
        await connection.close()


async def check(connection: Connection, work: Work) -> None:
    """Make sure that a measurement did what it claims: every table tells the same story."""
    every = work.executions
    found = {
        "executions": [tuple(row) for row in await connection.fetch(_STATUSES)],
        "left over": await connection.fetchval(_LEFT),
        "counters": [tuple(row) for row in await connection.fetch(_COUNTS)],
        "timeline": sorted(tuple(row) for row in await connection.fetch(_TIMELINE)),
        "lines": [tuple(row) for row in await connection.fetch(_LINES)],
        "overlaps": 0 if work.read_only else await connection.fetchval(_OVERLAPS, PATH[1:]),
    }
    moved = str(TransitionResult.OK)
    expected = {
        "executions": [(_DONE, every, 1)],
        "left over": 0,
        "counters": [(_DONE, every)],
        "timeline": sorted((event, moved, every) for event in PATH),
        "lines": [(every, every)],
        "overlaps": 0,
    }
    if found != expected:
        raise InvariantBroken(f"a measurement that did not do its work: {found} is not {expected}")
