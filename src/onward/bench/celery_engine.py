"""The Celery engine: what it gets done with two processes, and what it asks of its servers.

1. The same executions as of the fleet, from the first submission to the last report, beside a plain
   Celery application whose tasks do nothing: the same broker, as many processes.
2. Hosts that take their time, all at once: how near it comes to the time that one of them takes.
3. How many messages the broker was sent, and how often PostgreSQL had to commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import uvloop
from redis.asyncio import Redis

from onward.bench.peers import celery
from onward.bench.peers.consumers import Setup
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.scaled import scaled
from onward.bench.work import PARAMS, Work, check, fleet, submit, until_settled
from onward.embedded import Servers
from onward.errors import InvariantBroken
from onward.scratch import scratch_servers
from onward.store.database import Pool

_WORK: Final = Work(jobs=10, hosts=2_000)
_SLOW: Final = Work(jobs=1, hosts=3_000)
_AT_LEAST: Final = 5.0
_IDEALS: Final = 3.0
_MESSAGES: Final = 50  # for a thousand executions
_COMMITS: Final = 200  # for a thousand executions
_PUSHES: Final = ("cmdstat_lpush", "cmdstat_rpush")  # how a message gets into a queue
_COMMITTED: Final = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    work: Work = _WORK
    slow: Work = _SLOW
    slow_s: float = 2.0  # that a host of `slow` takes
    processes: int = 2
    rounds: int = 3
    tasks: int = 4_000  # of the plain application


class _Run(NamedTuple):
    """One piece of work, and what it took."""

    seconds: float
    messages: int
    commits: int


@dataclass(slots=True)
class _Found:
    """The best times of all rounds, and the most that any of them has asked of the servers."""

    seconds: float = float("inf")
    slow_seconds: float = float("inf")
    theirs: float = 0.0
    their_setup: str = ""
    messages: int = 0
    commits: int = 0


def celery_engine(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure the Celery engine, beside plain Celery and beside the ideal."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable, and Valkey")
    with scratch_servers("bench", valkey=True) as servers:
        found = uvloop.run(_measure(servers, sizes, progress))
    yield _beside_celery(sizes, found)
    yield _beside_the_ideal(sizes, found)
    yield _asked("broker messages", "messages", found.messages, sizes, most=_MESSAGES)
    yield _asked("PostgreSQL commits", "commits", found.commits, sizes, most=_COMMITS)


def _beside_celery(sizes: Sizes, found: _Found) -> Result:
    ours = sizes.work.executions / found.seconds
    ratio = ours / found.theirs
    return Result(
        name=f"Celery engine, {sizes.processes} processes",
        value=ours,
        unit="executions/s",
        against=f"{found.theirs:,.0f} no-op tasks/s of plain Celery, {found.their_setup}",
        ratio=ratio,
        target=f">= {_AT_LEAST:g} x",
        holds=ratio >= _AT_LEAST,
    )


def _beside_the_ideal(sizes: Sizes, found: _Found) -> Result:
    ratio = found.slow_seconds / sizes.slow_s
    return Result(
        name=f"Celery engine, {sizes.slow.hosts:,} hosts that take {sizes.slow_s:g} s",
        value=found.slow_seconds,
        unit="s",
        against=f"{sizes.slow_s:g} s, all at once",
        ratio=ratio,
        target=f"<= {_IDEALS:g} x",
        holds=ratio <= _IDEALS,
    )


def _asked(what: str, unit: str, count: int, sizes: Sizes, *, most: int) -> Result:
    each_thousand = 1_000 * count / sizes.work.executions
    return Result(
        name=f"Celery engine, {what} for 1,000 executions",
        value=each_thousand,
        unit=unit,
        against=None,
        ratio=None,
        target=f"<= {most} {unit}",
        holds=each_thousand <= most,
    )


async def _measure(servers: Servers, sizes: Sizes, progress: Progress) -> _Found:
    """Let all take turns."""
    found = _Found()
    for round_ in range(1, sizes.rounds + 1):
        ours = await _run(servers, sizes.work, sizes.processes, PARAMS)
        found.seconds = min(found.seconds, ours.seconds)
        found.messages = max(found.messages, ours.messages)
        found.commits = max(found.commits, ours.commits)
        progress(
            f"round {round_} of {sizes.rounds}: {sizes.work.executions / ours.seconds:,.0f} "
            f"executions/s, {ours.messages:,} messages, {ours.commits:,} commits"
        )
        await _plain(servers, sizes, found, progress)
        slow = await _run(servers, sizes.slow, sizes.processes, {**PARAMS, "sleep_s": sizes.slow_s})
        found.slow_seconds = min(found.slow_seconds, slow.seconds)
        progress(f"{sizes.slow.hosts:,} slow hosts: {slow.seconds:.2f} s")
    return found


async def _plain(servers: Servers, sizes: Sizes, found: _Found, progress: Progress) -> None:
    """Time the plain application: one worker with all processes, and as many workers of one."""
    for workers, each in {(1, sizes.processes), (sizes.processes, 1)}:
        shown = f"prefork, workers {workers}, concurrency {each}"
        rate = await celery.rate(
            servers, sizes.tasks, Setup(shown, workers, ("prefork", str(each)))
        )
        progress(f"plain Celery, {shown}: {rate:,.0f} tasks/s")
        if rate > found.theirs:
            found.theirs, found.their_setup = rate, shown


async def _run(servers: Servers, work: Work, processes: int, params: Mapping[str, object]) -> _Run:
    """Time a piece of work on a database and a broker of its own, and see that it was done."""
    if servers.redis_url is None:
        raise InvariantBroken("there is no broker")
    async with (
        Redis.from_url(servers.redis_url) as redis,
        fleet(servers.database_url, "bench_celery", work) as opened,
    ):
        await redis.flushall()
        pool = opened.commands.pool
        async with scaled(opened.database_url, servers.redis_url, processes=processes):
            messages, commits = await _sent(redis), await _committed(pool)
            start = time.perf_counter()
            await submit(pool, work, params)
            await until_settled(opened.database_url, work)
            seconds = time.perf_counter() - start
            messages = await _sent(redis) - messages
        # Connections tell of their last commits when they are closed.
        commits = await _committed(pool) - commits
        async with pool.acquire() as connection:
            await check(connection, work)
    return _Run(seconds, messages, commits)


async def _sent(redis: Redis) -> int:
    told = await redis.info("commandstats")
    return sum(told.get(push, {"calls": 0})["calls"] for push in _PUSHES)


async def _committed(pool: Pool) -> int:
    return int(await pool.fetchval(_COMMITTED))
