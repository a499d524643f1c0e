"""Transitions in PostgreSQL: through Onward, and through pgbench, which does the same in C.

pgbench gets the fastest form there is: one prepared statement a transition, which moves the row and
writes the timeline, with the same guard, on 16 connections at once. It does less than Onward: it
does not say why it refused. Both begin each round with fresh rows, and each row moves once.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import onward
from onward import commands
from onward.bench.filling import ID_SQL, command_id, fill, verify_moved
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.embedded import Servers
from onward.errors import InvariantBroken
from onward.scratch import new_database, scratch_servers
from onward.settings import Settings

_PGBENCH_CLIENTS: Final = 16
_PGBENCH_THREADS: Final = 2

# A variable of a pgbench client keeps its value from one transaction to the next, so each client
# counts through a range of its own and no row is asked to move twice.
_PGBENCH_SCRIPT: Final = f"""\
\\set number :client_id * :share + :turn
\\set turn :turn + 1
WITH moved AS (
    UPDATE commands SET status = 'SENT', version = version + 1, updated_at = now()
     WHERE cmd_id = {ID_SQL.format(n=":number::bigint")} AND status IN ('QUEUED', 'SEND_FAILED')
    RETURNING cmd_id, epoch
)
INSERT INTO timeline (at, cmd_id, event, verdict, from_status, to_status, epoch, source)
SELECT now(), cmd_id, 'send', 'OK', 'QUEUED', 'SENT', epoch, '' FROM moved;
"""  # noqa: S608 - made of constants


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    commands: int = 100_000
    singles: int = 51_200
    callers: int = 256
    rounds: int = 3


@dataclass(slots=True)
class _Rates:
    """Transitions a second, one figure a round."""

    batch: list[float] = field(default_factory=list)
    single: list[float] = field(default_factory=list)
    pgbench: list[float] = field(default_factory=list)


def store(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure many transitions in one call, and single ones of many callers."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        rates = asyncio.run(_measure(servers, sizes, progress))
    yield _result("batch transitions", rates.batch, rates.pgbench, at_least=8)
    name = f"single transitions, {sizes.callers} callers"
    yield _result(name, rates.single, rates.pgbench, at_least=4)


def _result(name: str, ours: list[float], theirs: list[float], *, at_least: float) -> Result:
    ratio = max(ours) / max(theirs)
    return Result(
        name=name,
        value=max(ours),
        unit="events/s",
        against=f"pgbench {max(theirs):,.0f} tps",
        ratio=ratio,
        target=f">= {at_least:g} x",
        holds=ratio >= at_least,
    )


async def _measure(servers: Servers, sizes: Sizes, progress: Progress) -> _Rates:
    rates = _Rates()
    url = await new_database(servers.database_url, "bench_store")
    async with onward.open(Settings(database_url=url)) as opened:
        for round_ in range(1, sizes.rounds + 1):
            for name, figures, count in (
                ("batch", rates.batch, sizes.commands),
                ("pgbench", rates.pgbench, sizes.commands),
                ("single", rates.single, sizes.singles),
            ):
                async with opened.commands.pool.acquire() as connection:
                    await fill(connection, sizes.commands)
                match name:
                    case "batch":
                        rate = await _batch(count)
                    case "single":
                        rate = await _singles(count, sizes.callers)
                    case _:
                        rate = await _pgbench(servers.bin_dir, url, count)
                async with opened.commands.pool.acquire() as connection:
                    await verify_moved(connection, count, to="SENT")
                figures.append(rate)
                progress(f"round {round_} of {sizes.rounds}: {name} {rate:,.0f}/s")
    return rates


async def _batch(count: int) -> float:
    ids = [command_id(number) for number in range(count)]
    start = time.perf_counter()
    await commands.record_events([commands.event(cmd_id, "send") for cmd_id in ids])
    return count / (time.perf_counter() - start)


async def _singles(count: int, callers: int) -> float:
    async def caller(ids: Sequence[str]) -> None:
        for cmd_id in ids:
            await commands.mark_command_sent(cmd_id)

    ids = [command_id(number) for number in range(count)]
    start = time.perf_counter()
    await asyncio.gather(*(caller(ids[first::callers]) for first in range(callers)))
    return count / (time.perf_counter() - start)


async def _pgbench(bin_dir: Path, url: str, count: int) -> float:
    share, left = divmod(count, _PGBENCH_CLIENTS)
    assert not left, "the clients of pgbench share the commands evenly"  # noqa: S101
    with TemporaryDirectory() as folder:
        script = Path(folder) / "transition.sql"
        script.write_text(_PGBENCH_SCRIPT, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            str(bin_dir / "pgbench"),
            *("--no-vacuum", "--protocol=prepared", f"--file={script}"),
            *(f"--client={_PGBENCH_CLIENTS}", f"--jobs={_PGBENCH_THREADS}"),
            *(f"--transactions={share}", f"--define=share={share}", "--define=turn=0"),
            url,
            env={**os.environ, "PGOPTIONS": "-c search_path=onward,public"},
            stdout=PIPE,
            stderr=PIPE,
        )
        told, complaint = (part.decode() for part in await process.communicate())
    tps = re.search(r"tps = ([\d.]+)", told)
    if process.returncode or tps is None:
        raise InvariantBroken(f"pgbench failed: {complaint.strip()}")
    return float(tps[1])
