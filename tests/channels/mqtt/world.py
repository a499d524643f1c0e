"""A wire and nodes around a real broker, and somebody who writes down what is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from onward.channels.base import Heard, Letter, Target
from onward.channels.keyring import KeyRing
from onward.channels.mqtt import MqttWire, broker
from onward.channels.mqtt.conduct import Do, Node, Outcome
from onward.channels.mqtt.connection import Manner
from onward.channels.mqtt.envelope import Command
from onward.channels.mqtt.memory import Memory
from onward.channels.mqtt.node import attend
from onward.core.lifecycles import NODE
from onward.errors import ChannelError

PREFIX = "plant/7"
RING = KeyRing(b"m" * 32)
IMPATIENT = Manner(keepalive_s=2.0, first_pause_s=0.02, longest_pause_s=0.2)


def key_of(name: str) -> bytes:
    return RING.node_key(_number(name), 1)


async def keys_of(names: Collection[str]) -> Mapping[str, bytes]:
    return {name: key_of(name) for name in names if name.startswith("node-")}


def letter(name: str, number: int, cmd: str = "go", **params: object) -> Letter:
    """The attempt of this number, at a command of its own."""
    return Letter(
        f"018f6b0e-7c1a-7000-8000-{number:012x}", number, Target(_number(name), name, "", 1),
        cmd, params, 20.0,
    )  # fmt: skip


class Ears:
    """Takes what a wire hears, and remembers all of it."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.batches: list[int] = []
        self._ended: set[str] = set()

    async def __call__(self, said: Sequence[Heard]) -> None:
        self.heard += said
        self.batches.append(len(said))
        self._ended |= {each.cmd_id for each in said if each.event in NODE.results}

    def of(self, wanted: Letter) -> list[str]:
        return [each.event for each in self.heard if each.cmd_id == wanted.cmd_id]

    def ended(self, wanted: Letter) -> bool:
        return wanted.cmd_id in self._ended


@asynccontextmanager
async def listening(url: str, ears: Any, **options: Any) -> AsyncIterator[MqttWire]:
    """A wire that is connected at first."""
    options = {"manner": IMPATIENT, **options}
    wire = MqttWire(url, PREFIX, keyring=RING, keys=keys_of, **options)
    task = asyncio.create_task(wire.listen(ears))
    try:
        async with asyncio.timeout(20):
            await wire.connected()
        yield wire
    finally:
        await ended(task)


class Living:
    """A node that is connected as long as it lives, and the commands that it ran."""

    def __init__(self, name: str, url: str, memory: Memory | None, do: Do | None) -> None:
        self.ran: list[str] = []
        self._also = do
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self.node = Node(
            name, key_of(name), do=self._do, say=self._said.put_nowait, memory=memory, at_once=100
        )
        self._task = asyncio.create_task(attend(self.node, broker.parse(url), PREFIX, self._said))

    async def _do(self, command: Command) -> Outcome:
        self.ran.append(f"{command.cmd_id}/{command.epoch}")
        return await self._also(command) if self._also else Outcome()

    async def aclose(self) -> None:
        await ended(self._task)
        await self.node.aclose()


@asynccontextmanager
async def living(
    name: str, url: str, *, memory: Memory | None = None, do: Do | None = None
) -> AsyncIterator[Living]:
    """A node, while it lives."""
    found = Living(name, url, memory, do)
    try:
        yield found
    finally:
        await found.aclose()


async def insist(wire: MqttWire, wanted: Letter, ears: Ears) -> int:
    """Send a letter again and again until its end is heard, and count how often."""
    async with asyncio.timeout(60):
        for sent in range(1, 1_000):
            with suppress(ChannelError, TimeoutError):
                async with asyncio.timeout(2.0):
                    await wire.send(wanted)
            for _ in range(20):
                if ears.ended(wanted):
                    return sent
                await asyncio.sleep(0.02)
    raise AssertionError("nobody answers")


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has heard: `wait_for` can swallow that before Python 3.12."""
    async with asyncio.timeout(20):
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=0.5)
    if not task.cancelled():
        task.result()


def _number(name: str) -> int:
    return int(name.removeprefix("node-"))
