"""How the demo goes at one moment: what a person is shown of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from onward.core.lifecycles import EXECUTION

TERMINAL: Final = frozenset(map(str, EXECUTION.terminal))
SUCCEEDED: Final = str(EXECUTION.moves["succeed"].target)
EVENTS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class JobState:
    """A job and how many of its executions are where."""

    name: str
    total: int
    waits: bool  # for approval
    counts: Mapping[str, int]

    @property
    def settled(self) -> int:
        """How many have ended, in whatever way."""
        return sum(self.counts.get(status, 0) for status in TERMINAL)


class WorkerState(NamedTuple):
    """A worker, and how much it is running."""

    name: str
    condition: str
    running: int


class EventState(NamedTuple):
    """Something that has just happened to an execution."""

    host: str
    job: str
    before: str
    after: str
    cause: str


@dataclass(frozen=True, slots=True)
class State:
    """Everything that is shown."""

    elapsed_s: float
    rate: float  # executions that ended in the last seconds, per second
    jobs: Sequence[JobState]
    causes: Mapping[str, int]  # why attempts did not succeed, so far
    workers: Sequence[WorkerState]
    events: Sequence[EventState]  # the newest first

    @property
    def settled(self) -> int:
        """How many executions have ended."""
        return sum(job.settled for job in self.jobs)

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(job.total for job in self.jobs)


class View(Protocol):
    """Where a person can follow it."""

    def say(self, line: str) -> None:
        """Tell that something happened."""

    def show(self, state: State) -> None:
        """Show how it goes."""
