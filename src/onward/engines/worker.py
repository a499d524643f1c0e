"""One worker: its name in the table, the hosts that it holds, and the runs that it has under way.

Whoever drives it says what is to be taken; everything after that is the worker's own business. It
breathes, so that its runs are its own; it reports what ends, in groups; it stores what is printed;
and when it is to leave, it lets what runs end.

PostgreSQL decides everything. Any number of workers may be driven over the same executions, and any
of them be killed between two statements.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

import structlog

from onward.channels.base import Channel
from onward.engines.pace import Pace
from onward.engines.runs import Runs
from onward.errors import ServerProblem
from onward.fleet.report import handed_back
from onward.store import executions, workers
from onward.store.database import Pool
from onward.store.executions import Candidate, Claimed, Errand
from onward.store.host_locks import HostLocks

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.engine")

# Jobs whose errand is remembered, to spare a look-up; large ones are not.
_ERRANDS_KNOWN: Final = 2_048
_ERRAND_MAX: Final = 16_384


class Driver(Protocol):
    """What a worker asks of whoever drives it."""

    def may_follow(self) -> bool:
        """Whether what is next on a host may be claimed at once, with the report of what ended."""
        ...

    def let_go(self, jobs: Sequence[Errand]) -> None:
        """Take note of jobs that have let go of hosts."""
        ...


class Worker:
    """One worker. `chance` gives the next random number, for the jitter of retries."""

    def __init__(
        self,
        pool: Pool,
        locks: HostLocks,
        channels: Mapping[str, Channel],
        *,
        chance: Callable[[], float],
        pace: Pace,
        driver: Driver,
    ) -> None:
        self._pool = pool
        self._locks = locks
        self._pace = pace
        self._driver = driver
        self._runs = Runs(pool, locks, channels, chance=chance, pace=pace, hand_over=self)
        self._errands: dict[int, Errand] = {}
        self._doubt_at: float | None = None  # when a claim may have been made that nobody heard of
        self._leaving = asyncio.Event()
        self._registered = asyncio.Event()
        self._got_on_at = time.monotonic()
        self.worker_id = 0

    @property
    def room(self) -> int:
        """How many more runs it may begin now."""
        return self._pace.capacity - len(self._runs)

    def got_on(self) -> None:
        """Take note that whoever drives it gets on with it."""
        self._got_on_at = time.monotonic()

    async def register(self, stopping: asyncio.Event) -> None:
        """Take a name in the table, as soon as there is a server that has one."""
        await self.repeat(stopping, self._register, self._pace.poll_s, unless=self._registered)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Breathe, report and keep what is printed, also while it drains; in the end, leave.

        Gives the group of its loops. A bug in one of them ends all of them: a worker that does half
        of its work would look alive.
        """
        left = asyncio.Event()
        async with asyncio.TaskGroup() as loops:
            self._loops = loops
            loops.create_task(self.repeat(left, self._beat, self._pace.beat_s))
            loops.create_task(self.repeat(left, self._look_after_runs, self._pace.output_s))
            reporting = loops.create_task(self._runs.report())
            yield loops
            self._leaving.set()
            await self._runs.drain()
            left.set()
            reporting.cancel()
        # If the server is away now, our breath will be missed instead.
        with suppress(ServerProblem):
            await self._locks.flush()
            await workers.leave(self._pool, self.worker_id)

    async def repeat(
        self,
        stopping: asyncio.Event,
        step: Callable[[], Awaitable[bool]],
        pause_s: float,
        *,
        wake: asyncio.Event | None = None,
        unless: asyncio.Event | None = None,
    ) -> None:
        """Take one step after the other, at once while there is more to do.

        A server that is away is waited for, not died of.
        """
        while not stopping.is_set() and not (unless and unless.is_set()):
            more = False
            try:
                more = await step()
            except ServerProblem as error:
                log.warning("server_away", problem=str(error))
                self.doubt()
            if not more:
                await _pause(pause_s, wake or stopping)
            if wake is not None:
                wake.clear()

    async def take(self, found: Sequence[Candidate], stopping: asyncio.Event) -> int:
        """Take the hosts of what was found, claim what is still free, and begin it.

        Returns how many were claimed. If it is to leave by then, they are handed back.
        """
        claimed = await self._claimed(found)
        await self._begin(claimed, stopping)
        return len(claimed)

    async def let_hosts_go(self) -> None:
        """Free the hosts on which nothing runs any more; taking others does it as well."""
        await self._locks.flush()

    async def look_back(self) -> None:
        """Put right what was not heard: runs that are to stop, and claims whose answer was lost."""
        if self._doubt_at and time.monotonic() > self._doubt_at + 2 * self._pace.lost_after_s:
            await self._disown()
        for stop in await executions.to_stop(self._pool, worker_id=self.worker_id):
            self._runs.stop(*stop)

    async def know(self, job_ids: Iterable[int]) -> Mapping[int, Errand]:
        """Return what jobs ask of their hosts, and remember it."""
        wanted = set(job_ids)
        known = {job_id: self._errands[job_id] for job_id in wanted & self._errands.keys()}
        if missing := wanted - known.keys():
            found = await executions.errands(self._pool, sorted(missing))
            known.update((errand.job_id, errand) for errand in found)
            if len(self._errands) + len(found) > _ERRANDS_KNOWN:
                self._errands.clear()
            self._errands.update(
                (errand.job_id, errand) for errand in found if len(errand.params) < _ERRAND_MAX
            )
        return known

    def allowed(self) -> bool:
        """Whether what is next on a host may be claimed at once."""
        return not self._leaving.is_set() and self._driver.may_follow()

    def doubt(self) -> None:
        """Take note that a claim may have been made whose answer was lost."""
        self._doubt_at = time.monotonic()

    def ended(self, jobs: Sequence[Errand], following: Sequence[Claimed]) -> None:
        """Take note of jobs that have let go of hosts, and begin what follows on others."""
        self._driver.let_go(jobs)
        if following:
            self._loops.create_task(self._follow(following))

    async def _follow(self, claimed: Sequence[Claimed]) -> None:
        """Begin what was claimed on hosts that are held already."""
        try:
            await self._begin(claimed, self._leaving)
        except ServerProblem as error:
            log.warning("server_away", problem=str(error))
            self.doubt()

    async def _register(self) -> bool:
        self.worker_id = await workers.register(self._pool, f"{socket.gethostname()}:{os.getpid()}")
        self._registered.set()
        return True

    async def _beat(self) -> bool:
        still_s = time.monotonic() - self._got_on_at
        await workers.beat(self._pool, self.worker_id, still_s=still_s)
        return False

    async def _look_after_runs(self) -> bool:
        self._runs.give_up_late()
        await self._runs.store_output()
        return False

    async def _disown(self) -> None:
        """Hand back what the table says is ours and nobody here has begun."""
        self._doubt_at = None
        older_s = self._pace.lost_after_s
        held = await executions.held_by(self._pool, self.worker_id, older_s=older_s)
        lost = [handed_back(*each) for each in held if not self._runs.holds(*each)]
        if lost:
            log.warning("claims_disowned", claims=len(lost))
            await executions.report(self._pool, lost, ())

    async def _claimed(self, found: Sequence[Candidate]) -> list[Claimed]:
        """Take the hosts of what was found, then claim what is still free."""
        held = await self._locks.take([(c.host_id, c.read_only) for c in found])
        wanted = [c for c in found if c.host_id in held]
        if not wanted:
            return []
        ours: set[int] = set()
        try:
            claimed, _ = await executions.claim(
                self._pool,
                [c.execution_id for c in wanted],
                worker_id=self.worker_id,
                grace_s=self._pace.grace_s,
            )
            ours.update(c.execution_id for c in claimed)
        finally:
            self._locks.free((c.host_id, c.read_only) for c in wanted if c.execution_id not in ours)
        return claimed

    async def _begin(self, claimed: Sequence[Claimed], stopping: asyncio.Event) -> None:
        """Begin what was claimed, or hand it back if this worker is to leave."""
        try:
            known = await self.know(run.job_id for run in claimed)
        except ServerProblem:
            # They are ours by the table, and nobody runs them; the reaper will hand them back.
            self._locks.free((c.host_id, c.read_only) for c in claimed)
            raise
        if stopping.is_set():
            await self._runs.hand_back(claimed)
            return
        for run in claimed:
            self._runs.begin(run, known[run.job_id])


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await unless.wait()
