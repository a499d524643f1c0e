"""Which agents are there: written down when they come and go, and told what concerns them.

The hub of a process asks here for the keys of hosts and says here what it hears. Whatever comes at
about the same moment shares one statement: after a restart all agents of a fleet come at once.

A process that agents connect to is registered and beats, so that others can find it, and can tell
that it died. What is forbidden on a host is looked at every two seconds, and so is whether a key
was taken away, or an agent has connected elsewhere: no process depends on another one's word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from secrets import token_bytes
from typing import Final, TypeVar

import structlog

from onward.channels.agent.hub import Admitted, Arrived, Hub, Late
from onward.channels.agent.line import Told
from onward.channels.agent.messages import Block
from onward.channels.agent.wire import Close
from onward.channels.keyring import KeyRing
from onward.core.retry import Backoff
from onward.errors import ServerProblem
from onward.fleet.late import settle_late
from onward.store import agents as store
from onward.store.agents import Arrival, Place, Seen
from onward.store.database import Pool
from onward.store.group_commit import GroupCommit

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.agents")

POLL_S: Final = 2.0
_BEATS: Final = 4  # in the time after which a process is taken for dead
_SWEEP_EVERY: Final = 5  # polls
_GROUP_MAX: Final = 1_000
_REASON_MAX: Final = 200  # characters of why something is forbidden, as an agent is told it
_SECRET_BYTES: Final = 32

Item = TypeVar("Item")
Session = tuple[int, int]  # a host, and which of its connections


class Attendance:
    """Knows the keys of hosts, and writes down which agents are there; one for each process.

    `url` says where other processes reach this one. It may be set until the first agent comes.
    """

    def __init__(
        self,
        pool: Pool,
        keyring: KeyRing,
        *,
        url: str = "",
        backoff: Backoff,
        chance: Callable[[], float],
        lost_after_s: float = 5.0,
    ) -> None:
        self.url = url
        self._pool = pool
        self._keyring = keyring
        self._backoff = backoff
        self._chance = chance
        self._lost_after_s = lost_after_s
        self._secret = token_bytes(_SECRET_BYTES)
        self._hub_id: int | None = None
        self._registering = asyncio.Lock()
        self._nudged = asyncio.Event()
        self._again: set[int] = set()  # hosts that have come since the last poll
        self._unheld: set[Session] = set()
        self._keys = GroupCommit(self._look_up, wait_s=0.0, group_max=_GROUP_MAX)
        self._arrivals = GroupCommit(self._write_down, wait_s=0.0, group_max=_GROUP_MAX)
        self._wakings = GroupCommit(self._wake, wait_s=0.0, group_max=_GROUP_MAX)
        self._leavings = GroupCommit(self._cross_out, wait_s=0.0, group_max=_GROUP_MAX)
        self._results = GroupCommit(self._settle, wait_s=0.0, group_max=_GROUP_MAX)

    @property
    def place(self) -> Place | None:
        """Where this process is found, once it is registered."""
        return None if self._hub_id is None else Place(self._hub_id, self.url, self._secret)

    def nudge(self) -> None:
        """Look now at what is forbidden, instead of in a moment."""
        self._nudged.set()

    # What the hub asks for

    def key_of(self, host_id: int, generation: int) -> bytes:
        """Return a key of a host, whether or not there is such a host, or that key any more."""
        return self._keyring.agent_key(host_id, generation)

    async def is_present(self, host_id: int, generation: int) -> bool:
        """Say whether this is the present key of a host."""
        return generation > 0 and await self._keys.submit(host_id) == generation

    async def arrived(self, agent: Arrived) -> Admitted | None:
        """Write down that an agent is connected; none if its key was taken from it meanwhile."""
        return await self._arrivals.submit(Arrival(*agent[:4]))

    async def ready(self, host_id: int) -> None:
        """Let go on what has waited for this host."""
        # Somebody may be queueing it at this very moment, because the host was not there before.
        self._again.add(host_id)
        await self._unless_away(self._wakings, host_id)

    async def left(self, host_id: int, session: int) -> None:
        """Write down that a connection is over; what fails here is swept up later."""
        await self._unless_away(self._leavings, (host_id, session))

    async def late(self, host_id: int, late: Late) -> bool:
        """Settle a result that nobody waits for; true once it is on disk."""
        try:
            return await self._results.submit((host_id, late))
        except ServerProblem as error:
            log.warning("results_wait", problem=str(error))
            return False

    # What goes on all the time

    async def registered(self) -> Place:
        """Return where this process is found; it is made known when that is first asked."""
        async with self._registering:
            if self._hub_id is None:
                self._hub_id = await store.register_hub(
                    self._pool, url=self.url, secret=self._secret
                )
        return Place(self._hub_id, self.url, self._secret)

    async def run(self, hub: Hub) -> None:
        """Beat and look around for as long as the process serves agents, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat(hub))
                group.create_task(self._look_around(hub))
        finally:
            await self._leave()

    async def _beat(self, hub: Hub) -> None:
        while True:
            try:
                place = await self.registered()
                if await store.beat_hub(self._pool, place, lost_after_s=self._lost_after_s):
                    await store.wake(self._pool, [host_id for host_id, _ in hub.told()])
            except ServerProblem as error:
                log.warning("beat_missed", problem=str(error))
            await asyncio.sleep(self._lost_after_s / _BEATS)

    async def _look_around(self, hub: Hub) -> None:
        turn = 0
        while True:
            turn += 1
            try:
                await self._look(hub, sweeping=turn % _SWEEP_EVERY == 0)
            except ServerProblem as error:
                log.warning("not_looked_around", problem=str(error))
            self._nudged.clear()
            try:
                async with asyncio.timeout(POLL_S):
                    await self._nudged.wait()
            except TimeoutError:
                pass

    async def _look(self, hub: Hub, *, sweeping: bool) -> None:
        again, self._again = self._again, set()
        await store.wake(self._pool, sorted(again))
        told = dict(hub.told())
        found = await store.changed(self._pool, [Seen(host, *told[host]) for host in told])
        await self._tell(hub, [now.host_id for now in found if not _dismissed(hub, told, now)])
        if sweeping and self._hub_id is not None:
            await self._sweep(hub, self._hub_id)

    async def _tell(self, hub: Hub, host_ids: Sequence[int]) -> None:
        if not host_ids:
            return
        for host_id, rules in (await store.rules(self._pool, host_ids)).items():
            hub.tell_rules(host_id, rules.version, _blocks(rules))

    async def _sweep(self, hub: Hub, hub_id: int) -> None:
        """Cross out what is written down and not there, now and the last time."""
        written = await store.sessions_of(self._pool, hub_id)
        unheld = written - {(host_id, told.session) for host_id, told in hub.told()}
        await store.left(self._pool, sorted(unheld & self._unheld))
        self._unheld = unheld

    async def _leave(self) -> None:
        if self._hub_id is not None:
            try:
                await store.leave_hub(self._pool, self._hub_id)
            except ServerProblem as error:
                log.warning("not_left", problem=str(error))

    # Groups

    async def _look_up(self, host_ids: Sequence[int]) -> Sequence[int | None]:
        found = await store.generations(self._pool, list(set(host_ids)))
        return [found.get(host_id) for host_id in host_ids]

    async def _write_down(self, arrivals: Sequence[Arrival]) -> Sequence[Admitted | None]:
        place = await self.registered()
        # Of two connections of one host at once the later one counts.
        last = {arrival.host_id: arrival for arrival in arrivals}
        sessions = await store.connected(self._pool, list(last.values()), hub_id=place.hub_id)
        rules = await store.rules(self._pool, list(sessions))
        return [
            None
            if each.host_id not in sessions or each.host_id not in rules
            else Admitted(
                sessions[each.host_id] if last[each.host_id] is each else 0,
                rules[each.host_id].version,
                _blocks(rules[each.host_id]),
            )
            for each in arrivals
        ]

    async def _wake(self, host_ids: Sequence[int]) -> Sequence[None]:
        await store.wake(self._pool, list(host_ids))
        return [None] * len(host_ids)

    async def _cross_out(self, sessions: Sequence[Session]) -> Sequence[None]:
        await store.left(self._pool, sessions)
        return [None] * len(sessions)

    async def _settle(self, results: Sequence[tuple[int, Late]]) -> Sequence[bool]:
        await settle_late(self._pool, results, backoff=self._backoff, chance=self._chance)
        return [True] * len(results)

    async def _unless_away(self, group: GroupCommit[Item, None], item: Item) -> None:
        try:
            await group.submit(item)
        except ServerProblem as error:
            log.warning("attendance_unwritten", problem=str(error))


def _dismissed(hub: Hub, told: dict[int, Told], now: Seen) -> bool:
    """End the connection of an agent that is no longer the one of its host."""
    seen = told[now.host_id]
    if now.generation != seen.generation:
        code, why = Close.REVOKED, "the key of this host has been taken from it"
    elif now.session != seen.session:
        code, why = Close.DISPLACED, "a newer connection of this host is there"
    else:
        return False
    hub.dismiss(now.host_id, code, why, session=seen.session)
    return True


def _blocks(rules: store.Rules) -> list[Block]:
    return [
        Block(command_type, reason[:_REASON_MAX], owner, expires_at)
        for command_type, reason, owner, expires_at in rules.rules
    ]
