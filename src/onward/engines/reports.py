"""What has ended and is not yet on disk: reported in groups, and kept until the server has it.

Whatever ends at about the same moment shares one statement and one COMMIT. If the server is away,
the reports wait here: what a host has said is not asked of it a second time only because nobody
could write it down. Saying an event twice is harmless, because the guarded path refuses a repeat.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import structlog

from onward.errors import ServerProblem

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.engine")

_FLIGHTS: Final = 2  # one group is at the disk while the next is being prepared
_GROUP_MAX: Final = 1_000

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Reports(Generic[Item, Outcome]):
    """Hands items to `commit` in groups, and the groups with what came of them to `settled`."""

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Awaitable[Outcome]],
        *,
        settled: Callable[[Sequence[Item], Outcome], None],
        pause_s: float,
    ) -> None:
        self._commit = commit
        self._settled = settled
        self._pause_s = pause_s
        self._waiting: deque[Item] = deque()
        self._under_way = 0
        self._some = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._waiting) + self._under_way

    def add(self, item: Item) -> None:
        """Take a report; it is on disk when `settled` is told of it."""
        self._waiting.append(item)
        self._some.set()
        self._none.clear()

    async def run(self) -> None:
        """Report what comes, until this is cancelled."""
        async with asyncio.TaskGroup() as flights:
            for _ in range(_FLIGHTS):
                flights.create_task(self._fly())

    async def drained(self) -> None:
        """Wait until nothing is left to report."""
        await self._none.wait()

    async def _fly(self) -> None:
        while True:
            await self._some.wait()
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _GROUP_MAX))]
            if not self._waiting:
                self._some.clear()
            if group and not await self._reported(group):
                await asyncio.sleep(self._pause_s)

    async def _reported(self, group: Sequence[Item]) -> bool:
        self._under_way += len(group)
        try:
            outcome = await self._commit(group)
        except ServerProblem as error:
            log.warning("reports_wait", reports=len(group), problem=str(error))
            self._waiting.extendleft(reversed(group))
            self._some.set()
            return False
        finally:
            self._under_way -= len(group)
        self._settled(group, outcome)
        if not len(self):
            self._none.set()
        return True
