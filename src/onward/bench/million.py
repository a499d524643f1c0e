"""A job of a million executions: as fast as a small one, in a process whose memory stays flat.

Engine, channel and connections are in a process of their own, whose peak of memory is read from the
kernel. A job of 20,000 is run in the same way before and after it.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

import onward
from onward.bench.instant import Instant
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.work import Work, check, fleet, submit, until_settled, working
from onward.errors import InvariantBroken
from onward.scratch import scratch_servers
from onward.settings import Settings

_AT_LEAST: Final = 0.8
_MEMORY_MB: Final = 400
_STATUS: Final = Path("/proc/self/status")
_STEP: Final = 20_000  # executions between two words on the way


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many executions."""

    large: int = 1_000_000
    small: int = 20_000
    rounds: int = 2  # of the small one, before the large one and after it


class _Run(NamedTuple):
    """What one run was like."""

    rate: float
    peak_mb: float  # not a number where the kernel does not tell


def million(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure the rate and the memory of a large job."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        large, small = asyncio.run(_measure(servers.database_url, sizes, progress))
    name = f"a job of {sizes.large:,} executions"
    ratio = large.rate / small
    against = f"{small:,.0f}/s in a job of {sizes.small:,}"
    yield Result(
        name,
        large.rate,
        "executions/s",
        against,
        ratio,
        f">= {_AT_LEAST:g} x",
        ratio >= _AT_LEAST,
    )
    yield _memory(name, large.peak_mb)


def _memory(name: str, peak_mb: float) -> Result:
    name, target = f"{name}, memory of the process", f"<= {_MEMORY_MB} MB"
    if math.isnan(peak_mb):
        return Result(name, peak_mb, "MB", "not run: needs Linux", None, target, None)
    return Result(name, peak_mb, "MB", None, None, target, peak_mb <= _MEMORY_MB)


async def _measure(server_url: str, sizes: Sizes, progress: Progress) -> tuple[_Run, float]:
    small = [await _run(server_url, sizes.small, progress) for _ in range(sizes.rounds)]
    large = await _run(server_url, sizes.large, progress)
    small += [await _run(server_url, sizes.small, progress) for _ in range(sizes.rounds)]
    return large, max(run.rate for run in small)


async def _run(server_url: str, executions: int, progress: Progress) -> _Run:
    """Run one job in a process of its own, and look afterwards whether it was done."""
    work = Work(jobs=1, hosts=executions)
    async with fleet(server_url, "bench_million", work) as opened:
        progress(f"{executions:,} hosts are there")
        run = await _child(opened.database_url, work, progress)
        async with opened.commands.pool.acquire() as connection:
            await check(connection, work)
    progress(f"a job of {executions:,}: {run.rate:,.0f}/s, {run.peak_mb:,.0f} MB")
    return run


async def _child(url: str, work: Work, progress: Progress) -> _Run:
    command = (sys.executable, "-m", __name__, url, str(work.hosts))
    child = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    run = None
    try:
        async for line in child.stdout:
            told = json.loads(line)
            if "settled" in told:
                progress(f"{told['settled']:,} of {work.executions:,} settled")
            else:
                run = _Run(**told)
        _, complaint = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode or run is None:
        raise InvariantBroken(f"the run failed: {complaint.decode()[-2_000:]}")
    return run


async def _work(url: str, hosts: str) -> None:
    work, channel = Work(jobs=1, hosts=int(hosts)), Instant()
    told = 0

    def settled(count: int) -> None:
        nonlocal told
        if count // _STEP > told // _STEP:
            told = count
            _tell(settled=count)

    async with onward.open(Settings(database_url=url)) as opened, working(opened, channel):
        start = time.perf_counter()
        await submit(opened.commands.pool, work)
        await until_settled(url, work, settled)
        seconds = time.perf_counter() - start
    if channel.delivered != work.executions:
        raise InvariantBroken(f"{channel.delivered:,} commands reached their hosts")
    _tell(rate=work.executions / seconds, peak_mb=_peak_mb())


def _tell(**what: float) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def _peak_mb() -> float:
    """The most memory that this process has ever had; `getrusage` would count its parent's too."""
    if not _STATUS.exists():
        return math.nan
    lines = dict(line.split(":", 1) for line in _STATUS.read_text("ascii").splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    uvloop.run(_work(*sys.argv[1:]))
