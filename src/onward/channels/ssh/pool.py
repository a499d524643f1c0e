"""The connections that are open: kept while they are used, and for a while after.

1. A host has one connection, which carries as many sessions at once as it may; who comes too many
   waits. A host that allows fewer says so when it is asked, and is believed.
2. So many connections are open at once in all. When there is no room, the one that nobody has used
   for the longest time is closed; if all are in use, who comes waits.
3. A machine that others are reached through stays open as long as they are. It takes no room, so
   that nobody waits for room while holding what another waits for.
4. Whoever waits has sent nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final

import asyncssh

from onward.channels.ssh.address import Address
from onward.channels.ssh.dial import Dialler
from onward.errors import NotDelivered

_FAREWELL_S: Final = 2.0


class Line:
    """The one connection to a host, whether or not it is open now."""

    def __init__(self, address: Address, sessions: int) -> None:
        self.address = address
        self.connection: asyncssh.SSHClientConnection | None = None
        self.opening: asyncio.Task[asyncssh.SSHClientConnection] | None = None
        self.counted = False  # the connection takes room
        self.used = 0  # by sessions and by connections through it
        self.asked = 0  # by whoever holds it, waits for it or is about to
        self.sessions = 0
        self.kept = False  # the connection has been used before, so it may have died meanwhile
        self.sessions_max = sessions
        self.idle: asyncio.TimerHandle | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def alive(self) -> bool:
        """Whether it is open, as far as we know."""
        return self.connection is not None and not self.connection.is_closed()

    async def enter(self) -> None:
        """Wait for one of the sessions."""
        while self.sessions >= self.sessions_max:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                with suppress(ValueError):
                    self._waiting.remove(turn)
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise
        self.sessions += 1

    def leave(self) -> None:
        """Give the session to the next."""
        self.sessions -= 1
        self._wake()

    def allows(self, sessions: int) -> None:
        """Note that the host has refused more than these."""
        self.sessions_max = min(self.sessions_max, sessions)

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class Seat:
    """One of the sessions of a line, taken."""

    __slots__ = ("_left", "_timer", "closed", "line")

    def __init__(self, line: Line) -> None:
        self.line = line
        self._left = False
        self._timer: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] | None = None  # when the host counts it no longer

    def leave(self) -> None:
        """Give it to the next as soon as the host would let them in."""
        if self.closed is None or self.closed.done():
            self._leave()
            return
        # A host that never says so does not hold the seat for ever.
        self._timer = asyncio.get_running_loop().call_later(_FAREWELL_S, self._leave)
        self.closed.add_done_callback(self._leave)

    def _leave(self, _closed: object = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._left:
            self._left = True
            self.line.leave()


class Pool:
    """All connections of this process."""

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler
        self._way = dialler.way
        self._lines: dict[Address, Line] = {}
        self._idle: OrderedDict[Address, Line] = OrderedDict()  # the longest idle first
        self._room = asyncio.Semaphore(dialler.way.connections)
        self._waiting = 0

    @property
    def open(self) -> int:
        """How many connections are open."""
        return sum(line.alive for line in self._lines.values())

    @asynccontextmanager
    async def session(self, address: Address, name: str) -> AsyncIterator[Seat]:
        """A seat on a line that is open."""
        line = self._line(address)
        line.asked += 1
        try:
            await line.enter()
            seat = Seat(line)
            try:
                await self._use(line, name, counted=True)
                try:
                    yield seat
                finally:
                    self._unuse(line)
            finally:
                seat.leave()
        finally:
            line.asked -= 1
            self._forget(line)

    async def reopen(self, line: Line, name: str) -> None:
        """Open a line anew that was found dead, unless others rely on its being alive."""
        if line.alive and line.used > 1:
            raise NotDelivered(f"{name} does not answer.")
        if line.connection is not None:
            line.connection.abort()
            line.connection = None
        await self._connected(line, name, counted=True)

    @contextmanager
    def held(self, line: Line) -> Iterator[asyncssh.SSHClientConnection | None]:
        """Keep a line open for a session more than it may have; none if it is not open."""
        line.used += 1
        try:
            yield line.connection if line.alive else None
        finally:
            self._unuse(line)

    @asynccontextmanager
    async def alone(
        self, address: Address, name: str
    ) -> AsyncIterator[asyncssh.SSHClientConnection]:
        """A connection of one's own, which is neither counted nor kept."""
        line = Line(address, 1)
        line.used += 1
        connection = await self._open(line, name, counted=False)
        try:
            yield connection
        finally:
            connection.close()

    async def aclose(self) -> None:
        """Close everything."""
        lines = [*self._lines.values()]
        for line in lines:
            if line.opening is not None:
                line.opening.cancel()
            if line.idle is not None:
                line.idle.cancel()
        # Those behind others go first, so that they can say good-bye.
        lines.sort(key=lambda line: -len(line.address.jumps))
        closing = [line.connection for line in lines if line.alive and line.connection is not None]
        for connection in closing:
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await asyncio.gather(*(connection.wait_closed() for connection in closing))
        self._lines.clear()
        self._idle.clear()

    def _line(self, address: Address) -> Line:
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = Line(address, self._way.sessions)
        return line

    def _forget(self, line: Line) -> None:
        """Keep nothing about a host that nobody is connected to or wants to be."""
        if line.asked or line.used or line.alive or line.opening is not None:
            return
        if self._lines.get(line.address) is line:
            del self._lines[line.address]
        self._idle.pop(line.address, None)
        if line.idle is not None:
            line.idle.cancel()

    async def _use(self, line: Line, name: str, *, counted: bool) -> asyncssh.SSHClientConnection:
        line.used += 1
        self._idle.pop(line.address, None)
        if line.idle is not None:
            line.idle.cancel()
            line.idle = None
        try:
            return await self._connected(line, name, counted=counted)
        except BaseException:
            self._unuse(line)
            raise

    def _unuse(self, line: Line) -> None:
        line.used -= 1
        if line.used or not line.alive:
            return
        if self._waiting and line.asked <= line.sessions:
            self._hang_up(line)  # Somebody waits for room, and nobody for this line.
        else:
            self._rest(line)

    def _rest(self, line: Line) -> None:
        self._idle[line.address] = line
        loop = asyncio.get_running_loop()
        line.idle = loop.call_later(self._way.idle_s, self._hang_up, line)

    def _hang_up(self, line: Line) -> None:
        self._idle.pop(line.address, None)
        if not line.used and line.connection is not None:
            line.connection.close()

    async def _connected(
        self, line: Line, name: str, *, counted: bool
    ) -> asyncssh.SSHClientConnection:
        if line.alive and line.connection is not None:
            return line.connection
        if line.opening is None:
            line.opening = asyncio.create_task(self._open(line, name, counted=counted))
            line.opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        opening = line.opening
        try:
            # Shielded: the others who wait for the connection want it still when one gives up.
            connection = await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise NotDelivered("Every connection is being closed.") from None
            raise
        if connection.is_closed():
            raise NotDelivered(f"{name} closed the connection at once.")
        return connection

    async def _open(self, line: Line, name: str, *, counted: bool) -> asyncssh.SSHClientConnection:
        before = self._line(line.address.before) if line.address.before else None
        through = None
        held: list[Callable[[], None]] = []
        opened: asyncssh.SSHClientConnection | None = None

        def gone() -> None:
            while held:
                held.pop()()
            if line.connection is opened:  # and not one that was opened since
                line.connection = None
            self._forget(line)

        try:
            if before is not None:
                through = await self._use(before, str(before.address.target), counted=False)
                held.append(partial(self._unuse, before))
            if counted:
                await self._take_room()
                held.append(self._room.release)
            opened = await self._dialler.open(line.address, name, through=through, gone=gone)
        except BaseException:
            line.opening = None
            gone()
            raise
        line.connection, line.kept, line.opening = opened, False, None
        line.counted = counted
        if not line.used:  # Whoever wanted it has given up meanwhile.
            self._rest(line)
        return opened

    async def _take_room(self) -> None:
        if self._room.locked():
            longest = next((line for line in self._idle.values() if line.counted), None)
            if longest is not None:
                self._hang_up(longest)
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
