"""What it costs that a host runs one command at a time: a queue that is long and narrow.

100,000 executions wait in the queue of 100 hosts, a thousand on each. They are compared with the
same number of the same executions where the rule stands in nobody's way, and of the two ways to
have that, with the faster:

1. each on a host of its own, so that any of them may be next;
2. on the same 100 hosts, of a type that may share its host.

Everything is planned beforehand, so that what is timed is the claiming, running and settling that
the rule is about.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import uvloop

from onward.bench.instant import Instant
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.work import Work, check, fleet, submit, until_settled, working
from onward.errors import InvariantBroken
from onward.fleet.publish import publish_outbox
from onward.scratch import scratch_servers
from onward.store import jobs
from onward.store.database import Pool

_AT_LEAST: Final = 0.5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long the queue is, and over how many hosts."""

    jobs: int = 1_000
    hosts: int = 100
    rounds: int = 2


def host_rule(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure the rate of a queue over few hosts, beside the same queue without the rule."""
    sizes = sizes or Sizes()
    held = Work(jobs=sizes.jobs, hosts=sizes.hosts)
    works = {
        "one at a time": held,
        "a host each": replace(held, hosts=held.executions, groups=held.jobs),
        "sharing hosts": replace(held, read_only=True),
    }
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        rates = uvloop.run(_measure(servers.database_url, works, sizes.rounds, progress))
    ours = max(rates.pop("one at a time"))
    best = {name: max(found) for name, found in rates.items()}
    fastest = max(best, key=best.__getitem__)
    ratio = ours / best[fastest]
    yield Result(
        name=f"one command per host, {held.executions:,} queued over {held.hosts:,} hosts",
        value=ours,
        unit="executions/s",
        against=f"{best[fastest]:,.0f}/s with no host rule, {fastest}",
        ratio=ratio,
        target=f">= {_AT_LEAST:g} x",
        holds=ratio >= _AT_LEAST,
    )


async def _measure(
    server_url: str, works: dict[str, Work], rounds: int, progress: Progress
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(1, rounds + 1):
        for name, work in works.items():
            rates[name].append(await _rate(server_url, work))
            progress(f"round {round_} of {rounds}: {name} {rates[name][-1]:,.0f} executions/s")
    return rates


async def _rate(server_url: str, work: Work) -> float:
    channel = Instant()
    async with fleet(server_url, "bench_host_rule", work) as opened:
        pool = opened.commands.pool
        await _queue(pool, work)
        start = time.perf_counter()
        async with working(opened, channel):
            await until_settled(opened.database_url, work)
            seconds = time.perf_counter() - start
        async with pool.acquire() as connection:
            await check(connection, work)
    if channel.delivered != work.executions:
        raise InvariantBroken(f"{channel.delivered:,} commands reached their hosts")
    return work.executions / seconds


async def _queue(pool: Pool, work: Work) -> None:
    """Submit and plan everything, as an engine would that claims nothing."""

    async def plan(job_ids: Iterable[int]) -> None:
        for job_id in job_ids:
            await jobs.plan(pool, job_id, batch=work.executions)

    await submit(pool, work)
    while await publish_outbox(pool, plan):
        pass
    await pool.execute("VACUUM (ANALYZE) executions, queue")
    await pool.execute("CHECKPOINT")
