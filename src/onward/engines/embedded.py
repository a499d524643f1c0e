"""The engine in one process: plans, claims, delivers, reports, and rescues what others lost.

Six loops, none of which is itself a queued job:

1. *Plan* queues executions of the jobs that the outbox names.
2. *Claim* takes what is due on free hosts, and hands it over.
3. *Report* writes down what became of it, in groups.
4. *Breath* says that this worker lives; when it cannot, its runs will be somebody else's.
5. *Reaper* puts right what nobody was told about: unplanned jobs, runs of dead workers, passed
   deadlines. It works from the tables alone, and any number of reapers may run.
6. *Runs* stores what the hosts print while they run, and gives up those that had their time.

PostgreSQL decides everything. The loops may overlap with those of other processes, be killed
between any two statements, and be started again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from onward.channels.base import Channel
from onward.engines.pace import Pace
from onward.engines.runs import Runs
from onward.errors import ServerProblem
from onward.fleet.publish import publish_outbox
from onward.fleet.reap import reap
from onward.fleet.report import handed_back
from onward.store import executions, jobs, workers
from onward.store.database import Pool
from onward.store.executions import Candidate, Claimed, Errand
from onward.store.host_locks import HostLocks

__all__ = ["Engine", "Pace"]

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.engine")

# Jobs whose errand is remembered, to spare a look-up; large ones are not.
_ERRANDS_KNOWN: Final = 2_048
_ERRAND_MAX: Final = 16_384


class Engine:
    """One worker. `chance` gives the next random number, for the jitter of retries."""

    def __init__(
        self,
        pool: Pool,
        locks: HostLocks,
        channels: Mapping[str, Channel],
        *,
        chance: Callable[[], float],
        pace: Pace | None = None,
    ) -> None:
        self._pool = pool
        self._locks = locks
        self._chance = chance
        self._pace = pace or Pace()
        self._runs = Runs(pool, locks, channels, chance=chance, pace=self._pace, hand_over=self)
        self._errands: dict[int, Errand] = {}
        self._to_plan: dict[int, None] = {}  # jobs that have more to plan, in the order of asking
        self._after_host = 0
        self._more_hosts = True  # whether the last walk ended before the last host
        self._doubt_at: float | None = None  # when a claim may have been made that nobody heard of
        self._got_some = False  # whether the walk that is under way has claimed anything
        self._leaving = asyncio.Event()
        self.worker_id = 0
        self._got_on_at = time.monotonic()
        self._registered = asyncio.Event()
        self._may_plan = asyncio.Event()
        self._may_claim = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; then let what runs end, and leave.

        A bug in one of the loops ends all of them: an engine that does half of its work would look
        alive.
        """
        pace, left = self._pace, asyncio.Event()
        await self._repeat(stopping, self._register, pace.poll_s, unless=self._registered)
        async with asyncio.TaskGroup() as loops:
            self._loops = loops
            # It breathes, reports and keeps what is printed also while it drains.
            loops.create_task(self._repeat(left, self._beat, pace.beat_s))
            loops.create_task(self._repeat(left, self._look_after_runs, pace.output_s))
            reporting = loops.create_task(self._runs.report())
            loops.create_task(self._repeat(stopping, self._reap, pace.reap_s))
            loops.create_task(self._repeat(stopping, self._plan, pace.poll_s, wake=self._may_plan))
            await self._repeat(
                stopping, lambda: self._claim(stopping), pace.poll_s, wake=self._may_claim
            )
            self._leaving.set()
            await self._runs.drain()
            left.set()
            reporting.cancel()
        # If the server is away now, our breath will be missed instead.
        with suppress(ServerProblem):
            await self._locks.flush()
            await workers.leave(self._pool, self.worker_id)

    async def _register(self) -> bool:
        self.worker_id = await workers.register(self._pool, f"{socket.gethostname()}:{os.getpid()}")
        self._registered.set()
        return True

    async def _repeat(
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

    async def _beat(self) -> bool:
        still_s = time.monotonic() - self._got_on_at
        await workers.beat(self._pool, self.worker_id, still_s=still_s)
        return False

    async def _look_after_runs(self) -> bool:
        self._runs.give_up_late()
        await self._runs.store_output()
        return False

    async def _reap(self) -> bool:
        if self._doubt_at and time.monotonic() > self._doubt_at + 2 * self._pace.lost_after_s:
            await self._disown()
        for stop in await executions.to_stop(self._pool, worker_id=self.worker_id):
            self._runs.stop(*stop)
        await self._wants_plan(
            await reap(
                self._pool,
                lost_after_s=self._pace.lost_after_s,
                backoff=self._pace.backoff,
                chance=self._chance,
            )
        )
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

    async def _plan(self) -> bool:
        """Plan one batch of each job that has more; true if there may be more at once."""
        await publish_outbox(self._pool, self._wants_plan)
        planned = False
        for job_id in list(self._to_plan):
            count = await jobs.plan(self._pool, job_id, batch=self._pace.plan_batch)
            if count < self._pace.plan_batch:
                self._to_plan.pop(job_id, None)
            if count:
                planned = True
                await self._known([job_id])
                self._more_hosts = True
                self._may_claim.set()
        return planned

    async def _wants_plan(self, job_ids: Sequence[int]) -> None:
        """Remember jobs that are to be planned; one that is told twice does no harm."""
        self._to_plan.update(dict.fromkeys(job_ids))
        if job_ids:
            self._may_plan.set()

    async def _claim(self, stopping: asyncio.Event) -> bool:
        """Claim once and begin what is ours; true if there may be more at once."""
        self._got_on_at = time.monotonic()
        room = min(self._pace.capacity - len(self._runs), self._pace.claim_max)
        if room <= 0:
            self._more_hosts = True
            await self._locks.flush()
            return False
        start = self._after_host
        found = await executions.candidates(self._pool, after_host=start, limit=room)
        self._more_hosts = len(found) == room
        # Behind the last host, the walk begins again before the first.
        self._after_host = found[-1].host_id if self._more_hosts else 0
        if found:
            claimed = await self._take(found)
            self._got_some = bool(claimed) or (self._got_some and start > 0)
            await self._begin(claimed, stopping)
        else:
            # Nothing to take, so nothing else lets go of the hosts that are ours no more.
            await self._locks.flush()
        # A walk that did not begin at the first host has not seen them all; but if it got nothing
        # anywhere, what it saw is somebody else's for now.
        return self._more_hosts or (start > 0 and self._got_some)

    async def _begin(self, claimed: Sequence[Claimed], stopping: asyncio.Event) -> None:
        """Begin what was claimed, or hand it back if this worker is to leave."""
        try:
            known = await self._known(run.job_id for run in claimed)
        except ServerProblem:
            # They are ours by the table, and nobody runs them; the reaper will hand them back.
            self._locks.free((c.host_id, c.read_only) for c in claimed)
            raise
        if stopping.is_set():
            await self._runs.hand_back(claimed)
            return
        for run in claimed:
            self._runs.begin(run, known[run.job_id])

    async def _take(self, found: Sequence[Candidate]) -> list[Claimed]:
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

    async def _known(self, job_ids: Iterable[int]) -> Mapping[int, Errand]:
        """Return the errands of jobs."""
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
        """Whether what is next on a host may be claimed at once.

        Not while hosts wait that no walk has come to: those which are held already would keep
        them waiting for ever.
        """
        return not (self._more_hosts or self._leaving.is_set())

    def doubt(self) -> None:
        """Take note that a claim may have been made whose answer was lost."""
        self._doubt_at = time.monotonic()

    def ended(self, jobs: Sequence[Errand], following: Sequence[Claimed]) -> None:
        """Take note of jobs that have let go of hosts, and begin what follows on others."""
        self._may_claim.set()
        if limited := [job.job_id for job in jobs if job.max_concurrency is not None]:
            # There is room for the next ones of these jobs.
            self._to_plan.update(dict.fromkeys(limited))
            self._may_plan.set()
        if following:
            self._loops.create_task(self._follow(following))

    async def _follow(self, claimed: Sequence[Claimed]) -> None:
        """Begin what was claimed on hosts that are held already."""
        try:
            await self._begin(claimed, self._leaving)
        except ServerProblem as error:
            log.warning("server_away", problem=str(error))
            self.doubt()


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await unless.wait()
