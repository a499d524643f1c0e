"""A small server that speaks with agents, for what does not need the real one."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from onward.agent.state import Identity, State
from onward.channels.agent.messages import Down, Receipt, Result, Up
from onward.channels.agent.wire import (
    FRAME_MAX,
    NONCE_BYTES,
    FrameRefused,
    Hello,
    ServerSession,
    Welcome,
    check_hello,
    read_hello,
    say_welcome,
    server_session,
)
from tests.agent.grounds import Heard

HOST_ID = 7


async def greet(
    socket: ServerConnection,
    key: bytes,
    clock: Callable[[], float] = time.time,
    *,
    checks: bool = True,
) -> tuple[Hello, ServerSession]:
    """Do the server's part of a handshake."""
    frame = await socket.recv(decode=False)
    hello = read_hello(frame)
    if checks:
        check_hello(frame, key, now=clock())
    welcome = Welcome(os.urandom(NONCE_BYTES), clock())
    await socket.send(say_welcome(key, hello, welcome))
    return hello, server_session(key, hello, welcome)


class Desk(Heard):
    """Hears whoever connects, and says something to whoever is connected."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self.key = key
        self.port = 0
        self.receipts = True
        self.connections = 0
        self.clock = time.time
        self.checks = True
        self.codes: list[int | None] = []  # with which connections were ended
        self.socket: ServerConnection | None = None
        self.session: ServerSession | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def meet(self, socket: ServerConnection) -> None:
        try:
            _, self.session = await greet(socket, self.key, self.clock, checks=self.checks)
            self.socket = socket
            self.connections += 1
            async for frame in socket:
                assert isinstance(frame, bytes)
                await self._hear(self.session.open(frame, self.clock()))
        except FrameRefused as refused:
            await socket.close(refused.code, str(refused))
        except ConnectionClosed:
            pass
        finally:
            self.codes.append(socket.close_code)

    async def tell(self, message: Down) -> None:
        assert self.session is not None
        assert self.socket is not None
        await self.socket.send(self.session.seal(message, self.clock()))

    async def try_to_tell(self, message: Down) -> None:
        """Say something that may get lost."""
        with suppress(ConnectionClosed):
            await self.tell(message)

    async def _hear(self, message: Up) -> None:
        self.say(message)
        if isinstance(message, Result) and self.receipts:
            await self.tell(Receipt(message.cmd, message.epoch))

    async def hang_up(self) -> None:
        """Cut the connection without a word."""
        assert self.socket is not None
        self.socket.transport.abort()
        await self.socket.wait_closed()


@asynccontextmanager
async def open_desk(key: bytes | None = None, port: int = 0) -> AsyncIterator[Desk]:
    desk = Desk(key or os.urandom(32))
    async with serve(desk.meet, "127.0.0.1", port, max_size=FRAME_MAX, compression=None) as server:
        desk.port = next(iter(server.sockets)).getsockname()[1]
        yield desk


def enrolled(state: State, key: bytes) -> None:
    """Leave a state as an enrolment does."""
    state.folder.mkdir(mode=0o700, exist_ok=True)
    state.keep_identity(Identity(HOST_ID, "host-7", 1, key))
