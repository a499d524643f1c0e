"""The webhook, from the request to its 202, beside the bare INSERT of the same rows.

The caller has one connection that stays open and waits for each answer. The bare statement writes
the same rows, of the same job on the same hosts into the same tables, in one round trip and one
COMMIT, over a connection of its own. It checks nothing, refuses nothing and answers nobody. The two
take turns, call by call; the middle of a round's times counts, and of the rounds the best.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from onward.bench.calling import Caller, calling, request
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.serving import serving_onward
from onward.bench.work import COMMAND_TYPE, PARAMS, Work, fleet
from onward.core.lifecycles import EXECUTION
from onward.errors import InvariantBroken
from onward.scratch import scratch_servers
from onward.store.database import Connection

_AT_MOST: Final = 2.0
_ACCEPTED: Final = 202

_BARE: Final = """
WITH job AS (
    INSERT INTO jobs (external_id, command_type, params, selector, requested_by, read_only,
                      timeout_s, max_retries, total)
    VALUES ($1, $2, $3::jsonb, '{"all": true}', 'bench', false, 60, 3, $4)
    RETURNING id, created_at
), made AS (
    INSERT INTO executions (job_id, host_id, read_only, timeout_s, status, due_at)
    SELECT job.id, hosts.id, false, 60, $5, job.created_at FROM job, hosts
), counted AS (
    INSERT INTO job_counts (job_id, status, n) SELECT id, $5, $4 FROM job
), noted AS (
    INSERT INTO job_timeline (job_id, event, by) SELECT id, 'submit', 'bench' FROM job
)
INSERT INTO outbox (topic, job_id) SELECT 'plan_job', id FROM job
"""
# Rows of both kinds of jobs, table by table: they have to be the same.
_WRITTEN: Final = """
SELECT count(*),
       sum((SELECT count(*) FROM executions e WHERE e.job_id = j.id AND e.status = $2)),
       sum((SELECT sum(c.n) FROM job_counts c WHERE c.job_id = j.id)),
       sum((SELECT count(*) FROM job_timeline t WHERE t.job_id = j.id)),
       sum((SELECT count(*) FROM outbox o WHERE o.job_id = j.id))
  FROM jobs j
 WHERE j.external_id LIKE $1 || '%'
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    hosts: int = 1_000
    calls: int = 40  # a round
    rounds: int = 3


def webhook(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure the time to the 202."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        ours, bare = asyncio.run(_measure(servers.database_url, sizes, progress))
    ratio = min(ours) / min(bare)
    yield Result(
        name=f"webhook for {sizes.hosts:,} hosts, time to the 202",
        value=min(ours) * 1e3,
        unit="ms",
        against=f"the bare INSERT … SELECT, {min(bare) * 1e3:,.2f} ms",
        ratio=ratio,
        target=f"<= {_AT_MOST:g} x",
        holds=ratio <= _AT_MOST,
    )


async def _measure(
    server_url: str, sizes: Sizes, progress: Progress
) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    bare: list[float] = []
    async with (
        fleet(server_url, "bench_webhook", Work(jobs=0, hosts=sizes.hosts)) as opened,
        serving_onward(opened.database_url) as (port, key),
        calling(port) as caller,
        opened.commands.pool.acquire() as connection,
    ):
        # The first round warms up both, and does not count.
        for round_ in range(sizes.rounds + 1):
            turns = []
            for number in range(sizes.calls):
                called = await _call(caller, f"web-{round_}-{number}", key=key, hosts=sizes.hosts)
                inserted = await _insert(connection, f"bare-{round_}-{number}", hosts=sizes.hosts)
                turns.append((called, inserted))
            for times, found in zip((ours, bare), zip(*turns, strict=True), strict=True):
                times.append(median(found))
            progress(
                f"round {round_} of {sizes.rounds}: "
                f"{ours[-1] * 1e3:,.2f} ms against {bare[-1] * 1e3:,.2f} ms"
            )
        await _check(connection, sizes)
    return ours[1:], bare[1:]


async def _call(caller: Caller, external_id: str, *, key: str, hosts: int) -> float:
    body = {
        "external_id": external_id,
        "command_type": COMMAND_TYPE,
        "params": PARAMS,
        "selector": "all",
    }
    wanted = request("/webhook/jobs", body, key=key)
    start = time.perf_counter()
    status, answer = await caller.call(wanted)
    seconds = time.perf_counter() - start
    if status != _ACCEPTED or json.loads(answer)["total"] != hosts:
        raise InvariantBroken(f"the webhook was answered with {status}: {answer.decode()}")
    return seconds


async def _insert(connection: Connection, external_id: str, *, hosts: int) -> float:
    params, new = json.dumps(PARAMS), str(EXECUTION.initial)
    start = time.perf_counter()
    await connection.execute(_BARE, external_id, COMMAND_TYPE, params, hosts, new)
    return time.perf_counter() - start


async def _check(connection: Connection, sizes: Sizes) -> None:
    calls = sizes.calls * (sizes.rounds + 1)
    every = calls * sizes.hosts
    for kind in ("web", "bare"):
        written = await connection.fetchrow(_WRITTEN, f"{kind}-", str(EXECUTION.initial))
        if tuple(written or ()) != (calls, every, every, calls, calls):
            raise InvariantBroken(f"{kind} did not write what it was to write: {written}")
