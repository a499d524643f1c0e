"""What one worker has under way: each run handed to its channel, its output kept, its end reported.

An attempt ends in one commit that carries what it printed and what became of it, shared with all
that end at the same moment. What a long run prints is stored while it runs. The final report waits
for a batch of output that is on its way, so that lines become visible in the order of their numbers
and a reader who follows them misses none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from onward.channels.base import Channel, Delivery, Target
from onward.engines.pace import Pace
from onward.errors import ChannelError, HostRefused, ServerProblem
from onward.fleet.output import Line, Output
from onward.fleet.report import Attempt, handed_back, reported, unreported
from onward.store import executions, logs
from onward.store.database import Pool
from onward.store.executions import Answer, Claimed, Errand, ExecutionEvent
from onward.store.group_commit import GroupCommit
from onward.store.host_locks import HostLocks

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.engine")

_GROUP_MAX: Final = 2_000  # reports in one commit

Ended = tuple[ExecutionEvent, Sequence[Line]]


@dataclass(slots=True)
class _Run:
    """One attempt, from the moment that it is handed over."""

    channel: Channel
    delivery: Delivery
    output: Output
    stored: bool = False  # whether some of its output has been stored already


class Runs:
    """The runs of one worker. `ended` is told of each that has let go of its host."""

    def __init__(
        self,
        pool: Pool,
        locks: HostLocks,
        channels: Mapping[str, Channel],
        *,
        chance: Callable[[], float],
        pace: Pace,
        ended: Callable[[Errand], None],
    ) -> None:
        self._pool = pool
        self._locks = locks
        self._channels = channels
        self._chance = chance
        self._pace = pace
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: dict[int, _Run] = {}
        self._storing = asyncio.Lock()
        self._reports: GroupCommit[Ended, Answer] = GroupCommit(
            self._commit, wait_s=0.002, group_max=_GROUP_MAX
        )

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, claimed: Claimed, errand: Errand) -> None:
        """Hand an attempt to its host; what comes of it is reported without further asking."""
        task = asyncio.create_task(self._run(claimed, errand))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def hand_back(self, claimed: Sequence[Claimed]) -> None:
        """Queue again what was claimed and not begun: it costs neither a retry nor an attempt."""
        events = [handed_back(c.execution_id, c.epoch) for c in claimed]
        if events:
            await executions.report(self._pool, events, ())
        self._locks.free((c.host_id, c.read_only) for c in claimed)

    async def stop(self, execution_id: int, epoch: int) -> None:
        """Ask a host to stop a run that was cancelled; it is, once the host confirms."""
        run = self._under_way.get(execution_id)
        if run is None or run.delivery.epoch != epoch:
            return
        try:
            async with asyncio.timeout(self._pace.grace_s):
                confirmed = await run.channel.cancel(run.delivery)
        except (ChannelError, TimeoutError) as error:
            log.info("cancel_unheard", execution_id=execution_id, problem=str(error))
            return
        if confirmed:
            event = ExecutionEvent(execution_id, "cancel", epoch, "worker")
            await self._reports.submit((event, run.output.take()))

    async def store_output(self) -> None:
        """Store what has been printed so far by what still runs."""
        async with self._storing:
            talking = [run for run in self._under_way.values() if run.output.waiting]
            lines = [line for run in talking for line in run.output.take()]
            for run in talking:
                run.stored = True
            # Lost with a server that is away: the run goes on, and a gap in the numbers shows it.
            await logs.write(self._pool, lines)

    async def drain(self) -> None:
        """Let what runs end, for a while; what does not is given up, and others will rescue it."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._pace.drain_s)
            for task in late:
                task.cancel()
            if late:
                log.warning("runs_left", runs=len(late))
                await asyncio.wait(late)
        await self._reports.drain()

    async def _run(self, claimed: Claimed, errand: Errand) -> None:
        output = Output(claimed.execution_id, claimed.epoch, claimed.attempt)
        try:
            event = await self._deliver(claimed, errand, output)
            await self._reports.submit((event, output.close()))
        except ServerProblem as error:
            # The row still says RUNNING and ours; its deadline will settle it.
            log.warning("report_lost", execution_id=claimed.execution_id, problem=str(error))
        finally:
            self._locks.free([(claimed.host_id, claimed.read_only)])
            self._ended(errand)

    async def _deliver(self, claimed: Claimed, errand: Errand, output: Output) -> ExecutionEvent:
        attempt = Attempt(claimed.execution_id, claimed.epoch, claimed.retries, errand.max_retries)
        backoff = self._pace.backoff
        channel = self._channels.get(claimed.channel)
        if channel is None:
            missing = HostRefused(f"This worker has no channel {claimed.channel!r}.")
            return unreported(attempt, missing, backoff, self._chance())
        run = _Run(channel, _delivery(claimed, errand), output)
        self._under_way[claimed.execution_id] = run
        try:
            async with asyncio.timeout(claimed.timeout_s + self._pace.grace_s):
                report = await channel.deliver(run.delivery, output)
        except (ChannelError, TimeoutError) as error:
            return unreported(attempt, error, backoff, self._chance())
        finally:
            del self._under_way[claimed.execution_id]
            if run.stored:
                async with self._storing:
                    pass
        return reported(attempt, report, backoff, self._chance())

    async def _commit(self, ended: Sequence[Ended]) -> Sequence[Answer]:
        events = [event for event, _ in ended]
        lines = [line for _, printed in ended for line in printed]
        return await executions.report(self._pool, events, lines)


def _delivery(claimed: Claimed, errand: Errand) -> Delivery:
    return Delivery(
        command_id=str(claimed.execution_id),
        epoch=claimed.epoch,
        target=Target(claimed.host_id, claimed.host_name, claimed.address),
        command_type=errand.command_type,
        # Each run gets its own: a channel that changed it would change it for all.
        params=json.loads(errand.params),
        timeout_s=claimed.timeout_s,
        exclusive=not claimed.read_only,
    )
