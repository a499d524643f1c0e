"""The way to the simulated hosts from within their own process.

A request that was sent is on its way whether or not its sender still waits: what carries it is a
task of its own. On a perfect network there is no way to speak of, and no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from onward.channels.base import Delivery, Output, Report, Stream
from onward.channels.simulated.hosts import SimulatedFleet
from onward.channels.simulated.memory import Run
from onward.channels.simulated.network import Attempt, Network, Road
from onward.errors import DeliveryUnknown, HostRefused, NotDelivered

_MAX_TRIES_KEPT = 100_000

Word = TypeVar("Word", Report, bool)  # what a host can say


class _Ear:
    """Passes output on while its call lasts; a bug of the listener is not the host's."""

    __slots__ = ("bug", "closed", "output")

    def __init__(self, output: Output) -> None:
        self.output = output
        self.closed = False
        self.bug: Exception | None = None

    def __call__(self, stream: Stream, line: str) -> None:
        if self.closed:
            return
        try:
            self.output(stream, line)
        except Exception as bug:  # noqa: BLE001 - raised again by the call that listens
            self.bug = bug
            self.closed = True


class SimulatedChannel:
    """A channel to a fleet in this process, over a network as good or bad as it is told."""

    def __init__(self, fleet: SimulatedFleet, network: Network) -> None:
        self._fleet = fleet
        self._network = network
        self._perfect = network.perfect
        self._roads: dict[int, Road] = {}
        self._tries: dict[tuple[int, str, int, str], int] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Hand over one attempt, pass its output on as it comes, and return what the host says."""
        ear = _Ear(output)
        try:
            word = await self._deliver(delivery, ear)
        finally:
            ear.closed = True
        if ear.bug is not None:
            raise ear.bug
        return word

    async def cancel(self, delivery: Delivery) -> bool:
        """Ask the host to stop an attempt.

        True once it confirms that the attempt does not run and will not; false if it had finished.
        """
        if self._perfect:
            return self._fleet.stop(delivery)

        async def knock() -> bool:
            return self._fleet.stop(delivery)

        attempt = self._attempt(delivery, "cancel")
        return await self._exchange(attempt, knock, wait_s=self._network.patience_s)

    async def aclose(self) -> None:
        """Forget what is under way; what has reached a host runs on."""
        tasks = [*self._under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, delivery: Delivery, ear: _Ear) -> Report:
        wait_s = delivery.timeout_s + self._network.patience_s
        if self._perfect:
            return await self._hand_over(delivery, ear, wait_s)
        attempt = self._attempt(delivery, "deliver")
        # Whether the host goes down belongs to the run, and there is one run, however many tries.
        crash = self._network.crash_in(attempt._replace(leg="run"))

        async def knock() -> Report | None:
            word = self._fleet.receive(delivery, ear, crash)
            return await word.ended(ear) if isinstance(word, Run) else word

        return await self._exchange(attempt, knock, wait_s=wait_s)

    async def _hand_over(self, delivery: Delivery, ear: _Ear, wait_s: float) -> Report:
        word = self._fleet.receive(delivery, ear)
        if not isinstance(word, Run):
            return word
        give_up_at = self._fleet.now() + wait_s
        report = await word.ended(ear)
        if report is None:
            await self._fleet.sleep(give_up_at - self._fleet.now())
            raise _silence(delivery.target.host_id, wait_s)
        return report

    def _attempt(self, delivery: Delivery, leg: str) -> Attempt:
        """What chance is drawn for, with the number of this try in its leg."""
        key = (delivery.target.host_id, delivery.command_id, delivery.epoch, leg)
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        if len(self._tries) > _MAX_TRIES_KEPT:
            del self._tries[next(iter(self._tries))]
        return Attempt(*key[:3], f"{leg} {tries}")

    async def _exchange(
        self, attempt: Attempt, knock: Callable[[], Awaitable[Word | None]], *, wait_s: float
    ) -> Word:
        """Send a request over the network and wait for the first answer to any copy of it."""
        host_id = attempt.host_id
        road = self._roads.get(host_id)
        if road is None:
            road = self._roads[host_id] = self._network.road(host_id)
        passage = self._network.outward(attempt, road, wait_s=wait_s)
        if passage.refused or not road.open_at(self._fleet.now()) or not self._fleet.up(host_id):
            await self._fleet.sleep(passage.latency_s)
            raise NotDelivered(f"Host {host_id} cannot be reached.")
        answer: asyncio.Future[Word | HostRefused | None] = (
            asyncio.get_running_loop().create_future()
        )
        for copy, delay_s in enumerate(passage.arrivals):
            home_s = self._network.homeward(attempt, road, copy=copy)
            self._send(self._carry(knock, road, answer, delay_s=delay_s, home_s=home_s), answer)
        timer = self._send(self._give_up(answer, wait_s), answer)
        try:
            word = await answer
        finally:
            timer.cancel()
        if word is None:
            raise _silence(host_id, wait_s)
        if isinstance(word, HostRefused):
            raise word
        return word

    async def _carry(
        self,
        knock: Callable[[], Awaitable[Word | None]],
        road: Road,
        answer: asyncio.Future[Word | HostRefused | None],
        *,
        delay_s: float,
        home_s: float | None,
    ) -> None:
        """Bring one copy of a request to the host, and its answer back."""
        fleet = self._fleet
        await fleet.sleep(delay_s)
        if not road.open_at(fleet.now()):
            return
        word: Word | HostRefused | None
        try:
            word = await knock()
        except HostRefused as refusal:
            word = refusal
        except NotDelivered:
            return  # The host went down meanwhile: nobody is there to say so.
        if word is None or home_s is None or not road.open_at(fleet.now()):
            return
        await fleet.sleep(home_s)
        if not answer.done():
            answer.set_result(word)

    async def _give_up(
        self, answer: asyncio.Future[Word | HostRefused | None], wait_s: float
    ) -> None:
        await self._fleet.sleep(wait_s)
        if not answer.done():
            answer.set_result(None)

    def _send(
        self,
        journey: Coroutine[object, object, None],
        answer: asyncio.Future[Word | HostRefused | None],
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(journey)
        self._under_way.add(task)

        def arrived(task: asyncio.Task[None]) -> None:
            self._under_way.discard(task)
            if not task.cancelled() and (bug := task.exception()) and not answer.done():
                answer.set_exception(bug)

        task.add_done_callback(arrived)
        return task


def _silence(host_id: int, wait_s: float) -> DeliveryUnknown:
    return DeliveryUnknown(f"Host {host_id} has not answered for {wait_s:g} s.")
