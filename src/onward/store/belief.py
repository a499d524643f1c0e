"""What was found in the database is believed for a second: not every request asks for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

_FRESH_S: Final = 1.0  # how long a change elsewhere may go unnoticed here
_KNOWN_MAX: Final = 10_000

T = TypeVar("T")


class Belief(Generic[T]):
    """Whom a secret belongs to, by its digest, for the tasks of one event loop.

    Whoever changes something forgets at once. What was not found is not remembered, so that nobody
    can fill the memory.
    """

    def __init__(
        self,
        ask: Callable[[bytes], Awaitable[T | None]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[bytes, tuple[float, T]] = {}
        self._asking: dict[bytes, asyncio.Task[T | None]] = {}

    async def of(self, digest: bytes) -> T | None:
        """Return what there is for a digest, as it was at most a second ago."""
        known = self._known.get(digest)
        if known is not None and self._clock() < known[0]:
            return known[1]
        # Everybody who comes with one secret at once asks the database once. A caller who leaves
        # does not take the question away from the others.
        asking = self._asking.get(digest)
        if asking is None:
            asking = asyncio.create_task(self._asked(digest))
            self._asking[digest] = asking
        return await asyncio.shield(asking)

    def forget(self) -> None:
        """Believe nothing that was found before now."""
        self._known.clear()
        # A question that was asked before may be answered with what was true before.
        self._asking.clear()

    async def _asked(self, digest: bytes) -> T | None:
        # Fresh from when it was asked, not from when the answer came.
        until = self._clock() + _FRESH_S
        this = asyncio.current_task()
        try:
            found = await self._ask(digest)
            if found is None:
                self._known.pop(digest, None)
            elif self._asking.get(digest) is this:
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                self._known[digest] = (until, found)
            return found
        finally:
            if self._asking.get(digest) is this:
                del self._asking[digest]
