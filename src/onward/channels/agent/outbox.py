"""What is written to a connection: in the order in which it was handed in, and within bounds.

Nobody waits for a slow reader. What is not written yet piles up to a bound; whoever is beyond it is
given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Socket(Protocol):
    """A connection over which frames come and go."""

    async def receive(self) -> bytes | None:
        """Return the next frame, and none once the connection is over."""
        ...

    async def send(self, frame: bytes) -> None:
        """Write a frame; an OSError means that nothing of it was written."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """End the connection, soon and in any case."""
        ...


class Sent(Protocol):
    """Somebody who wants to know whether the other side may have got a frame."""

    written: bool


class _Frame(NamedTuple):
    frame: bytes
    sent: Sent | None


class Outbox:
    """Writes frames to a socket; `lost` is called once when that is no longer possible."""

    __slots__ = ("_closing", "_lost", "_over", "_room", "_socket", "_waiting", "_writing")

    def __init__(self, socket: Socket, *, room: int, lost: Callable[[], None]) -> None:
        self._socket = socket
        self._room = room  # bytes
        self._lost = lost
        self._over = False
        self._waiting: deque[_Frame] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will be written."""
        return self._over

    def put(self, frame: bytes, sent: Sent | None = None) -> bool:
        """Have a frame written, in its turn; false if there is no room for it."""
        if self._over:
            return True
        self._room -= len(frame)
        if self._room < 0:
            return False
        self._waiting.append(_Frame(frame, sent))
        # A task that lasts for as long as there is something to write: thousands of connections
        # are silent most of the time.
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return True

    def end(self, code: int, reason: str) -> None:
        """Write nothing more, and end the connection."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._socket.close(code, reason))
        self.give_up()

    def give_up(self) -> None:
        """Write nothing more."""
        if not self._over:
            self._over = True
            self._waiting.clear()
            self._lost()

    async def closed(self) -> None:
        """Wait until the connection has been ended, if anybody ended it."""
        if self._closing is not None:
            await self._closing

    async def _write(self) -> None:
        try:
            while self._waiting:
                frame, sent = self._waiting.popleft()
                await self._socket.send(frame)
                self._room += len(frame)
                if sent is not None:
                    sent.written = True
        except OSError:
            self.give_up()
        finally:
            self._writing = None
