"""The page of a job with 10,000 hosts, in Chromium: until it is there, and while everything moves.

The service is the API on a durable PostgreSQL, in a process of its own. Each round opens the page
in a browser with an empty cache. Then the executions of the job are moved through the guarded path,
as workers move them, a thousand a second, and the page follows.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from playwright.async_api import Browser, Page

from onward.bench import chromium
from onward.bench.chromium import Frames, Opened
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.serving import serving_onward
from onward.bench.work import Work, fleet, submit
from onward.errors import InvariantBroken
from onward.scratch import scratch_servers
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, ExecutionEvent

_USEFUL_MS: Final = 500.0
_GRID_MS: Final = 1_000.0
_BYTES: Final = 250_000
_FRAME_MS: Final = 50.0
_GROWTH: Final = 1.05  # what a collection leaves behind differs by a little from time to time
_TURN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    hosts: int = 10_000
    rounds: int = 5
    changes_a_second: int = 1_000
    warm_s: float = 30.0  # before the first look at the memory
    seconds: float = 300.0  # from then on


@dataclass(frozen=True, slots=True)
class Storm:
    """What the page did while everything moved."""

    changes: int
    seconds: float
    frames: Frames
    before: int  # bytes in memory
    after: int


def dashboard(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure the page of a job."""
    sizes = sizes or Sizes()
    if chromium.missing():
        progress("not run: needs chromium")
        yield from _not_run(sizes)
        return
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        rounds, storm = asyncio.run(_measure(servers.database_url, sizes, progress))
    yield from _came_up(sizes, rounds)
    yield from _kept_up(storm)


def _came_up(sizes: Sizes, rounds: Sequence[Opened]) -> Iterator[Result]:
    page = f"job page of {sizes.hosts:,} hosts"
    useful = min(each.useful_ms for each in rounds)
    grid = min(each.grid_ms for each in rounds)
    received = max(each.received_bytes for each in rounds)
    yield _figure(f"{page}, first useful paint", useful, "ms", _USEFUL_MS)
    yield _figure(f"{page}, grid complete", grid, "ms", _GRID_MS)
    yield _figure(f"{page}, bytes to the browser", received, "bytes", _BYTES)


def _kept_up(storm: Storm) -> Iterator[Result]:
    rate = storm.changes / storm.seconds
    during = f"while {rate:,.0f} executions change a second, for {storm.seconds:,.0f} s"
    yield _figure(
        f"longest of {storm.frames.count:,} frames {during}", storm.frames.worst_ms, "ms", _FRAME_MS
    )
    growth = storm.after / storm.before
    yield Result(
        name=f"memory of the page, {during}",
        value=storm.after / 1e6,
        unit="MB",
        against=f"{storm.before / 1e6:,.2f} MB at first",
        ratio=growth,
        target=f"<= {_GROWTH:g} x",
        holds=growth <= _GROWTH,
    )


def _figure(name: str, value: float, unit: str, at_most: float) -> Result:
    target = f"<= {at_most:.0f} {unit}"
    return Result(name, value, unit, None, None, target, holds=value <= at_most)


def _not_run(sizes: Sizes) -> Iterator[Result]:
    for name in ("first useful paint", "grid complete", "bytes to the browser"):
        title = f"job page of {sizes.hosts:,} hosts, {name}"
        yield Result(title, math.nan, "ms", "no chromium here", None, "-", holds=None)


async def _measure(server_url: str, sizes: Sizes, progress: Progress) -> tuple[list[Opened], Storm]:
    work = Work(jobs=1, hosts=sizes.hosts, read_only=True)
    async with (
        fleet(server_url, "bench_dashboard", work) as opened,
        serving_onward(opened.database_url) as (port, key),
        chromium.chromium() as browser,
    ):
        pool = opened.commands.pool
        await submit(pool, work)
        address = f"http://127.0.0.1:{port}"
        rounds = []
        # The first round warms the service up, and does not count.
        for number in range(sizes.rounds + 1):
            async with _page(browser, address, key) as (_, found):
                rounds.append(found)
                progress(
                    f"round {number} of {sizes.rounds}: painted after {found.useful_ms:,.0f} ms, "
                    f"complete after {found.grid_ms:,.0f} ms, {found.received_bytes:,} bytes"
                )
        async with _page(browser, address, key) as (page, _):
            storm = await _storm(page, pool, sizes, progress)
    return rounds[1:], storm


@asynccontextmanager
async def _page(browser: Browser, address: str, key: str) -> AsyncIterator[tuple[Page, Opened]]:
    async with chromium.logged_in(browser, address, key) as context:
        yield await chromium.opened(context, "jobs/1")


async def _storm(page: Page, pool: Pool, sizes: Sizes, progress: Progress) -> Storm:
    moving = _Moving(pool, sizes.changes_a_second)
    await moving.prepare()
    task = asyncio.create_task(moving.run())
    try:
        await asyncio.sleep(sizes.warm_s)
        before = await chromium.heap_bytes(page)
        await chromium.frames(page)
        changes, began = moving.changes, time.monotonic()
        frames = Frames(0, 0, 0.0)
        while (passed := time.monotonic() - began) < sizes.seconds:
            await asyncio.sleep(min(10.0, sizes.seconds - passed))
            frames += await chromium.frames(page)
            progress(
                f"{time.monotonic() - began:,.0f} s: {frames.slow} of {frames.count:,} frames over "
                f"{_FRAME_MS:g} ms, the longest {frames.worst_ms:,.0f} ms"
            )
        changed, seconds = moving.changes - changes, time.monotonic() - began
        after = await chromium.heap_bytes(page)
    finally:
        task.cancel()
        await asyncio.wait([task])
    await _check_followed(page, pool)
    return Storm(changed, seconds, frames, before, after)


async def _check_followed(page: Page, pool: Pool) -> None:
    """Make sure that the page shows what the tables say, or it was no measurement."""
    rows = await pool.fetch("SELECT status, count(*) AS n FROM executions GROUP BY status")
    expected = {str(row["status"]).lower(): int(row["n"]) for row in rows}
    for _ in range(100):
        shown = await page.evaluate(
            "() => Object.fromEntries([...document.querySelectorAll('.chip')].map((chip) => "
            "[chip.querySelector('.chip-name').textContent, "
            "Number(chip.querySelector('strong').textContent.replaceAll(',', ''))]))"
        )
        if {name: n for name, n in shown.items() if n} == expected:
            return
        await asyncio.sleep(0.1)
    raise InvariantBroken(f"the page shows {shown}, and the tables say {expected}")


class _Moving:
    """Moves executions on and back, a claim after a retry after a claim, at a steady pace."""

    def __init__(self, pool: Pool, a_second: int) -> None:
        self.changes = 0
        self._pool = pool
        self._batch = max(1, round(a_second * _TURN_S))
        self._ids: list[int] = []

    async def prepare(self) -> None:
        """Plan everything, so that all of it can be claimed."""
        rows = await self._pool.fetch("SELECT id FROM executions ORDER BY id")
        self._ids = [row["id"] for row in rows]
        planned = [ExecutionEvent(each, "plan") for each in self._ids]
        await EXECUTIONS.record_all(self._pool, planned, batch_max=1_000)

    async def run(self) -> None:
        """Move on, until this is cancelled."""
        due = time.monotonic()
        for event in itertools.cycle(("claim", "retry")):
            for first in range(0, len(self._ids), self._batch):
                ids = self._ids[first : first + self._batch]
                moves = [ExecutionEvent(each, event) for each in ids]
                await EXECUTIONS.record_all(self._pool, moves, batch_max=1_000)
                self.changes += len(ids)
                due += _TURN_S
                await asyncio.sleep(max(0.0, due - time.monotonic()))
