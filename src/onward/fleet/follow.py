"""Follows what changes: the database is read once, however many listen.

Whoever listens has a position of their own and asks for what comes next. What was read last is kept
for all of them; who is further behind reads from the database alone, until they have caught up. So
a slow listener costs no memory, and a fast one does not wait for it.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from onward.errors import ServerProblem
from onward.store import changes
from onward.store.changes import Change, Position, Reader
from onward.store.database import Pool

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.follow")

_READ: Final = 2_000  # changes of each kind that are read at a time
_TOLD: Final = 500  # changes that a listener is told at a time
_SHARE: Final = 4  # pauses are so many times as long as readings: others need the database more


class Feed:
    """What has changed lately, for the tasks of one event loop."""

    def __init__(self, pool: Pool, *, poll_s: float = 0.25, kept: int = 10_000) -> None:
        self.closed = asyncio.Event()
        self._pool = pool
        self._poll_s = poll_s
        self._kept = kept
        self._listeners = 0
        self._polling: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        # Everything after `_start` and up to `_reached` is in the tail.
        self._start: Position | None = None
        self._reached: Position | None = None
        self._tail: list[Change] = []

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return self._listeners

    def close(self) -> None:
        """Let everybody who listens go, now and from now on."""
        self.closed.set()
        self._tell()

    @asynccontextmanager
    async def listen(self, position: Position) -> AsyncIterator[Listener]:
        """Listen from a position on; while nobody does, the database is left alone."""
        self._listeners += 1
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            yield Listener(self, position)
        finally:
            self._listeners -= 1
            if not self._listeners:
                await self._sleep()

    async def _sleep(self) -> None:
        polling, self._polling = self._polling, None
        self._start, self._reached, self._tail = None, None, []
        if polling is not None:
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling

    async def _poll(self) -> None:
        """Read on for as long as somebody listens; a server that is away is waited for."""
        reader: Reader | None = None
        while True:
            began = time.monotonic()
            try:
                if reader is None:
                    self._start = await changes.horizon(self._pool)
                    reader = Reader(self._pool, self._start, limit=_READ)
                self._keep(await reader.read())
                self._reached = reader.position
            except ServerProblem as error:
                log.warning("server_away", problem=str(error))
            took = time.monotonic() - began
            more = reader is not None and reader.more
            await asyncio.sleep(took if more else max(self._poll_s, _SHARE * took))

    def _keep(self, found: Sequence[Change]) -> None:
        if not found:
            return
        self._tail += found
        if len(self._tail) > 2 * self._kept:
            self._start = self._tail[-self._kept - 1].position
            self._tail = self._tail[-self._kept :]
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def after(self, position: Position) -> tuple[Sequence[Change], Position] | None:
        """Return some of what comes after a position, and where it leads.

        `None` if the position lies before what is kept.
        """
        if self._start is None or position.key < self._start.key:
            return None
        at = bisect_right(self._tail, position.key, key=_key)
        if found := self._tail[at : at + _TOLD]:
            return found, found[-1].position
        # Whoever read from the database alone may be further than the feed.
        reached = self._reached or position
        return found, reached if reached.key > position.key else position

    def reader(self, position: Position) -> Reader:
        """Return a reader for somebody who is too far behind."""
        return Reader(self._pool, position, limit=_TOLD)

    @property
    def news(self) -> asyncio.Event:
        """What is set when there is something new; it is another one after that."""
        return self._news


class Listener:
    """Somebody who listens: has been told everything up to `position`, and nothing behind it."""

    def __init__(self, feed: Feed, position: Position) -> None:
        self.position = position
        self._feed = feed
        self._reader: Reader | None = None

    async def next(self, *, wait_s: float) -> Sequence[Change]:
        """Return what comes next; nothing if nothing comes in time."""
        # Taken before looking: what comes while we look is not waited for.
        news = self._feed.news
        found = await self._found()
        if not found and not self._feed.closed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await news.wait()
            found = await self._found()
        return found

    async def _found(self) -> Sequence[Change]:
        kept = self._feed.after(self.position)
        if kept is None:
            return await self._read()
        self._reader = None
        found, self.position = kept
        return found

    async def _read(self) -> Sequence[Change]:
        """Read from the database alone, until what is kept reaches back to here."""
        if self._reader is None:
            self._reader = self._feed.reader(self.position)
        found = await self._reader.read()
        self.position = self._reader.position
        return found


def _key(change: Change) -> tuple[int, int, int]:
    return change.key
