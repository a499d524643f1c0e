"""The engine in one process: plans, claims, delivers, reports, and rescues what others lost.

Three loops, none of which is itself a queued job:

1. *Dispatch* plans what the outbox names, claims what is due on free hosts, and hands it over.
2. *Breath* says that this worker lives; when it cannot, its runs will be somebody else's.
3. *Reaper* puts right what nobody was told about: unplanned jobs, runs of dead workers, passed
   deadlines. It works from the tables alone, and any number of reapers may run.

PostgreSQL decides everything. The loops may overlap with those of other processes, be killed
between any two statements, and be started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from onward.channels.base import Channel, Delivery, Stream, Target
from onward.core.retry import Backoff, Cause
from onward.errors import ChannelError, HostRefused, ServerProblem
from onward.fleet.report import Attempt, failed, reported, unreported
from onward.store import executions, jobs, outbox, workers
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, Answer, Claimed, ExecutionEvent
from onward.store.group_commit import GroupCommit
from onward.store.host_locks import HostLocks

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.engine")


@dataclass(frozen=True, slots=True)
class Pace:
    """How much an engine does at once, and how often it looks."""

    capacity: int = 2_000  # runs at once
    claim_max: int = 1_000  # claims in one statement
    plan_batch: int = 5_000
    poll_s: float = 0.2  # between looks when there is nothing to do
    beat_s: float = 1.0
    lost_after_s: float = 5.0  # without a breath, a worker's runs are taken from it
    reap_s: float = 1.0
    grace_s: float = 10.0  # for the way there and back, beyond what the host may take
    backoff: Backoff = field(default_factory=lambda: Backoff(base_s=2.0, max_s=30.0))


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
        self._channels = channels
        self._chance = chance
        self._pace = pace or Pace()
        self._reports: GroupCommit[ExecutionEvent, Answer] = GroupCommit(
            self._record, wait_s=0.001, group_max=5_000
        )
        self._runs: set[asyncio.Task[None]] = set()
        self._under_way: dict[int, tuple[Channel, Delivery]] = {}
        self._after_host = 0
        self._worker_id = 0
        self._registered = asyncio.Event()
        self._wake = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; then finish what runs, and leave."""
        await self._repeat(stopping, self._register, self._pace.poll_s, unless=self._registered)
        loops = [
            asyncio.create_task(self._repeat(stopping, self._beat, self._pace.beat_s)),
            asyncio.create_task(self._repeat(stopping, self._reap, self._pace.reap_s)),
        ]
        try:
            await self._repeat(stopping, self._dispatch, self._pace.poll_s, wake=self._wake)
        finally:
            if self._runs:
                await asyncio.wait(self._runs)
            await self._reports.drain()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            # If the server is away now, our breath will be missed instead.
            with suppress(ServerProblem):
                await self._locks.flush()
                await workers.leave(self._pool, self._worker_id)

    async def _register(self) -> bool:
        self._worker_id = await workers.register(
            self._pool, f"{socket.gethostname()}:{os.getpid()}"
        )
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
            if not more:
                await _pause(pause_s, wake or stopping)
            if wake is not None:
                wake.clear()

    async def _beat(self) -> bool:
        await workers.beat(self._pool, self._worker_id)
        return False

    async def _dispatch(self) -> bool:
        """Plan and claim once; true if there may be more at once."""
        planned = await self._plan_told()
        room = min(self._pace.capacity - len(self._runs), self._pace.claim_max)
        if room <= 0:
            return planned
        found = await executions.candidates(self._pool, after_host=self._after_host, limit=room)
        wrapped, self._after_host = not self._after_host, found[-1].host_id if found else 0
        if not found:
            return planned or not wrapped
        held = await self._locks.take([(c.host_id, c.read_only) for c in found])
        wanted = [c for c in found if c.host_id in held]
        claimed, _ = await executions.claim(
            self._pool,
            [c.execution_id for c in wanted],
            worker_id=self._worker_id,
            grace_s=self._pace.grace_s,
        )
        ours = {c.execution_id for c in claimed}
        self._locks.free((c.host_id, c.read_only) for c in wanted if c.execution_id not in ours)
        for run in claimed:
            task = asyncio.create_task(self._run(run))
            self._runs.add(task)
            task.add_done_callback(self._runs.discard)
        return bool(claimed) or planned

    async def _plan_told(self) -> bool:
        """Plan the jobs that the outbox names; a word that is told twice does no harm."""
        told = await outbox.take(self._pool, "plan_job", limit=100)
        for job_id in told:
            await self._plan(job_id)
        return bool(told)

    async def _plan(self, job_id: int) -> None:
        while await jobs.plan(self._pool, job_id, batch=self._pace.plan_batch):
            pass

    async def _run(self, claimed: Claimed) -> None:
        """Hand over one attempt, and report what came of it."""
        attempt = Attempt(claimed.execution_id, claimed.epoch, claimed.retries, claimed.max_retries)
        try:
            event = await self._deliver(claimed, attempt)
            await self._reports.submit(event)
        except ServerProblem as error:
            # The row still says RUNNING and ours; its deadline will settle it.
            log.warning("report_lost", execution_id=claimed.execution_id, problem=str(error))
        finally:
            self._locks.free([(claimed.host_id, claimed.read_only)])
            self._wake.set()

    async def _deliver(self, claimed: Claimed, attempt: Attempt) -> ExecutionEvent:
        delivery = Delivery(
            command_id=str(claimed.execution_id),
            epoch=claimed.epoch,
            target=Target(claimed.host_id, claimed.host_name, claimed.address),
            command_type=claimed.command_type,
            params=json.loads(claimed.params),
            timeout_s=claimed.timeout_s,
            exclusive=not claimed.read_only,
        )
        backoff, chance = self._pace.backoff, self._chance()
        channel = self._channels.get(claimed.channel)
        if channel is None:
            missing = HostRefused(f"This worker has no channel {claimed.channel!r}.")
            return unreported(attempt, missing, backoff, chance)
        self._under_way[claimed.execution_id] = (channel, delivery)
        try:
            async with asyncio.timeout(claimed.timeout_s + self._pace.grace_s):
                report = await channel.deliver(delivery, _ignored)
        except (ChannelError, TimeoutError) as error:
            return unreported(attempt, error, backoff, chance)
        finally:
            del self._under_way[claimed.execution_id]
        return reported(attempt, report, backoff, chance)

    async def _record(self, events: Sequence[ExecutionEvent]) -> list[Answer]:
        return await EXECUTIONS.record_all(self._pool, events, batch_max=5_000)

    async def _reap(self) -> bool:
        """Put right, from the tables alone, what nobody was told about."""
        await executions.rescue(
            self._pool, lost_after_s=self._pace.lost_after_s, limit=self._pace.claim_max
        )
        late = [
            failed(
                Attempt(*overdue),
                Cause.TIMED_OUT,
                self._pace.backoff,
                self._chance(),
                error="nothing was heard before the deadline",
            )
            for overdue in await executions.overdue(self._pool, limit=self._pace.claim_max)
        ]
        if late:
            await EXECUTIONS.record_all(self._pool, late, batch_max=5_000)
        await self._stop_cancelled()
        await jobs.finish_cancelling(self._pool, limit=100)
        for job_id in await executions.unplanned(self._pool, limit=100):
            await self._plan(job_id)
        await jobs.sum_counts(self._pool, above=50)
        return False

    async def _stop_cancelled(self) -> None:
        """Ask the hosts to stop what was cancelled; it is, once they confirm."""
        stops = [
            self._stop(execution_id, epoch, *self._under_way[execution_id])
            for execution_id, epoch in await executions.to_stop(
                self._pool, worker_id=self._worker_id
            )
            if execution_id in self._under_way
        ]
        await asyncio.gather(*stops)

    async def _stop(
        self, execution_id: int, epoch: int, channel: Channel, delivery: Delivery
    ) -> None:
        try:
            async with asyncio.timeout(self._pace.grace_s):
                confirmed = await channel.cancel(delivery)
        except (ChannelError, TimeoutError) as error:
            log.info("cancel_unheard", execution_id=execution_id, problem=str(error))
            return
        if confirmed:
            await self._reports.submit(ExecutionEvent(execution_id, "cancel", epoch, "worker"))


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await unless.wait()


def _ignored(_stream: Stream, _text: str) -> None:
    """Take a line of output; where it is kept comes with the logs."""
