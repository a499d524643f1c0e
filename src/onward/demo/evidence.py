"""What is left when the demo is over: the tables, and the journal that the hosts kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final, NamedTuple

from onward.channels.simulated import Effect, What
from onward.core.verdicts import TransitionResult
from onward.store.database import Connection

_JOBS: Final = """
SELECT id, external_id, command_type, total, requested_by, approval_state, decided_by, decided_at
  FROM jobs ORDER BY id
"""
_EXECUTIONS: Final = "SELECT id, job_id, host_id, status, cause FROM executions ORDER BY id"
_TIMELINE: Final = """
SELECT execution_id, event, verdict, from_status, to_status, at, detail ->> 'cause' AS cause
  FROM execution_timeline ORDER BY execution_id, seq
"""
_COUNTS: Final = """
SELECT job_id, status, sum(n)::integer AS n
  FROM job_counts GROUP BY job_id, status HAVING sum(n) <> 0
"""
# What the guarded path keeps beside the executions.
_LEFT: Final = "SELECT execution_id FROM queue UNION ALL SELECT execution_id FROM runs"
_FAILURES: Final = "SELECT execution_id, status FROM failures"
_BLOCKS: Final = "SELECT host_id, command_type FROM host_command_blocks"

WORKER_LOST: Final = "WORKER_LOST"  # what the reaper writes when it takes a run from the dead


class Job(NamedTuple):
    """A job, as the table has it in the end."""

    job_id: int
    name: str
    command_type: str
    total: int
    requested_by: str
    approval_state: str | None
    decided_by: str | None
    decided_at: datetime | None


class Execution(NamedTuple):
    """An execution, as the table has it in the end."""

    execution_id: int
    job_id: int
    host_id: int
    status: str
    cause: str | None


class Said(NamedTuple):
    """Something that was said about an execution, and what became of it."""

    execution_id: int
    event: str
    verdict: str
    from_status: str
    to_status: str
    at: datetime
    cause: str | None

    @property
    def moved(self) -> bool:
        """Whether it was taken."""
        return self.verdict == TransitionResult.OK


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it."""

    hosts: frozenset[int]  # that jobs were for
    jobs: Mapping[int, Job]
    executions: Mapping[int, Execution]
    timeline: tuple[Said, ...]
    counters: Mapping[tuple[int, str], int]
    left: frozenset[int]  # what still waits or runs, as far as the tables of that know
    failures: Mapping[int, str]
    blocks: frozenset[tuple[int, str]]
    journal: tuple[str, ...]  # as the hosts wrote it
    effects: tuple[Effect, ...]  # what its lines say
    before_approval: int  # how many lines it had when the approval was sent

    def told(self) -> Iterator[tuple[int, Iterator[Said]]]:
        """Give the timeline of one execution after the other."""
        return groupby(self.timeline, key=lambda said: said.execution_id)

    def command_type(self, execution_id: int) -> str:
        """Return what an execution runs."""
        return self.jobs[self.executions[execution_id].job_id].command_type

    @property
    def rescued(self) -> int:
        """How many runs were taken from a dead worker."""
        return sum(said.moved and said.cause == WORKER_LOST for said in self.timeline)

    @property
    def late(self) -> int:
        """How many reports of former attempts were refused."""
        return sum(said.verdict == TransitionResult.STALE_EPOCH for said in self.timeline)

    def seen(self, what: What) -> int:
        """How often something happened on the hosts."""
        return sum(effect.what is what for effect in self.effects)

    def outcomes(self, job_id: int) -> Counter[tuple[str, str | None]]:
        """Count the executions of a job by status and cause."""
        mine = (each for each in self.executions.values() if each.job_id == job_id)
        return Counter((each.status, each.cause) for each in mine)

    def retried(self, job_id: int) -> Counter[str]:
        """Count the attempts of a job that were followed by another, by cause."""
        return Counter(
            said.cause
            for said in self.timeline
            if said.moved and said.event == "retry" and said.cause is not None
            if self.executions[said.execution_id].job_id == job_id
        )


async def gather(
    connection: Connection, journal: Iterable[str], *, hosts: frozenset[int], before_approval: int
) -> Evidence:
    """Read everything; nobody may be writing by now."""
    lines = tuple(journal)
    return Evidence(
        hosts=hosts,
        jobs={row["id"]: Job(*row) for row in await connection.fetch(_JOBS)},
        executions={row["id"]: Execution(*row) for row in await connection.fetch(_EXECUTIONS)},
        timeline=tuple(Said(*row) for row in await connection.fetch(_TIMELINE)),
        counters={
            (row["job_id"], row["status"]): row["n"] for row in await connection.fetch(_COUNTS)
        },
        left=frozenset(row["execution_id"] for row in await connection.fetch(_LEFT)),
        failures={row["execution_id"]: row["status"] for row in await connection.fetch(_FAILURES)},
        blocks=frozenset(
            (row["host_id"], row["command_type"]) for row in await connection.fetch(_BLOCKS)
        ),
        journal=lines,
        effects=tuple(map(Effect.of, lines)),
        before_approval=before_approval,
    )
