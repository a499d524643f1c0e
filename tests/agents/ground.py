"""A server that agents connect to, and agents that do as they are told and run nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from secrets import token_bytes
from time import time

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from onward.api.app import create_app
from onward.api.events import end_streams
from onward.api.services import Services
from onward.channels.agent.messages import (
    Accepted,
    Blocks,
    Down,
    Ready,
    Receipt,
    Result,
    Run,
    Stop,
    Stopped,
    Up,
)
from onward.channels.agent.wire import (
    FRAME_MAX,
    AgentSession,
    Hello,
    agent_session,
    read_welcome,
    say_hello,
)
from onward.channels.base import Delivery, Target
from onward.service.listening import listening, serve
from onward.service.serving import services as services_for
from onward.store import hosts
from onward.store.hosts import NewHost
from onward.wiring import Onward
from tests.present import TESTER

BOUND_S = 20.0
VERSION = "light 1"

_numbers = count(1)
_epochs = count(1_000)


@dataclass(frozen=True)
class Server:
    """A process that serves agents, as far as the tests need one."""

    services: Services
    port: int

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def host(self) -> int:
        """Make a host whose agent has enrolled; its key is of the first generation."""
        name = f"host-{next(_numbers)}"
        made = await hosts.create(self.services.pool, NewHost(name, {}, "agent", ""), by=TESTER)
        assert made is not None
        await self.services.pool.execute(
            "UPDATE hosts SET key_generation = 1 WHERE id = $1", made.host_id
        )
        return made.host_id

    def agent(self, host_id: int, *, generation: int = 1, url: str = "") -> Agent:
        """Make an agent that has the key of a host."""
        key = self.services.keyring.agent_key(host_id, generation)
        return Agent(url or self.url, host_id, key, generation)

    @asynccontextmanager
    async def connected(self, host_id: int) -> AsyncIterator[Agent]:
        """Connect an agent, and wait until the server knows it."""
        async with self.agent(host_id).connected() as agent:
            await until(lambda: self.services.hub.has(host_id))
            yield agent


@asynccontextmanager
async def serving(
    opened: Onward,
    *,
    services: Services | None = None,
    keepalive_s: float = 20.0,
    send_buffer: int | None = None,
) -> AsyncIterator[Server]:
    """Serve as `onward up` does, on a port of its own.

    With a small `send_buffer`, what nobody reads stays with the process and not in the kernel.
    """
    with listening("127.0.0.1", 0) as listener:
        if send_buffer is not None:
            listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        found = services or services_for(opened, url=listener.address)
        found.attendance.url = listener.address
        app = create_app(found)
        stopping, ready = asyncio.Event(), asyncio.Event()
        served = asyncio.create_task(
            serve(
                app,
                listener,
                stopping,
                access_log=False,
                ready=ready.set,
                hang_up=partial(end_streams, app),
                keepalive_s=keepalive_s,
            )
        )
        attending = asyncio.create_task(found.attendance.run(found.hub))
        try:
            await ready.wait()
            yield Server(found, int(listener.address.rpartition(":")[2]))
        finally:
            stopping.set()
            await asyncio.wait_for(served, BOUND_S)
            attending.cancel()
            with suppress(asyncio.CancelledError):
                await attending


@dataclass
class Agent:
    """An agent that keeps what it hears, and answers what it is told to."""

    url: str
    host_id: int
    key: bytes
    generation: int
    heard: list[Down] = field(default_factory=list)
    frames_up: list[bytes] = field(default_factory=list)
    frames_down: list[bytes] = field(default_factory=list)
    answers: bool = True  # by itself, that everything has succeeded
    closed: asyncio.Future[int] | None = None  # with which code the server has ended it
    socket: ClientConnection | None = None
    session: AgentSession | None = None
    keepalive_s: float | None = None

    def clock(self) -> float:
        """The time, for whoever checks what it hears."""
        return time()

    @asynccontextmanager
    async def connected(self, *, seen: int = 0) -> AsyncIterator[Agent]:
        """Connect, say that it is ready, and answer until the block ends."""
        await self.connect(seen=seen)
        listening_ = asyncio.create_task(self.listen())
        try:
            yield self
        finally:
            listening_.cancel()
            with suppress(asyncio.CancelledError):
                await listening_
            if self.socket is not None:
                await self.socket.close()

    async def connect(self, *, seen: int = 0) -> None:
        """Connect and say that it is ready."""
        await self.meet()
        await self.say(Ready(seen, VERSION))

    async def meet(self) -> None:
        """Connect, and have both sides show who they are."""
        self.closed = asyncio.get_running_loop().create_future()
        self.socket = await connect(
            f"{self.url}/agent",
            compression=None,
            max_size=FRAME_MAX,
            proxy=None,
            close_timeout=1,
            ping_interval=self.keepalive_s,
            ping_timeout=self.keepalive_s,
        )
        hello = Hello(self.host_id, self.generation, token_bytes(32))
        await self.send(say_hello(self.key, hello, now=time()))
        answer = await self.receive()
        self.session = agent_session(self.key, hello, read_welcome(answer, self.key, hello))

    async def say(self, message: Up) -> None:
        """Say something."""
        assert self.session is not None
        await self.send(self.session.seal(message, time()))

    async def send(self, frame: bytes) -> None:
        """Send a frame as it is."""
        assert self.socket is not None
        self.frames_up.append(frame)
        await self.socket.send(frame)

    async def receive(self) -> bytes:
        assert self.socket is not None
        frame = await self.socket.recv(decode=False)
        self.frames_down.append(frame)
        return frame

    async def listen(self) -> None:
        """Hear what comes, and answer it, until the connection is over."""
        assert self.session is not None
        assert self.socket is not None
        assert self.closed is not None
        try:
            while True:
                message = self.session.open(await self.receive(), time())
                self.heard.append(message)
                if self.answers:
                    await self._answer(message)
        except ConnectionClosed as closed:
            if not self.closed.done():
                self.closed.set_result(closed.rcvd.code if closed.rcvd else 1006)

    async def _answer(self, message: Down) -> None:
        match message:
            case Run():
                await self.say(Accepted(message.cmd, message.epoch))
                await self.say(Result(message.cmd, message.epoch, succeeded=True, exit_code=0))
            case Stop():
                await self.say(Stopped(message.cmd, message.epoch, stopped=True))

    def runs(self) -> list[Run]:
        """What it was told to run."""
        return [message for message in self.heard if isinstance(message, Run)]

    def receipts(self) -> list[tuple[str, int]]:
        """What it was told to be on disk."""
        return [(m.cmd, m.epoch) for m in self.heard if isinstance(m, Receipt)]

    def blocks(self) -> list[Blocks]:
        """What it was told to be forbidden, every time."""
        return [message for message in self.heard if isinstance(message, Blocks)]


def delivery(host_id: int, *, command_id: str | None = None, **changes: object) -> Delivery:
    """A delivery of something that the agents of these tests answer, and run not."""
    made = Delivery(
        command_id=command_id or f"c{next(_numbers)}",
        epoch=next(_epochs),
        target=Target(host_id, f"host {host_id}", "", 1),
        command_type="RUN",
        params={"argv": ["true"]},
        timeout_s=10.0,
    )
    return made._replace(**changes)  # type: ignore[arg-type]  # the tests name fields that it has


def silent(_stream: object, _text: str) -> None:
    """Hear nothing."""


async def until(
    happened: Callable[[], object | Awaitable[object]], *, within_s: float = BOUND_S
) -> None:
    """Wait until something is so, for a bounded time."""
    async with asyncio.timeout(within_s):
        while True:
            found = happened()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return
            await asyncio.sleep(0.01)


def numbers() -> Iterator[int]:
    """Numbers that nobody had."""
    return _numbers
