"""What a simulated host has in hand and in mind: its runs, the newest attempt at each command."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from onward.channels.base import Delivery, Output, Report
from onward.channels.simulated.behaviour import Behaviour
from onward.channels.simulated.network import Crash
from onward.errors import HostRefused

INTERRUPTED = Report(succeeded=False, error="the host went down in the middle of the run")


class Run:
    """An attempt that a host is busy with."""

    __slots__ = ("attempt", "behaviour", "crash", "delivery", "done", "ears", "starter", "task")

    def __init__(
        self, delivery: Delivery, behaviour: Behaviour, output: Output, crash: Crash | None
    ) -> None:
        self.delivery = delivery
        self.behaviour = behaviour
        self.crash = crash
        self.starter = output
        self.ears = [output]
        self.attempt = 0
        # What the host says in the end; none if it went down and says nothing.
        self.done: asyncio.Future[Report | None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None]

    def join(self, output: Output) -> Run:
        """Let one more listen."""
        if output not in self.ears:
            self.ears.append(output)
        return self

    def pass_on_bug(self, task: asyncio.Task[None]) -> None:
        """Let those who wait see the bug that ended the task, instead of waiting for ever."""
        if not task.cancelled() and (bug := task.exception()) and not self.done.done():
            self.done.set_exception(bug)

    async def ended(self, output: Output) -> Report | None:
        """What the host says to one who listens; a caller who gives up disturbs nobody else."""
        report = await asyncio.shield(self.done)
        if report is None or output is self.starter:
            return report
        return replace(report, repeated=True)


class Memory:
    """What a host knows about the newest attempt at a command."""

    __slots__ = ("attempts", "epoch", "refusal", "report", "run")

    def __init__(self) -> None:
        self.epoch = -1
        self.attempts = 0
        self.report: Report | None = None
        self.refusal: HostRefused | None = None
        self.run: Run | None = None

    @property
    def finished(self) -> bool:
        """Whether the attempt came to an end of its own: only such an end has an exit code."""
        return self.report is not None and self.report.exit_code is not None

    def begin(self, epoch: int, run: Run | None = None) -> None:
        """Remember a new attempt, which is taken for interrupted until it ends."""
        self.epoch = epoch
        self.attempts += 1
        self.report = INTERRUPTED
        self.refusal = None
        self.run = run

    def refuse(self, epoch: int, refusal: HostRefused) -> None:
        """Remember that an attempt was refused, and how: a copy of it gets the same answer."""
        self.epoch = epoch
        self.refusal = refusal
        self.report = None
        self.run = None


class Host:
    """What a host runs, and what it remembers."""

    __slots__ = ("commands", "down_until", "highest", "runs")

    def __init__(self) -> None:
        self.commands: dict[str, Memory] = {}
        self.runs: list[Run] = []
        self.highest = -1
        self.down_until = 0.0

    def see(self, epoch: int) -> None:
        """Take note of an epoch."""
        self.highest = max(self.highest, epoch)
