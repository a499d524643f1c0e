"""What a platform calls back, one at a time, beside a FastAPI route that does nothing.

Every command is called about four times, in the order of its lifecycle, by one of 64 connections.
The server has not made the commands itself, so the first call about each has it looked up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from typing import Final

import onward
from onward.bench.calling import request
from onward.bench.load import Loaded, load
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.serving import NOTHING, serving_nothing, serving_onward
from onward.core.lifecycles import PLATFORM
from onward.core.verdicts import TransitionResult
from onward.errors import InvariantBroken
from onward.fleet.commands import new_command
from onward.scratch import new_database, scratch_servers
from onward.settings import Settings
from onward.store.database import Connection
from onward.wiring import Onward

_AT_LEAST: Final = 0.5
_PATH: Final = "/callbacks/platform"
_EVENTS: Final = ("save", "send", "deliver", "complete")
_STATUSES: Final = tuple(str(PLATFORM.moves[event].target) for event in _EVENTS)
_NODE: Final = "sensor-1"

_ENDED: Final = "SELECT count(*) FROM commands WHERE status = $1"
_TOLD: Final = "SELECT count(*) FROM timeline WHERE event = ANY ($1) AND verdict = $2"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    commands: int = 6_400  # a round
    connections: int = 64
    rounds: int = 5

    @property
    def calls(self) -> int:
        """Calls in a round."""
        return self.commands * len(_STATUSES)


def callbacks(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure calls a second."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        ours, nothing = asyncio.run(_measure(servers.database_url, sizes, progress))
    ratio = max(ours) / max(nothing)
    yield Result(
        name=f"callbacks over HTTP, single, {sizes.connections} connections",
        value=max(ours),
        unit="requests/s",
        against=f"a route that does nothing, {max(nothing):,.0f}/s",
        ratio=ratio,
        target=f">= {_AT_LEAST:g} x",
        holds=ratio >= _AT_LEAST,
    )


async def _measure(
    server_url: str, sizes: Sizes, progress: Progress
) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    nothing: list[float] = []
    url = await new_database(server_url, "bench_callbacks")
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(onward.open(Settings(database_url=url)))
        port, key = await stack.enter_async_context(serving_onward(url))
        nothing_port = await stack.enter_async_context(serving_nothing())
        # The first round warms both servers up, and does not count.
        for round_ in range(sizes.rounds + 1):
            tasks = await _make_commands(opened, sizes.commands, round_)
            shares = _shares(tasks, key, sizes.connections)
            ours.append(_rate(await load(port, shares), sizes))
            nothing.append(_rate(await load(nothing_port, _elsewhere(shares)), sizes))
            progress(f"round {round_} of {sizes.rounds}: {ours[-1]:,.0f}/s, {nothing[-1]:,.0f}/s")
        async with opened.commands.pool.acquire() as connection:
            await _check(connection, sizes.commands * (sizes.rounds + 1))
    return ours[1:], nothing[1:]


async def _make_commands(opened: Onward, commands: int, round_: int) -> list[str]:
    numbers = count(round_ * commands)
    tasks = [f"task-{next(numbers)}" for _ in range(commands)]
    made = await opened.commands.create_all(
        [
            new_command(
                opened.settings,
                cmd_id=None,
                lifecycle=PLATFORM.name,
                node=_NODE,
                type="bench",
                task_id=task,
                params=None,
                timeout_s=None,
                source="bench",
            )
            for task in tasks
        ]
    )
    if not all(answer.changed for answer in made):
        raise InvariantBroken("commands to be measured with could not be made")
    return tasks


def _shares(tasks: Sequence[str], key: str, connections: int) -> list[list[bytes]]:
    """What each connection sends: one status after the other, of all the tasks that are its."""
    return [
        [
            request(_PATH, {"task_id": task, "device_id": _NODE, "status": status}, key=key)
            for status in _STATUSES
            for task in tasks[first::connections]
        ]
        for first in range(connections)
    ]


def _elsewhere(shares: Sequence[Sequence[bytes]]) -> list[list[bytes]]:
    """The same requests, to the route that does nothing."""
    return [
        [wanted.replace(_PATH.encode(), NOTHING.encode(), 1) for wanted in share]
        for share in shares
    ]


def _rate(loaded: Loaded, sizes: Sizes) -> float:
    if loaded.statuses != {"200": sizes.calls}:
        raise InvariantBroken(f"{sizes.calls:,} calls were answered with {loaded.statuses}")
    return sizes.calls / loaded.seconds


async def _check(connection: Connection, commands: int) -> None:
    """Make sure that every call has moved its command."""
    ended = await connection.fetchval(_ENDED, _STATUSES[-1])
    told = await connection.fetchval(_TOLD, _EVENTS, str(TransitionResult.OK))
    if (ended, told) != (commands, commands * len(_EVENTS)):
        raise InvariantBroken(f"{ended:,} of {commands:,} commands ended, after {told:,} moves")
