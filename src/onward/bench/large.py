"""A transition in a large table costs what it costs in a small one.

Two databases of one server, one with many commands and one with few. Both are asked in turn, about
commands drawn by chance. Each of these was moved once just before, so that on both sides its pages
are in memory and have been written to since the last checkpoint: what is compared is the way to the
row, not how cold it is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Final

import onward
from onward import commands
from onward.bench.filling import command_id, fill
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.errors import InvariantBroken
from onward.scratch import new_database, scratch_servers
from onward.settings import Settings
from onward.store.transitions import Answer

_AT_MOST: Final = 1.25
_TURN: Final = 50  # single transitions on one side before it is the other's turn


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; a command is asked to move in one round only."""

    large: int = 5_000_000
    small: int = 10_000
    singles: int = 250
    batch: int = 1_000
    batches: int = 1
    rounds: int = 8

    @property
    def drawn(self) -> int:
        """Commands that one round takes from each side."""
        return self.singles + self.batch * self.batches


@dataclass(slots=True)
class _Side:
    """One of the two databases, and seconds a transition there, one figure a round."""

    opened: Context  # in which `onward.commands` speaks to this database
    numbers: list[int]  # the commands still to be drawn
    single: list[float] = field(default_factory=list)
    batch: list[float] = field(default_factory=list)

    async def call(self, doing: Coroutine[object, object, float]) -> float:
        """Do something in this database."""
        return await asyncio.create_task(doing, context=self.opened)

    def draw(self, count: int) -> list[str]:
        """Take the ids of commands that nobody has asked about yet."""
        drawn, self.numbers = self.numbers[:count], self.numbers[count:]
        return [command_id(number) for number in drawn]


def large(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure the time of a transition, alone and in a batch."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        small, big = asyncio.run(_measure(servers.database_url, sizes, progress))
    against = f"{sizes.small:,} commands"
    yield _result(f"single transition among {sizes.large:,}", big.single, small.single, against)
    yield _result(f"transition in a batch among {sizes.large:,}", big.batch, small.batch, against)


def _result(name: str, ours: list[float], theirs: list[float], against: str) -> Result:
    ratio = min(ours) / min(theirs)
    return Result(
        name=name,
        value=min(ours) * 1e6,
        unit="µs",
        against=f"{against}: {min(theirs) * 1e6:,.1f} µs",
        ratio=ratio,
        target=f"<= {_AT_MOST:g} x",
        holds=ratio <= _AT_MOST,
    )


async def _measure(server_url: str, sizes: Sizes, progress: Progress) -> tuple[_Side, _Side]:
    chance = random.Random(sizes.large)
    async with AsyncExitStack() as stack:
        sides = []
        for name, count in (("small", sizes.small), ("large", sizes.large)):
            url = await new_database(server_url, f"bench_{name}")
            # Nobody waits for company here: a wait would hide what the table costs.
            settings = Settings(database_url=url, group_commit_ms=0)
            opened = await stack.enter_async_context(onward.open(settings))
            start = time.perf_counter()
            async with opened.commands.pool.acquire() as connection:
                await fill(connection, count, progress)
            progress(f"the {name} table took {time.perf_counter() - start:.1f} s to make")
            drawn = chance.sample(range(count), sizes.drawn * sizes.rounds)
            sides.append(_Side(copy_context(), drawn))
        small, big = sides
        for round_ in range(1, sizes.rounds + 1):
            await _round(small, big, sizes)
            progress(
                f"round {round_} of {sizes.rounds}: single {big.single[-1] * 1e6:,.0f} µs against "
                f"{small.single[-1] * 1e6:,.0f}, in a batch {big.batch[-1] * 1e6:,.1f} µs against "
                f"{small.batch[-1] * 1e6:,.1f}"
            )
    return small, big


async def _round(small: _Side, big: _Side, sizes: Sizes) -> None:
    sides = (small, big)
    drawn = [side.draw(sizes.drawn) for side in sides]
    for side, ids in zip(sides, drawn, strict=True):
        await side.call(_record(ids, "send"))
    singles, batches = [0.0, 0.0], [0.0, 0.0]
    for start in range(0, sizes.singles, _TURN):
        end = min(start + _TURN, sizes.singles)
        for which, side in enumerate(sides):
            singles[which] += await side.call(_acknowledge(drawn[which][start:end]))
    for start in range(sizes.singles, sizes.drawn, sizes.batch):
        for which, side in enumerate(sides):
            batches[which] += await side.call(
                _record(drawn[which][start : start + sizes.batch], "ack")
            )
    for which, side in enumerate(sides):
        side.single.append(singles[which] / sizes.singles)
        side.batch.append(batches[which] / (sizes.batch * sizes.batches))


async def _record(ids: Sequence[str], event: str) -> float:
    start = time.perf_counter()
    answers = await commands.record_events([commands.event(cmd_id, event) for cmd_id in ids])
    seconds = time.perf_counter() - start
    _must_have_moved(answers)
    return seconds


async def _acknowledge(ids: Sequence[str]) -> float:
    start = time.perf_counter()
    answers = [await commands.mark_command_ack(cmd_id) for cmd_id in ids]
    seconds = time.perf_counter() - start
    _must_have_moved(answers)
    return seconds


def _must_have_moved(answers: Sequence[Answer]) -> None:
    if not all(answer.changed for answer in answers):
        raise InvariantBroken("A measurement asked for moves that were refused.")
