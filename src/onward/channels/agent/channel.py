"""The channel to hosts with an agent: through this process, or whichever it is connected to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from onward.channels.agent.hub import Hub
from onward.channels.agent.link import Link, open_link
from onward.channels.agent.relay import Place
from onward.channels.base import Delivery, Output, Report, Target
from onward.errors import HostOffline

# Finds the process that the agent of a host is connected to, if it is to any.
Find = Callable[[int], Awaitable[Place | None]]


class AgentChannel:
    """Delivers through `hub`, if the agent is connected to it, or else to wherever it is.

    A process that serves no agents has no `hub`; one that is the only one needs no `find`.
    """

    def __init__(self, hub: Hub | None, find: Find | None = None) -> None:
        self._hub = hub
        self._find = find
        self._links: dict[int, Link] = {}
        self._opening: dict[int, asyncio.Task[Link]] = {}

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Hand over one attempt, pass its output on as it comes, and return what the host says."""
        if self._hub is not None and self._hub.has(delivery.target.host_id):
            return await self._hub.deliver(delivery, output)
        return await (await self._link(delivery.target)).deliver(delivery, output)

    async def cancel(self, delivery: Delivery) -> bool:
        """Ask the host to stop an attempt; true once it confirms that it has stopped."""
        if self._hub is not None and self._hub.has(delivery.target.host_id):
            return await self._hub.cancel(delivery)
        return await (await self._link(delivery.target)).cancel(delivery)

    async def receipt(self, delivery: Delivery) -> None:
        """Tell the host that the report of this attempt is on disk. It may get lost."""
        if self._hub is not None and self._hub.has(delivery.target.host_id):
            await self._hub.receipt(delivery)
        else:
            (await self._link(delivery.target)).receipt(delivery)

    async def aclose(self) -> None:
        """Close the connections to other processes; calls that still wait end as unknown."""
        links, self._links = self._links, {}
        await asyncio.gather(*(link.aclose() for link in links.values()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _link(self, target: Target) -> Link:
        place = None if self._find is None else await self._find(target.host_id)
        if place is None:
            raise HostOffline(
                f"The agent of {target.name} is not connected: it gets the command when it calls."
            )
        link = self._links.get(place.hub_id)
        if link is not None and link.usable and link.loop is asyncio.get_running_loop():
            return link
        # Shielded: the others who wait for the connection want it still when one gives up.
        return await asyncio.shield(self._opened(place))

    def _opened(self, place: Place) -> asyncio.Task[Link]:
        opening = self._opening.get(place.hub_id)
        if opening is None or opening.get_loop() is not asyncio.get_running_loop():
            opening = asyncio.create_task(self._open(place))
            self._opening[place.hub_id] = opening
        return opening

    async def _open(self, place: Place) -> Link:
        try:
            link = self._links[place.hub_id] = await open_link(place)
            return link
        finally:
            self._opening.pop(place.hub_id, None)
