"""An answer that is the same for everybody is made once for all who ask at about the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

Answer = TypeVar("Answer")

_SHARE: Final = 20  # an answer is kept so many times as long as it took: others need the database
_LONGEST_S: Final = 10.0  # after a stall, too: that is when people look


class Shared(Generic[Answer]):
    """Keeps an answer for `keep_s` from when it was begun, and longer if it was long in making."""

    def __init__(self, *, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._making: asyncio.Task[Answer] | None = None
        self._began = 0.0
        self._until = 0.0

    async def get(self, make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the answer that is there, or make it; nobody is told that somebody failed before.

        Whoever asks while it is being made waits for that one.
        """
        if self._making is None or (self._making.done() and self._clock() >= self._until):
            self._began = self._clock()
            self._making = asyncio.create_task(make())
            self._making.add_done_callback(self._made)
        # Whoever gives up does not take the answer from the others.
        return await asyncio.shield(self._making)

    def _made(self, making: asyncio.Task[Answer]) -> None:
        if making.cancelled() or making.exception() is not None:
            self._making = None
            return
        took = self._clock() - self._began
        self._until = self._began + max(self._keep_s, min(_SHARE * took, took + _LONGEST_S))
