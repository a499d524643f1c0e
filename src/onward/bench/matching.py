"""Matching: how fast deals are made, and what a long book costs.

1. Eight matchers empty a queue of orders that each find their deal, beside pgbench, which calls the
   same function of the same database on as many connections, and does nothing with the answers.
2. A matcher gives the same orders their deals in a book of a million open orders and in a book of a
   thousand, in turn. What is taken is replaced, so that the books stay as long as they are.

Afterwards the books are audited: a deal that is not right is not a fast deal.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

import onward
from onward.bench import book
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.embedded import Servers
from onward.errors import InvariantBroken
from onward.scratch import new_database, scratch_servers
from onward.settings import Settings
from onward.store import orders
from onward.store.database import Pool, pooled
from onward.trading.matching import ARRIVALS_MAX

_AT_LEAST: Final = 0.5
_AT_MOST: Final = 1.3
_AGAIN_S: Final = 0.02
_PGBENCH_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    matchers: int = 8
    limit: int = ARRIVALS_MAX  # in one transaction, as matchers of the service take them
    calls: int = 125  # of each matcher, in one round
    rounds: int = 4
    long: int = 1_000_000
    short: int = 1_000
    taken: int = 160  # deals in one of the books before it is the other's turn
    turns: int = 20

    @property
    def deals(self) -> int:
        """Deals that all matchers make in one round."""
        return self.matchers * self.limit * self.calls


@dataclass(slots=True)
class _Rates:
    """Deals a second, one figure a round."""

    ours: list[float] = field(default_factory=list)
    pgbench: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Book:
    """One of two books, and seconds a deal in it, one figure a turn."""

    pool: Pool
    length: int
    seconds: list[float] = field(default_factory=list)


def matching(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure deals a second, and then a deal in a long book beside one in a short one."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        rates = uvloop.run(_race(servers, sizes, progress))
        yield _rate(rates, sizes)
        short, long = uvloop.run(_compare(servers.database_url, sizes, progress))
    yield _time(short, long)


def _rate(rates: _Rates, sizes: Sizes) -> Result:
    ratio = max(rates.ours) / max(rates.pgbench)
    return Result(
        name=f"deals, {sizes.matchers} matchers",
        value=max(rates.ours),
        unit="deals/s",
        against=f"pgbench, the same SQL: {max(rates.pgbench):,.0f}/s",
        ratio=ratio,
        target=f">= {_AT_LEAST:g} x",
        holds=ratio >= _AT_LEAST,
    )


def _time(short: _Book, long: _Book) -> Result:
    ratio = min(long.seconds) / min(short.seconds)
    return Result(
        name=f"a deal with {long.length:,} open orders",
        value=min(long.seconds) * 1e6,
        unit="µs",
        against=f"with {short.length:,}: {min(short.seconds) * 1e6:,.1f} µs",
        ratio=ratio,
        target=f"<= {_AT_MOST:g} x",
        holds=ratio <= _AT_MOST,
    )


async def _race(servers: Servers, sizes: Sizes, progress: Progress) -> _Rates:
    rates = _Rates()
    async with _opened(servers.database_url, "bench_deals", size=sizes.matchers) as (url, pool):
        for round_ in range(1, sizes.rounds + 1):
            for name, figures in (("Onward", rates.ours), ("pgbench", rates.pgbench)):
                await _queue(pool, sizes)
                if name == "Onward":
                    seconds = await _matchers(pool, sizes)
                else:
                    seconds = await _pgbench(servers.bin_dir, url, sizes)
                # Who met an order that was locked may have found too few: what was left over is no
                # part of the figure, but of the market that is audited.
                made: int = await pool.fetchval("SELECT count(*) FROM deals")
                await _drain(pool, sizes.limit)
                await book.verify(pool, sizes.deals)
                figures.append(made / seconds)
                progress(f"round {round_} of {sizes.rounds}: {name} {figures[-1]:,.0f} deals/s")
    return rates


async def _queue(pool: Pool, sizes: Sizes) -> None:
    await book.empty(pool)
    await book.stand(pool, "sell", book.OFFERS, 2 * sizes.deals)
    await book.arrive(pool, "buy", book.TAKERS, sizes.deals)
    await book.tidy(pool)


async def _matchers(pool: Pool, sizes: Sizes) -> float:
    async def matcher() -> None:
        for _ in range(sizes.calls):
            await orders.match(pool, limit=sizes.limit, again_s=_AGAIN_S)

    start = time.perf_counter()
    await asyncio.gather(*(matcher() for _ in range(sizes.matchers)))
    return time.perf_counter() - start


async def _drain(pool: Pool, limit: int) -> int:
    """Match whatever has arrived, and say how many deals that made."""
    deals = 0
    while (matched := await orders.match(pool, limit=limit, again_s=_AGAIN_S)).arrivals:
        deals += matched.deals
    return deals


async def _pgbench(bin_dir: Path, url: str, sizes: Sizes) -> float:
    with TemporaryDirectory() as folder:
        script = Path(folder) / "match.sql"
        call = orders.SQL["match"].replace("$1", str(sizes.limit)).replace("$2", str(_AGAIN_S))
        script.write_text(f"{call};\n", encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            str(bin_dir / "pgbench"),
            *("--no-vacuum", "--protocol=prepared", f"--file={script}"),
            *(f"--client={sizes.matchers}", f"--jobs={min(_PGBENCH_THREADS, sizes.matchers)}"),
            *(f"--transactions={sizes.calls}", url),
            env={**os.environ, "PGOPTIONS": "-c search_path=onward,public -c jit=off"},
            stdout=PIPE,
            stderr=PIPE,
        )
        told, complaint = (part.decode() for part in await process.communicate())
    tps = re.search(r"tps = ([\d.]+)", told)
    if process.returncode or tps is None:
        raise InvariantBroken(f"pgbench failed: {complaint.strip()}")
    return sizes.matchers * sizes.calls / float(tps[1])


async def _compare(server_url: str, sizes: Sizes, progress: Progress) -> tuple[_Book, _Book]:
    async with AsyncExitStack() as stack:
        books = []
        for name, length in (("short", sizes.short), ("long", sizes.long)):
            _, pool = await stack.enter_async_context(_opened(server_url, f"bench_{name}", size=1))
            await book.stand(pool, "buy", book.BIDS, length // 2, progress)
            await book.stand(pool, "sell", book.OFFERS, length // 2, progress)
            await book.tidy(pool)
            books.append(_Book(pool, length))
        for turn in range(1, sizes.turns + 1):
            told = [await _take(each, sizes) for each in books]
            progress(
                f"turn {turn} of {sizes.turns}: "
                + ", ".join(f"{told_ * 1e6:,.1f} µs" for told_ in told)
            )
        for each in books:
            await book.verify(each.pool, sizes.taken * sizes.turns)
    short, long = books
    return short, long


async def _take(found: _Book, sizes: Sizes) -> float:
    """Let orders arrive that each take the best offer, and put as many new ones into the book."""
    await book.arrive(found.pool, "buy", book.TAKERS, sizes.taken)
    start = time.perf_counter()
    deals = await _drain(found.pool, sizes.limit)
    found.seconds.append((time.perf_counter() - start) / sizes.taken)
    if deals != sizes.taken:
        raise InvariantBroken(f"{deals:,} deals were made instead of {sizes.taken:,}")
    await book.stand(found.pool, "sell", book.OFFERS, sizes.taken)
    return found.seconds[-1]


@asynccontextmanager
async def _opened(server_url: str, name: str, *, size: int) -> AsyncIterator[tuple[str, Pool]]:
    """A new market, and connections for those who match there."""
    url = await new_database(server_url, name)
    async with onward.open(Settings(database_url=url)), pooled(url, size=size) as pool:
        yield url, pool
