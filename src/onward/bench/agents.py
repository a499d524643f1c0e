"""Round trips of `ping` through a thousand connected agents, beside a bare WebSocket echo.

Both servers are this process's uvicorn, each in a process of its own, and send as they are told:
one is the API with its hub, which hands `ping` to every agent and waits for the signed answer; the
other is a FastAPI application whose route sends as many bytes and waits until they come back. The
thousand connections of either come from another process: agents as they are, with a journal in
memory, and clients that return what they get. Every connection has one message under way.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Final

from fastapi import FastAPI, WebSocket, WebSocketDisconnect

import onward
from onward.api.app import create_app
from onward.bench.agent_crowd import quiet
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.channels.agent.messages import PING
from onward.channels.base import Delivery, Target
from onward.channels.keyring import KeyRing
from onward.errors import InvariantBroken
from onward.scratch import new_database, scratch_servers
from onward.service import leaving
from onward.service.listening import Listener, listening, serve
from onward.service.serving import services
from onward.settings import Settings

_AT_LEAST: Final = 0.40
_PATIENCE_S: Final = 120.0
_MASTER: Final = "ONWARD_BENCH_MASTER"
_ECHO: Final = "/echo"
_HOSTS: Final = """
INSERT INTO hosts (name, channel, key_generation)
SELECT format('agent-%s', n), 'agent', 1 FROM generate_series(1, $1) AS n
RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    agents: int = 1_000
    seconds: float = 3.0  # of a round
    rounds: int = 5


def agents(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure round trips a second."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL")
    with scratch_servers("bench") as servers:
        ours, echo = asyncio.run(_measure(servers.database_url, sizes, progress))
    ratio = max(ours) / max(echo)
    yield Result(
        name=f"no-op round trips through {sizes.agents:,} agents",
        value=max(ours),
        unit="round trips/s",
        against=f"a bare WebSocket echo, {max(echo):,.0f}/s",
        ratio=ratio,
        target=f">= {_AT_LEAST:g} x",
        holds=ratio >= _AT_LEAST,
    )


async def _measure(
    server_url: str, sizes: Sizes, progress: Progress
) -> tuple[list[float], list[float]]:
    url = await new_database(server_url, "bench_agents")
    environment = {"ONWARD_DATABASE_URL": url, _MASTER: token_hex(32)}
    ours: list[float] = []
    echo: list[float] = []
    async with AsyncExitStack() as stack:
        sides = [
            (await stack.enter_async_context(_side(kind, sizes, environment)), rates)
            for kind, rates in (("hub", ours), ("echo", echo))
        ]
        progress(f"{sizes.agents:,} agents and as many clients are connected")
        # The first round warms both up, and does not count.
        for round_ in range(sizes.rounds + 1):
            for server, rates in sides:
                rates.append(await _round(server, sizes))
            progress(f"round {round_} of {sizes.rounds}: {ours[-1]:,.0f}/s, {echo[-1]:,.0f}/s")
    return ours[1:], echo[1:]


async def _round(server: Process, sizes: Sizes) -> float:
    assert server.stdin is not None  # noqa: S101 - it is a pipe
    server.stdin.write(f"{sizes.seconds}\n".encode())
    return float(await _line(server))


@asynccontextmanager
async def _side(kind: str, sizes: Sizes, environment: dict[str, str]) -> AsyncIterator[Process]:
    """A server and its thousand connections."""
    async with _process(__name__, kind, str(sizes.agents), environment=environment) as server:
        told = json.loads(await _line(server))
        words = (kind, str(told["port"]), json.dumps(told["hosts"]))
        async with _process("onward.bench.agent_crowd", *words, environment=environment):
            if await _line(server) != "connected":
                raise InvariantBroken(f"the connections to {kind} could not be made")
            yield server


@asynccontextmanager
async def _process(module: str, *words: str, environment: dict[str, str]) -> AsyncIterator[Process]:
    command = (sys.executable, "-m", module, *words)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env={**os.environ, **environment}
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()  # it has nothing to lose
        await process.wait()


async def _line(process: Process) -> str:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    async with asyncio.timeout(_PATIENCE_S):
        line = await process.stdout.readline()
    if not line:
        raise InvariantBroken("a process of the measurement has ended")
    return line.decode().strip()


# In the processes of the servers

Trip = Callable[[], Awaitable[object]]  # there and back, over one connection


async def _hub(listener: Listener, stopping: asyncio.Event, *, connections: int) -> None:
    async with onward.open(Settings()) as opened:
        keyring = KeyRing(bytes.fromhex(os.environ[_MASTER]))
        found = services(opened, keyring=keyring, url=listener.address)
        rows = await found.pool.fetch(_HOSTS, connections)
        ids = [int(row["id"]) for row in rows]
        attending = asyncio.create_task(found.attendance.run(found.hub))

        async def ping(host_id: int, epoch: Iterator[int]) -> None:
            target = Target(host_id, str(host_id), "", 1)
            number = next(epoch)
            delivery = Delivery(str(number), number, target, PING, {}, 30.0, exclusive=False)
            report = await found.hub.deliver(delivery, lambda *_: None)
            if not report.succeeded:
                raise InvariantBroken("a ping has failed")

        epochs = count(1)
        trips: list[Trip] = [partial(ping, host_id, epochs) for host_id in ids]
        try:
            await _serve(
                create_app(found), listener, stopping,
                hosts=ids, conduct=lambda: _conduct(trips, lambda: len(found.hub) == connections),
            )  # fmt: skip
        finally:
            attending.cancel()


async def _echo(listener: Listener, stopping: asyncio.Event, *, connections: int) -> None:
    app, trips = FastAPI(), list[Trip]()
    # As large as the frame of a ping.
    frame = bytes(32) + b"x" * 160

    @app.websocket(_ECHO)
    async def echo(socket: WebSocket) -> None:
        await socket.accept()

        async def trip() -> None:
            await socket.send_bytes(frame)
            await socket.receive_bytes()

        trips.append(trip)
        with suppress(WebSocketDisconnect):
            await asyncio.get_running_loop().create_future()

    await _serve(
        app, listener, stopping,
        hosts=[*range(connections)],
        conduct=lambda: _conduct(trips, lambda: len(trips) == connections),
    )  # fmt: skip


async def _serve(
    app: FastAPI,
    listener: Listener,
    stopping: asyncio.Event,
    *,
    hosts: list[int],
    conduct: Callable[[], Coroutine[object, object, None]],
) -> None:
    conducting = set[asyncio.Task[None]]()

    def ready() -> None:
        _say(json.dumps({"port": listener.socket.getsockname()[1], "hosts": hosts}))
        conducting.add(asyncio.create_task(conduct()))

    await serve(app, listener, stopping, access_log=False, ready=ready, hang_up=lambda: None)


async def _conduct(trips: list[Trip], connected: Callable[[], bool]) -> None:
    """Wait for the connections; then, for every number that is read, go for so many seconds."""
    while not connected():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.05)
    _say("connected")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        seconds = float(line)
        end = time.perf_counter() + seconds
        made = await asyncio.gather(*(_go(trip, end) for trip in trips))
        _say(str(sum(made) / (time.perf_counter() - end + seconds)))


async def _go(trip: Trip, end: float) -> int:
    made = 0
    while time.perf_counter() < end:
        await trip()
        made += 1
    return made


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _main(kind: str, connections: str) -> None:
    quiet()
    kinds = {"hub": _hub, "echo": _echo}
    with listening("127.0.0.1", 0) as listener:
        leaving.run(partial(kinds[kind], listener, connections=int(connections)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
