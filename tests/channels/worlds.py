"""A simulated fleet and the ways to it, the same for a test whichever way it is."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onward.channels.base import Channel, Delivery, Report, Stream, Target
from onward.channels.simulated import (
    Network,
    RemoteSimulatedChannel,
    SimulatedChannel,
    SimulatedFleet,
    serve,
)
from tests.channels.virtual_time import now

Way = Callable[[SimulatedFleet, Network], AbstractAsyncContextManager[Channel]]

CALM = Network.calm()


@asynccontextmanager
async def in_process(fleet: SimulatedFleet, network: Network) -> AsyncIterator[Channel]:
    channel = SimulatedChannel(fleet, network)
    try:
        yield channel
    finally:
        await channel.aclose()


@asynccontextmanager
async def over_a_socket(fleet: SimulatedFleet, network: Network) -> AsyncIterator[Channel]:
    # Not below pytest's own folder: the path of a socket has to be short.
    with tempfile.TemporaryDirectory(prefix="onward-") as folder:
        path = Path(folder) / "fleet"
        async with served(fleet, network, path), RemoteSimulatedChannel(path) as channel:
            yield channel


@asynccontextmanager
async def served(fleet: SimulatedFleet, network: Network, path: Path) -> AsyncIterator[None]:
    """The fleet, served at a path for as long as this lasts."""
    ready = asyncio.Event()
    serving = asyncio.create_task(serve(fleet, network, path, ready=ready.set))
    await ready.wait()
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


WAYS: dict[str, Way] = {"in process": in_process, "over a socket": over_a_socket}


@dataclass
class Heard:
    """A listener that keeps what it hears."""

    lines: list[tuple[Stream, str]] = field(default_factory=list)

    def __call__(self, stream: Stream, line: str) -> None:
        self.lines.append((stream, line))


@dataclass
class World:
    """A fleet, and ways to it that are open until the end of the test."""

    way: Way
    fleet: SimulatedFleet
    stack: AsyncExitStack
    calm: Channel = field(init=False)

    async def channel(self, network: Network) -> Channel:
        """One more way to the same hosts, over another network."""
        return await self.stack.enter_async_context(self.way(self.fleet, network))

    def story(self, host_id: int = 1) -> list[str]:
        """What happened on a host, as `command/epoch what`."""
        return [
            f"{effect.command_id}/{effect.epoch} {effect.what}"
            for effect in self.fleet.journal.effects
            if effect.host_id == host_id
        ]

    async def until(self, *story: str) -> None:
        """Wait until this is what happened on host 1."""
        for _ in range(1_000):
            if self.story() == [*story]:
                return
            await asyncio.sleep(0)
        assert self.story() == [*story]


@asynccontextmanager
async def world(way: Way, **settings: Any) -> AsyncIterator[World]:
    """A fleet whose clock is the loop's."""
    async with AsyncExitStack() as stack:
        found = World(way, SimulatedFleet(clock=now, **settings), stack)
        found.calm = await found.channel(CALM)
        yield found


def delivery(
    command_id: str = "a",
    epoch: int = 1,
    *,
    host_id: int = 1,
    command_type: str = "run",
    timeout_s: float = 10.0,
    exclusive: bool = True,
    **params: object,
) -> Delivery:
    """An attempt; what is not named here is a parameter of the command."""
    target = Target(host_id, f"host-{host_id}", f"10.0.0.{host_id}")
    return Delivery(command_id, epoch, target, command_type, params, timeout_s, exclusive)


def quiet(stream: Stream, line: str) -> None:
    """A listener that does not care."""


async def outcome(channel: Channel, attempt: Delivery) -> str:
    """How a delivery ended, as one word."""
    try:
        report = await channel.deliver(attempt, quiet)
    except Exception as error:  # noqa: BLE001 - which error it is, is the question
        return type(error).__name__
    return _word(report)


def _word(report: Report) -> str:
    return ("repeated " if report.repeated else "") + ("done" if report.succeeded else "failed")
