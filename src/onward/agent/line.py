"""The connection to the server: made, and made again whenever it is gone, for ever.

The agent calls, so that it works from behind a NAT; a connection that is only half there is noticed
by WebSocket's own pings. Between two tries there is a pause that grows and is drawn by chance, so
that a thousand agents do not come back at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from onward.agent.host import Host
from onward.agent.server import Server
from onward.agent.state import Identity
from onward.channels.agent.messages import Up
from onward.channels.agent.wire import (
    FRAME_MAX,
    NONCE_BYTES,
    AgentSession,
    Close,
    FrameRefused,
    Hello,
    agent_session,
    read_welcome,
    say_hello,
)

_PING_S: Final = 20.0
_OPEN_S: Final = 15.0
PAUSE_MAX_S: Final = 60.0
_STEADY_S: Final = 30.0  # a connection that held for so long is followed by a short pause
_UNSENT_MAX: Final = 256  # messages; more output waits

# What only a person can put right; it is tried again all the same, seldom.
_HOPELESS: Final = frozenset({Close.UNKNOWN_HOST, Close.WRONG_MAC, Close.REVOKED, Close.EXPIRED})
_ADVICE: Final = {
    Close.UNKNOWN_HOST: "the server does not know this key: enrol the host with a new token",
    Close.WRONG_MAC: "the server does not take this key: enrol the host with a new token",
    Close.REVOKED: "the key of this host was taken from it: enrol it with a new token",
    Close.EXPIRED: "the clock of this host is wrong: set it",
    Close.DISPLACED: "another agent has the key of this host: stop one of them",
}

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.agent")


class ServerClock:
    """The server's time, as far as this host knows it: its own, until the server has told it."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def __call__(self) -> float:
        """The time now, in unix seconds."""
        if self._offset is None:
            return time.time()
        return time.monotonic() + self._offset

    def set(self, now: float) -> None:
        """Take the server's word for it."""
        self._offset = now - time.monotonic()


class Connection:
    """One connection after its handshake: what is said over it goes out signed and in order."""

    def __init__(
        self, socket: ClientConnection, session: AgentSession, clock: Callable[[], float]
    ) -> None:
        self._socket = socket
        self._session = session
        self._clock = clock
        self._unsent: deque[Up] = deque()
        self._writing = False
        self._reading = False  # the reader looks itself whether there is something to send
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def say(self, message: Up) -> None:
        """Say something, after all that was said before."""
        self._unsent.append(message)
        if not self._reading:
            self._wake.set()
        if len(self._unsent) > _UNSENT_MAX:
            self._room.clear()

    async def room(self) -> None:
        """Wait until what was said is mostly on its way, or the connection is gone."""
        await self._room.wait()

    async def write(self) -> None:
        """Send what is said, until the connection is gone."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._flush()
        finally:
            self._room.set()

    async def read(self, host: Host) -> None:
        """Take what the server says, until the connection is gone."""
        async for frame in self._socket:
            if isinstance(frame, str):
                raise FrameRefused(Close.MALFORMED, "a frame of text, and not of bytes")
            self._reading = True
            host.take(self._session.open(frame, self._clock()), self)
            self._reading = False
            # An answer that is there at once goes out at once, if that cannot mean to wait.
            if self._unsent:
                if self._socket.transport.get_write_buffer_size():
                    self._wake.set()
                else:
                    await self._flush()

    async def _flush(self) -> None:
        """Send what was said; only one at a time does, so that it goes out in order."""
        if self._writing:
            return
        self._writing = True
        try:
            while self._unsent:
                frame = self._session.seal(self._unsent.popleft(), self._clock())
                await self._socket.send(frame)
                if len(self._unsent) <= _UNSENT_MAX:
                    self._room.set()
        finally:
            self._writing = False


class Line:
    """The way to the server, for as long as the agent lives."""

    def __init__(
        self,
        server: Server,
        identity: Identity,
        host: Host,
        *,
        clock: ServerClock,
        version: str,
        pause_max_s: float = PAUSE_MAX_S,
    ) -> None:
        self._server = server
        self._identity = identity
        self._host = host
        self._clock = clock
        self._version = version
        self._pause_max_s = pause_max_s
        self._failures = 0

    async def hold(self) -> None:
        """Connect, and connect again, until cancelled."""
        while True:
            began = time.monotonic()
            problem = await self._once()
            if time.monotonic() - began >= _STEADY_S:
                self._failures = 0
            self._failures += 1
            pause_s = self._pause_s(problem)
            log.warning("not_connected", problem=problem[1], again_in_s=round(pause_s, 1))
            await asyncio.sleep(pause_s)

    async def _once(self) -> tuple[int, str]:
        """Be connected until that ends; gives the code and the reason."""
        try:
            async with connect(
                self._server.web_socket,
                ssl=self._server.tls,
                compression=None,
                max_size=FRAME_MAX,
                open_timeout=_OPEN_S,
                ping_interval=_PING_S,
                ping_timeout=_PING_S,
                close_timeout=1.0,
                user_agent_header=f"onward-agent/{self._version}",
            ) as socket:
                return await self._converse(socket)
        except ConnectionClosed as closed:
            return _told(closed)
        except (OSError, TimeoutError, WebSocketException, EOFError) as error:
            return 0, f"{self._server.shown} cannot be reached: {_sentence(error)}"

    async def _converse(self, socket: ClientConnection) -> tuple[int, str]:
        try:
            await self._talk(socket)
        except FrameRefused as refused:
            await socket.close(refused.code, str(refused)[:100])
            return refused.code, f"what the server said was refused: {refused}"
        return 0, "the server has ended the connection"

    async def _talk(self, socket: ClientConnection) -> None:
        connection = Connection(socket, await self._shake_hands(socket), self._clock)
        connection.say(self._host.ready(self._version))
        self._host.voice.connected(connection)
        log.info("connected", server=self._server.shown, host=self._identity.host)
        tasks = {
            asyncio.create_task(connection.read(self._host)),
            asyncio.create_task(connection.write()),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            self._host.voice.lost(connection)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _shake_hands(self, socket: ClientConnection) -> AgentSession:
        key, me = self._identity.key, self._identity
        hello = Hello(me.host_id, me.generation, os.urandom(NONCE_BYTES))
        await socket.send(say_hello(key, hello, now=time.time()))
        async with asyncio.timeout(_OPEN_S):
            frame = await socket.recv(decode=False)
        welcome = read_welcome(frame, key, hello)
        self._clock.set(welcome.now)
        return agent_session(key, hello, welcome)

    def _pause_s(self, problem: tuple[int, str]) -> float:
        if problem[0] in _HOPELESS:
            most = self._pause_max_s
            return random.uniform(most / 2, most)  # noqa: S311 - it keeps no secret
        most = min(self._pause_max_s, 0.5 * 2.0 ** min(self._failures, 10))
        return random.uniform(0.05, most)  # noqa: S311 - as above


def _told(closed: ConnectionClosed) -> tuple[int, str]:
    if closed.rcvd is None:
        return 0, "the connection broke"
    code = closed.rcvd.code
    advice = _ADVICE.get(code)  # type: ignore[call-overload]  # other codes are not ours
    return code, advice or f"the server has ended the connection ({code} {closed.rcvd.reason})"


def _sentence(error: BaseException) -> str:
    return str(error) or type(error).__name__
