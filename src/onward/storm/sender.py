"""A sender of the storm: says its share of the events and writes down each answer.

It is a program of its own, so that it can be killed. It reads its job as one line of JSON, opens
its connections, says `ready`, and starts when it is told to `go`. When its standard input ends, the
conductor is gone, and so is the sender.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import onward
from onward import commands
from onward.settings import Settings
from onward.store.transitions import Answer
from onward.storm import journal
from onward.storm.journal import Confirmation, Journal
from onward.storm.plan import SENDERS, Saying, draw, source_of

_MEAN_CALL: Final = 100  # events that one call carries, on average; fewer in a small storm
_CALLS_A_LINE: Final = 20  # at least so many, so that there is a middle to be killed in


@dataclass(frozen=True, slots=True)
class Job:
    """What a sender is asked to do."""

    database_url: str
    commands: int
    seed: int
    connections: int
    sender: int
    life: int  # from 1; one more each time it is started again
    journal: str
    # How many answers to get; then it waits. A sender that is to be killed in the middle gets no
    # further than this, however late its killer comes.
    limit: int | None = None

    def to_line(self) -> bytes:
        """Return the job as it goes through the pipe."""
        return json.dumps(asdict(self)).encode() + b"\n"

    def remaining(self) -> list[Saying]:
        """Return what nobody has confirmed yet, whatever became of it."""
        plan = draw(commands=self.commands, seed=self.seed, connections=self.connections)
        told = {confirmed.number for confirmed in journal.read(Path(self.journal))}
        return [saying for saying in plan.share(self.sender) if saying.number not in told]


async def run(job: Job, orders: asyncio.StreamReader) -> None:
    """Say everything that remains, each line on a connection of its own."""
    remaining = job.remaining()[: job.limit]
    opened, go = asyncio.Semaphore(0), asyncio.Event()
    lines = range(job.sender, job.connections, len(SENDERS))
    with Journal(Path(job.journal)) as told:
        async with asyncio.TaskGroup() as group:
            for line in lines:
                sayings = [saying for saying in remaining if saying.line == line]
                group.create_task(_Line(job, told, sayings).run(opened, go))
            for _ in lines:
                await opened.acquire()
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            if not await orders.readline():
                os._exit(1)
            go.set()
            orphaned = asyncio.create_task(_leave_at_the_end_of(orders))
        if job.limit is not None:
            await asyncio.Event().wait()
    orphaned.cancel()


class _Line:
    """One connection: it says its events in calls of many and, in turn, in many calls of one."""

    def __init__(self, job: Job, told: Journal, sayings: Sequence[Saying]) -> None:
        self._job = job
        self._told = told
        self._sayings = sayings
        self._chance = random.Random(f"{job.seed}.{job.life}")  # noqa: S311 - sizes of calls

    async def run(self, opened: asyncio.Semaphore, go: asyncio.Event) -> None:
        # A pool of one makes the line a connection, and the group commit its own.
        async with onward.open(Settings(database_url=self._job.database_url, pool_size=1)):
            opened.release()
            await go.wait()
            start, ways = 0, (self._batch, self._singles)
            while start < len(self._sayings):
                end = start + self._size()
                await ways[0](self._sayings[start:end])
                start, ways = end, ways[::-1]

    def _size(self) -> int:
        mean = max(2, min(_MEAN_CALL, len(self._sayings) // _CALLS_A_LINE))
        return self._chance.randint(1, 2 * mean)

    async def _batch(self, sayings: Sequence[Saying]) -> None:
        answers = await commands.record_events(
            commands.event(saying.cmd_id, saying.event, source=self._source(saying))
            for saying in sayings
        )
        self._confirm(sayings, answers)

    async def _singles(self, sayings: Sequence[Saying]) -> None:
        await asyncio.gather(*(self._single(saying) for saying in sayings))

    async def _single(self, saying: Saying) -> None:
        answer = await commands.record_event(
            saying.cmd_id, saying.event, source=self._source(saying)
        )
        self._confirm([saying], [answer])

    def _source(self, saying: Saying) -> str:
        return source_of(self._job.sender, self._job.life, saying.number)

    def _confirm(self, sayings: Sequence[Saying], answers: Sequence[Answer]) -> None:
        self._told.confirm(
            Confirmation(saying.number, self._job.life, answer.result.value)
            for saying, answer in zip(sayings, answers, strict=True)
        )


async def _leave_at_the_end_of(orders: asyncio.StreamReader) -> None:
    await orders.read()
    os._exit(1)


async def _main() -> None:
    orders = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    await run(Job(**json.loads(await orders.readline())), orders)


if __name__ == "__main__":
    try:
        asyncio.run(_main())
    except ExceptionGroup as failed:
        # The last line is for the conductor, who tells it on.
        traceback.print_exc()
        sys.exit(f"{type(failed.exceptions[0]).__name__}: {failed.exceptions[0]}")
