"""What one worker has under way: each run handed to its channel, its output kept, its end reported.

An attempt ends in one commit that carries what it printed and what became of it, shared with all
that end at the same moment. What a long run prints is stored while it runs. The final report waits
for a batch of output that is on its way, so that lines become visible in the order of their numbers
and a reader who follows them misses none.
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, Protocol

import structlog

from onward.channels.base import Channel, Delivery, Receipting, Target
from onward.engines.pace import Pace
from onward.engines.reports import Reports
from onward.errors import ChannelError, DeliveryUnknown, HostRefused, ServerProblem
from onward.fleet.masking import Hidden, hidden_of
from onward.fleet.output import Line, Output
from onward.fleet.report import Attempt, handed_back, printed, reported, unreported
from onward.store import executions, logs
from onward.store.database import Pool
from onward.store.executions import Claimed, Errand, ExecutionEvent
from onward.store.host_locks import HostLocks

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.engine")


# What a worker has to be told before it has these ways to hosts.
_SETTINGS: Final = {"mqtt": "ONWARD_MQTT_URL", "platform": "ONWARD_PLATFORMS"}


@dataclass(slots=True, eq=False)
class _Run:
    """One attempt, from the moment that it is handed over."""

    claimed: Claimed
    errand: Errand
    channel: Channel
    delivery: Delivery
    output: Output
    give_up_at: float
    hidden: Hidden | None = None  # what is taken out of all that is told of it
    task: asyncio.Task[None] | None = None
    stopping: asyncio.Task[None] | None = None
    given_up: bool = False
    delivered: bool = False  # whether its channel has said all that it will
    spoken: bool = False  # whether that was the word of its host
    repeated: bool = False  # whether it was out of the memory of the host, which may keep no output
    stopped: bool = False  # whether its host has confirmed that it stopped on our word
    stored: bool = False  # whether some of its output has been stored already

    @property
    def attempt(self) -> tuple[int, int]:
        """Which attempt it is: the execution, and its epoch."""
        return self.claimed.execution_id, self.claimed.epoch


class HandOver(Protocol):
    """What an engine says when runs have ended."""

    worker_id: int

    def allowed(self) -> bool:
        """Whether what is next on a host may be claimed at once, past the walk over all hosts."""
        ...

    def doubt(self) -> None:
        """Take note that a claim may have been made whose answer was lost."""
        ...

    def ended(self, jobs: Sequence[Errand], following: Sequence[Claimed]) -> None:
        """Take note of jobs that have let go of hosts, and begin what follows on others."""
        ...


class _Ended(NamedTuple):
    """What is to be reported, and the run whose host is then let go."""

    event: ExecutionEvent
    lines: Sequence[Line]
    run: _Run


class Runs:
    """The runs of one worker; `hand_over` says what follows on a host when one has ended."""

    def __init__(
        self,
        pool: Pool,
        locks: HostLocks,
        channels: Mapping[str, Channel],
        *,
        chance: Callable[[], float],
        pace: Pace,
        hand_over: HandOver,
    ) -> None:
        self._pool = pool
        self._locks = locks
        self._channels = channels
        self._chance = chance
        self._pace = pace
        self._hand_over = hand_over
        # By execution and epoch: what was taken from here may come again while its former attempt
        # has not ended.
        self._under_way: dict[tuple[int, int], _Run] = {}
        self._unreported: set[tuple[int, int]] = set()  # what has ended and is not yet on disk
        self._storing = asyncio.Lock()
        self._receipting = {name for name in channels if isinstance(channels[name], Receipting)}
        self._receipts: set[asyncio.Task[None]] = set()
        self._reports: Reports[_Ended, Sequence[Claimed]] = Reports(
            self._commit, settled=self._settled, pause_s=pace.poll_s
        )

    def __len__(self) -> int:
        return len(self._under_way) + len(self._reports)

    async def report(self) -> None:
        """Report what ends, until this is cancelled."""
        await self._reports.run()

    def begin(self, claimed: Claimed, errand: Errand) -> None:
        """Hand an attempt to its host; what comes of it is reported without further asking."""
        channel = self._channels.get(claimed.channel) or _NoChannel(claimed.channel)
        hidden = hidden_of(errand.params, errand.masked)
        output = Output(claimed.execution_id, claimed.epoch, claimed.attempt, hidden=hidden)
        # Before the deadline that the reaper keeps: the worker knows more about the attempt.
        patience_s = claimed.timeout_s + self._pace.grace_s / 2
        give_up_at = time.monotonic() + patience_s
        run = _Run(claimed, errand, channel, _delivery(claimed, errand), output, give_up_at, hidden)
        self._under_way[run.attempt] = run
        run.task = asyncio.create_task(self._run(run))

    async def hand_back(self, claimed: Sequence[Claimed]) -> None:
        """Queue again what was claimed and not begun: it costs neither a retry nor an attempt."""
        events = [handed_back(c.execution_id, c.epoch) for c in claimed]
        try:
            if events:
                await executions.report(self._pool, events, ())
        finally:
            self._locks.free((c.host_id, c.read_only) for c in claimed)

    def stop(self, execution_id: int, epoch: int) -> None:
        """Ask a host to stop a run that was cancelled; it is, once the host confirms."""
        run = self._under_way.get((execution_id, epoch))
        if run is None:
            return
        # Nobody waits for a host that is slow to answer this, and none is asked twice at once.
        if run.stopping is None or run.stopping.done():
            run.stopping = asyncio.create_task(self._ask_to_stop(run))

    async def _ask_to_stop(self, run: _Run) -> None:
        execution_id = run.claimed.execution_id
        try:
            async with asyncio.timeout(self._pace.grace_s):
                confirmed = await run.channel.cancel(run.delivery)
        except (ChannelError, TimeoutError) as error:
            log.info(
                "cancel_unheard",
                execution_id=execution_id,
                problem=_told(run, str(error)),
                **run.errand.trace,
            )
            return
        if confirmed:
            run.stopped = True
            # What its channel has still to say about it would only be that it was stopped.
            if not run.delivered and run.task is not None:
                run.task.cancel()

    def give_up_late(self) -> None:
        """Stop waiting for hosts that have had their time."""
        now = time.monotonic()
        for run in [run for run in self._under_way.values() if run.give_up_at <= now]:
            if run.delivered:
                continue
            run.given_up = True
            if run.task is not None:
                run.task.cancel()

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
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.drain_s):
                while tasks := self._tasks():
                    await asyncio.wait(tasks)
                await self._reports.drained()
        if left := self._tasks():
            log.warning("runs_left", runs=len(left))
            left += [run.stopping for run in self._under_way.values() if run.stopping is not None]
            for task in left:
                task.cancel()
            await asyncio.wait(left)
        if len(self._reports):
            log.warning("reports_left", reports=len(self._reports))

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [run.task for run in self._under_way.values() if run.task is not None]

    async def _run(self, run: _Run) -> None:
        try:
            event = await self._deliver(run)
            run.delivered = True
            event = await self._unless_stopped(run, event)
            if run.stored:
                async with self._storing:
                    pass
            self._unreported.add(run.attempt)
            lines = run.output.close()
            nothing = None if run.repeated else ""
            self._reports.add(_Ended(printed(event, run.output.digest or nothing), lines, run))
        finally:
            del self._under_way[run.attempt]

    async def _unless_stopped(self, run: _Run, event: ExecutionEvent) -> ExecutionEvent:
        """Return the end of a run: as cancelled, if its host stopped it because we asked.

        The channel may tell its end before the host's word comes that this was the reason, so that
        one is waited for. Too late to be stopped is an outcome as well.
        """
        if run.stopping is not None:
            await asyncio.wait([run.stopping])
        if not run.stopped or event.event == "succeed":
            return event
        return _cancelled(run)

    async def _deliver(self, run: _Run) -> ExecutionEvent:
        attempt = Attempt(
            run.claimed.execution_id,
            run.claimed.epoch,
            run.claimed.retries,
            run.errand.max_retries,
            run.hidden,
        )
        backoff = self._pace.backoff
        try:
            report = await run.channel.deliver(run.delivery, run.output)
        except asyncio.CancelledError:
            if run.stopped:
                return _cancelled(run)
            if not run.given_up:
                raise
            late = TimeoutError(f"nothing was heard for {run.claimed.timeout_s:g} s")
            return unreported(attempt, late, backoff, self._chance())
        except (ChannelError, TimeoutError) as error:
            return unreported(attempt, error, backoff, self._chance())
        except Exception as bug:  # noqa: BLE001 - a bug of one channel is not the end of the others
            log.error(  # noqa: TRY400 - as text, because a rendered exception shows what it holds
                "channel_bug",
                execution_id=run.claimed.execution_id,
                **run.errand.trace,
                traceback=_told(run, "".join(traceback.format_exception(bug))),
            )
            unknown = DeliveryUnknown("The channel failed; the log of the worker says how.")
            return unreported(attempt, unknown, backoff, self._chance())
        run.spoken, run.repeated = True, report.repeated
        return reported(attempt, report, backoff, self._chance())

    def holds(self, execution_id: int, epoch: int) -> bool:
        """Whether this attempt is under way here, or has ended and waits to be reported."""
        attempt = (execution_id, epoch)
        return attempt in self._under_way or attempt in self._unreported

    async def _commit(self, ended: Sequence[_Ended]) -> Sequence[Claimed]:
        """Write down what ended; returns what was claimed on the same hosts in the same breath."""
        events = [each.event for each in ended]
        lines = [line for each in ended for line in each.lines]
        hosts = [each.run.claimed.host_id for each in ended if not each.run.claimed.read_only]
        if not (hosts and self._hand_over.allowed()):
            await executions.report(self._pool, events, lines)
            return ()
        try:
            return await executions.report_and_claim(
                self._pool,
                events,
                lines,
                hosts=hosts,
                worker_id=self._hand_over.worker_id,
                grace_s=self._pace.grace_s,
            )
        except ServerProblem:
            self._hand_over.doubt()
            raise

    def _settled(self, ended: Sequence[_Ended], following: Sequence[Claimed]) -> None:
        """Let go of the hosts of what is on disk, except those on which something follows."""
        runs = [each.run for each in ended]
        for run in runs:
            self._unreported.discard(run.attempt)
        kept = {claimed.host_id for claimed in following}
        self._locks.free(
            (run.claimed.host_id, run.claimed.read_only)
            for run in runs
            if run.claimed.read_only or run.claimed.host_id not in kept
        )
        jobs = {run.errand.job_id: run.errand for run in runs}
        self._hand_over.ended(list(jobs.values()), following)
        told = self._receipting
        if told and (heard := [run for run in runs if run.spoken and run.claimed.channel in told]):
            receipts = asyncio.create_task(_receipt(heard))
            self._receipts.add(receipts)
            receipts.add_done_callback(self._receipts.discard)


class _NoChannel:
    """Stands for a channel that this worker has not."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def deliver(self, _delivery: Delivery, _output: object) -> NoReturn:
        missing = _SETTINGS.get(self._name)
        hint = f" Set {missing} where workers run." if missing else ""
        raise HostRefused(f"This worker has no channel {self._name!r}.{hint}")

    async def cancel(self, _delivery: Delivery) -> bool:
        return False


def _cancelled(run: _Run) -> ExecutionEvent:
    return ExecutionEvent(run.claimed.execution_id, "cancel", run.claimed.epoch, "worker")


async def _receipt(runs: Sequence[_Run]) -> None:
    """Tell hosts that what they reported is on disk; one that does not hear it reports again."""
    for run in runs:
        if isinstance(run.channel, Receipting):
            with suppress(ChannelError):
                await run.channel.receipt(run.delivery)


def _told(run: _Run, text: str) -> str:
    return text if run.hidden is None else run.hidden.out_of(text)


def _delivery(claimed: Claimed, errand: Errand) -> Delivery:
    return Delivery(
        command_id=str(claimed.execution_id),
        epoch=claimed.epoch,
        target=Target(claimed.host_id, claimed.host_name, claimed.address, claimed.key_generation),
        command_type=errand.command_type,
        # Each run gets its own: a channel that changed it would change it for all.
        params=json.loads(errand.params),
        timeout_s=claimed.timeout_s,
        exclusive=not claimed.read_only,
        trace=errand.trace,
        argv=errand.argv,
        masked=errand.masked,
    )
