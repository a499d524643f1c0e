# ruff: noqa: INP001 - a program, and no part of a package
"""Measures what an execution costs: `python deploy/measure.py [EXECUTIONS]`, on Linux.

A PostgreSQL that is thrown away runs one job, a host an execution, each with one line of output
and no retry. Then `sizes.sql` is asked what it left on disk, and the kernel how long the processors
were busy: those of the server, its vacuum and its checkpoints included, and those of this process,
which is the engine and whoever submits the job.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncpg
import uvloop

from onward.bench.instant import Instant
from onward.bench.work import Work, check, fleet, submit, until_settled, working
from onward.scratch import scratch_servers
from onward.store.database import Pool
from onward.wiring import Onward

_SIZES = Path(__file__).with_name("sizes.sql")
_TICKS = os.sysconf("SC_CLK_TCK")
_OURS, _THEIRS, _DISK = "processor, Python", "processor, PostgreSQL", "WAL"


async def _measure(server_url: str, work: Work) -> None:
    async with fleet(server_url, "measured", work) as opened:
        costs = await _costs(opened, work)
        pool = opened.commands.pool
        async with pool.acquire() as connection:
            await check(connection, work)
        await pool.execute("VACUUM (ANALYZE)")
        _tell(await pool.fetch(_SIZES.read_text("utf-8")), costs)


async def _costs(opened: Onward, work: Work) -> dict[str, float]:
    """Run it, and return what that has cost, by execution."""
    pool = opened.commands.pool
    server = _number(await pool.fetchval("SHOW data_directory"))
    before = await _spent(pool, server)
    async with working(opened, Instant()):
        await submit(pool, work)
        await until_settled(opened.database_url, work)
        after = await _spent(pool, server)
    return {what: (after[what] - before[what]) / work.executions for what in before}


def _number(data_directory: str) -> int:
    return int(Path(data_directory, "postmaster.pid").read_text("ascii").split()[0])


async def _spent(pool: Pool, server: int) -> dict[str, float]:
    return {
        _THEIRS: sum(_seconds(server)) * 1e6,
        _OURS: time.process_time() * 1e6,
        _DISK: float(await pool.fetchval("SELECT pg_current_wal_insert_lsn()")),
    }


def _seconds(server: int) -> Iterator[float]:
    """Give the processor time of a server and its children, also of those that have ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = path.read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended just now
        if int(path.parent.name) == server:
            yield sum(map(int, told[11:15])) / _TICKS
        elif int(told[1]) == server:
            yield sum(map(int, told[11:13])) / _TICKS


def _tell(sizes: Sequence[asyncpg.Record], costs: dict[str, float]) -> None:
    lines = [f"{'an execution':<24}{'rows':>8}{'bytes':>8}"]
    lines += [f"{row[0]:<24}{row[3]:>8}{row[4]:>8}" for row in sizes if row[3] >= 1]
    lines += [f"{_DISK:<24}{'':>8}{costs[_DISK]:>8.0f}"]
    lines += [f"{what:<24}{costs[what]:>13.0f} us" for what in (_THEIRS, _OURS)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    with scratch_servers("measure") as servers:
        given = Work(jobs=1, hosts=int((sys.argv[1:] or ["20000"])[0]))
        uvloop.run(_measure(servers.database_url, given))
