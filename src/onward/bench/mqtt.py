"""Round trips to nodes over MQTT, beside what mosquitto's own clients publish and subscribe.

1. Ours: a signed command goes out with QoS 1, a node checks it and answers with a signed result,
   QoS 1 as well, which is checked, handed on, and receipted. 1,000 nodes, each with a connection of
   its own, in a process of their own; every node gets its next command when it has answered. What
   is handed on is not stored: that is measured elsewhere.
2. Theirs: mosquitto_pub sends lines of the same length to mosquitto_sub over the same broker, QoS 1
   on both sides. A message of theirs is one way, a round trip of ours is two and the receipt.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import uvloop

from onward.bench.mosquitto import VERSIONS, missing, mosquitto, publish_subscribe_rate
from onward.bench.mqtt_nodes import PREFIX, RING, key_of, name_of
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.channels.base import Heard, Letter, Target
from onward.channels.mqtt import MqttWire
from onward.errors import InvariantBroken

_AT_LEAST: Final = 0.3
_SIZE: Final = 220  # bytes, about as long as a command is
_TIMEOUT_S: Final = 60.0
_MODULE: Final = "onward.bench.mqtt_nodes"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    nodes: int = 1_000
    round_trips: int = 40_000
    messages: int = 50_000  # of mosquitto's clients, who lose some of more than 65,535
    rounds: int = 5


def mqtt(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure round trips a second."""
    sizes = sizes or Sizes()
    name, target = f"MQTT round trips, {sizes.nodes:,} nodes", f">= {_AT_LEAST:g} x"
    if (program := missing()) is not None:
        yield Result(
            name, float("nan"), "round trips/s", f"not run: needs {program}", None, target, None
        )
        return
    ours, theirs = _measure(sizes, progress)
    yield Result(
        name=name,
        value=ours,
        unit="round trips/s",
        against=f"mosquitto_pub to mosquitto_sub, {theirs:,.0f} messages/s",
        ratio=ours / theirs,
        target=target,
        holds=ours / theirs >= _AT_LEAST,
    )


def _measure(sizes: Sizes, progress: Progress) -> tuple[float, float]:
    progress(f"starting mosquitto and {sizes.nodes:,} nodes")
    with mosquitto() as port, _nodes(port, sizes.nodes):
        return uvloop.run(_rounds(port, sizes, progress))


async def _rounds(port: int, sizes: Sizes, progress: Progress) -> tuple[float, float]:
    """The best round of each side; they take turns."""
    ours, theirs = 0.0, 0.0
    async with _listening(port) as server:
        for round_ in range(1, sizes.rounds + 1):
            for version in VERSIONS:
                rate = await asyncio.to_thread(
                    publish_subscribe_rate, port, sizes.messages, size=_SIZE, version=version
                )
                theirs = max(theirs, rate)
                progress(f"mosquitto's clients, MQTT {version}: {rate:,.0f} messages/s")
            rate = await _round_trips(server, sizes, round_)
            ours = max(ours, rate)
            progress(f"round {round_} of {sizes.rounds}: {rate:,.0f} round trips/s")
    return ours, theirs


@contextmanager
def _nodes(port: int, count: int) -> Iterator[None]:
    process = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-m", _MODULE, str(port), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if process.stdout is None or process.stdout.readline() != b"there\n":
            raise InvariantBroken("the nodes did not come")
        yield
    finally:
        process.communicate(timeout=_TIMEOUT_S)


class _Server:
    """Sends, and knows who waits for which answer."""

    def __init__(self, port: int) -> None:
        url = f"mqtt://127.0.0.1:{port}"
        self.wire = MqttWire(url, PREFIX, keyring=RING, keys=_keys)
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self.answered = 0

    async def heard(self, said: Sequence[Heard]) -> None:
        for each in said:
            self.answered += 1
            self._waiting.pop(each.cmd_id).set_result(None)

    async def round_trip(self, node: int, number: int) -> None:
        cmd_id = f"018f6b0e-7c1a-7000-8000-{number:012x}"
        answer = self._waiting[cmd_id] = asyncio.get_running_loop().create_future()
        target = Target(node, name_of(node), "", 1)
        await self.wire.send(Letter(cmd_id, number + 1, target, "ping", {}, _TIMEOUT_S))
        await answer


async def _keys(names: Collection[str]) -> Mapping[str, bytes]:
    return {name: key_of(name) for name in names}


async def _round_trips(server: _Server, sizes: Sizes, round_: int) -> float:
    each, before = sizes.round_trips // sizes.nodes, server.answered
    first = round_ * sizes.round_trips

    async def attend(node: int) -> None:
        for turn in range(each):
            await server.round_trip(node, first + turn * sizes.nodes + node)

    async with asyncio.timeout(_TIMEOUT_S):
        start = time.perf_counter()
        await asyncio.gather(*map(attend, range(sizes.nodes)))
        seconds = time.perf_counter() - start
    answered = server.answered - before
    if answered != each * sizes.nodes or server.wire.dropped:
        raise InvariantBroken(f"{answered} answers, and {server.wire.dropped} dropped")
    return answered / seconds


@asynccontextmanager
async def _listening(port: int) -> AsyncIterator[_Server]:
    server = _Server(port)
    listening = asyncio.create_task(server.wire.listen(server.heard))
    try:
        await server.wire.connected()
        yield server
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
