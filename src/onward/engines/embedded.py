"""The engine in one process: plans, claims, delivers, reports, and rescues what others lost.

A worker, and three loops that drive it, none of which is itself a queued job:

1. *Plan* queues executions of the jobs that the outbox names.
2. *Claim* walks over the hosts, and has the worker take what is due on those that are free.
3. *Reaper* puts right what nobody was told about: unplanned jobs, runs of dead workers, passed
   deadlines. It works from the tables alone, and any number of reapers may run.

The loops may overlap with those of other processes, be killed between any two statements, and be
started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from onward.channels.base import Channel
from onward.engines.pace import Pace
from onward.engines.worker import Worker
from onward.fleet.publish import publish_outbox
from onward.fleet.reap import reap
from onward.store import executions, jobs
from onward.store.database import Pool
from onward.store.executions import Errand
from onward.store.host_locks import HostLocks

__all__ = ["Engine", "Pace"]


class Engine:
    """One engine. `chance` gives the next random number, for the jitter of retries."""

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
        self._chance = chance
        self._pace = pace or Pace()
        self.worker = Worker(pool, locks, channels, chance=chance, pace=self._pace, driver=self)
        self._to_plan: dict[int, None] = {}  # jobs that have more to plan, in the order of asking
        self._after_host = 0
        self._more_hosts = True  # whether the last walk ended before the last host
        self._got_some = False  # whether the walk that is under way has claimed anything
        self._may_plan = asyncio.Event()
        self._may_claim = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; then let what runs end, and leave."""
        pace, worker = self._pace, self.worker
        await worker.register(stopping)
        async with worker.at_work() as loops:
            loops.create_task(worker.repeat(stopping, self._reap, pace.reap_s))
            loops.create_task(worker.repeat(stopping, self._plan, pace.poll_s, wake=self._may_plan))
            await worker.repeat(
                stopping, lambda: self._claim(stopping), pace.poll_s, wake=self._may_claim
            )

    def may_follow(self) -> bool:
        """Whether what is next on a host may be claimed at once.

        Not while hosts wait that no walk has come to: those which are held already would keep
        them waiting for ever.
        """
        return not self._more_hosts

    def let_go(self, jobs: Sequence[Errand]) -> None:
        """Take note of jobs that have let go of hosts."""
        self._may_claim.set()
        if limited := [job.job_id for job in jobs if job.max_concurrency is not None]:
            # There is room for the next ones of these jobs.
            self._to_plan.update(dict.fromkeys(limited))
            self._may_plan.set()

    async def _reap(self) -> bool:
        await self.worker.look_back()
        await self._wants_plan(
            await reap(
                self._pool,
                lost_after_s=self._pace.lost_after_s,
                backoff=self._pace.backoff,
                chance=self._chance,
            )
        )
        return False

    async def _plan(self) -> bool:
        """Plan one batch of each job that has more; true if there may be more at once."""
        await publish_outbox(self._pool, self._wants_plan)
        planned = False
        for job_id in list(self._to_plan):
            count = len(await jobs.plan(self._pool, job_id, batch=self._pace.plan_batch))
            if count < self._pace.plan_batch:
                self._to_plan.pop(job_id, None)
            if count:
                planned = True
                await self.worker.know([job_id])
                self._more_hosts = True
                self._may_claim.set()
        return planned

    async def _wants_plan(self, job_ids: Collection[int]) -> None:
        """Remember jobs that are to be planned; one that is told twice does no harm."""
        self._to_plan.update(dict.fromkeys(job_ids))
        if job_ids:
            self._may_plan.set()

    async def _claim(self, stopping: asyncio.Event) -> bool:
        """Claim once and begin what is ours; true if there may be more at once."""
        self.worker.got_on()
        room = min(self.worker.room, self._pace.claim_max)
        if room <= 0:
            self._more_hosts = True
            await self.worker.let_hosts_go()
            return False
        start = self._after_host
        found = await executions.candidates(self._pool, after_host=start, limit=room)
        self._more_hosts = len(found) == room
        # Behind the last host, the walk begins again before the first.
        self._after_host = found[-1].host_id if self._more_hosts else 0
        if found:
            claimed = await self.worker.take(found, stopping)
            self._got_some = bool(claimed) or (self._got_some and start > 0)
        else:
            # Nothing to take, so nothing else lets go of the hosts that are ours no more.
            await self.worker.let_hosts_go()
        # A walk that did not begin at the first host has not seen them all; but if it got nothing
        # anywhere, what it saw is somebody else's for now.
        return self._more_hosts or (start > 0 and self._got_some)
