"""The channel to simulated hosts in a process of their own, over a socket that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest

from onward.channels.base import Delivery, Output, Report, Target
from onward.channels.simulated import Network, RemoteSimulatedChannel, SimulatedFleet
from onward.channels.simulated.journal import What
from onward.channels.simulated.memory import Run
from onward.channels.simulated.network import Crash
from tests.channels.conformance.ground import Does, Nature
from tests.channels.conformance.suite import *  # noqa: F403 - the whole suite, under this channel
from tests.channels.worlds import served
from tests.cli.running import folder_for_servers

_numbers = count(1)
_HOST = 7
_WRITTEN = (What.STARTED, What.FINISHED)


class _Echoing(SimulatedFleet):
    """Hosts that also write down the texts that they are given."""

    echoed: list[str]

    def receive(
        self, delivery: Delivery, output: Output, crash: Crash | None = None
    ) -> Report | Run:
        texts = delivery.params.get("echoes")
        if isinstance(texts, list) and texts:
            self.echoed.append("echoed " + ",".join(str(each).encode().hex() for each in texts))
        return super().receive(delivery, output, crash)


class SimulatedGround:
    """One host; what prints is made up by the host, so nothing of it is asked for here."""

    nature = Nature(remembers=True, talks=False)

    def __init__(self, fleet: _Echoing, path: Path, channel: RemoteSimulatedChannel) -> None:
        self.channel = channel
        self._fleet = fleet
        self._path = path
        self._served = AsyncExitStack()

    def delivery(
        self,
        does: Does,
        *,
        command_id: str | None = None,
        epoch: int | None = None,
        timeout_s: float = 20.0,
        exclusive: bool = True,
    ) -> Delivery:
        number = next(_numbers)
        return Delivery(
            command_id or str(number),
            epoch or number,
            Target(_HOST, "simulated", ""),
            "nothing that they know" if does.refused else "run",
            {
                "sleep_s": does.sleep_s,
                "exit_code": does.exit_code,
                "echoes": list(does.echoes),
            },
            timeout_s,
            exclusive=exclusive,
        )

    def effects(self) -> list[str]:
        return self._fleet.echoed + [
            f"{effect.what} {effect.command_id}/{effect.epoch}"
            for effect in self._fleet.journal.effects
            if effect.what in _WRITTEN
        ]

    async def away(self) -> None:
        await self._served.aclose()

    async def back(self) -> None:
        await self._served.enter_async_context(served(self._fleet, Network.calm(), self._path))

    async def cut(self) -> None:
        await self.away()
        await asyncio.sleep(0)


@pytest.fixture
async def ground() -> AsyncIterator[SimulatedGround]:
    with folder_for_servers() as folder:
        fleet = _Echoing()
        fleet.echoed = []
        async with RemoteSimulatedChannel(folder / "fleet") as channel:
            found = SimulatedGround(fleet, folder / "fleet", channel)
            await found.back()
            try:
                yield found
            finally:
                await found.away()
                await fleet.aclose()
