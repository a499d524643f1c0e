"""Group commit: concurrent single calls share one statement and one COMMIT.

A caller hands in one item and waits. Whoever comes within the next moment, or while earlier ones
are still on their way to the disk, goes along. Nobody is released before the COMMIT that carries
their item, so nothing is promised that is not durable; only the cost of a commit is shared.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# One group is at the disk while the next is being prepared; a third would only queue behind them.
_FLIGHTS: Final = 2
_SMALL: Final = 16  # callers who are not worth a second COMMIT


class GroupCommit(Generic[Item, Answer]):
    """Gathers single calls of one event loop into groups."""

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        wait_s: float,
        group_max: int,
    ) -> None:
        self._commit = commit
        self._wait_s = wait_s
        self._group_max = group_max
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def submit(self, item: Item) -> Answer:
        """Return the answer to `item`, after the COMMIT that carries it.

        A caller that is cancelled while it waits takes nothing back: its item may be on its way.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, answer))
        if self._timer is None and len(self._flights) < _FLIGHTS:
            # Alone, there is nobody to wait for but those who are about to call in this turn of
            # the loop. Behind a flight, a moment longer brings those whom it is about to release.
            wait_s = self._wait_s if self._flights else 0.0
            self._timer = loop.call_later(wait_s, self._take_off)
        return await answer

    async def drain(self) -> None:
        """Wait until everything that was handed in has been answered."""
        while self._waiting or self._flights:
            if self._waiting and len(self._flights) < _FLIGHTS:
                self._take_off()
            await asyncio.wait(self._flights, return_when=asyncio.FIRST_COMPLETED)

    def _take_off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Callers who wait together come back together. Shared out among the flights, one half of
        # them is answered while the other half is at the disk; as one, each would wait for all.
        free = _FLIGHTS - len(self._flights)
        share = -(-len(self._waiting) // free) if free else 0
        while self._waiting and len(self._flights) < _FLIGHTS:
            size = min(len(self._waiting), max(share, _SMALL), self._group_max)
            group = [self._waiting.popleft() for _ in range(size)]
            flight = asyncio.create_task(self._fly(group))
            self._flights.add(flight)
            flight.add_done_callback(self._land)

    def _land(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if self._waiting and self._timer is None:
            self._take_off()

    async def _fly(self, group: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._commit([item for item, _ in group])
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to those who wait
            for _, waiting in group:
                if not waiting.done():
                    _fail(waiting, error)
            return
        for (_, waiting), answer in zip(group, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)


def _fail(waiting: asyncio.Future[Answer], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        waiting.cancel()
    else:
        waiting.set_exception(error)
