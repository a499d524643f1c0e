"""Gives up on whoever takes too long, with one timer for all of them.

A timer for every request would cost more than reading its body; almost none of them ever rings.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

Waiting = tuple[float, int]  # until when, and how often the task had been cancelled before


class Patience:
    """So many seconds for everybody; used as `with patience:` around what may take too long.

    Whoever takes longer gets a TimeoutError there, as `asyncio.timeout` would give it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # Everybody has the same time, so who came first is given up first.
        self._waiting: dict[asyncio.Task[object], Waiting] = {}
        self._given_up: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - requests are answered by tasks
        loop = asyncio.get_running_loop()
        self._waiting[task] = loop.time() + self.seconds, task.cancelling()
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._ring, loop)

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - as above
        before = self._waiting.pop(task)[1]
        if task in self._given_up:
            self._given_up.discard(task)
            # Somebody else may have cancelled it as well, and they come first.
            if task.uncancel() <= before and kind is asyncio.CancelledError:
                raise TimeoutError

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for task, (until, _) in self._waiting.items():
            if until > loop.time():
                self._timer = loop.call_at(until, self._ring, loop)
                return
            if task not in self._given_up:
                self._given_up.add(task)
                task.cancel()
