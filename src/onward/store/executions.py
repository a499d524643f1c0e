"""Executions in PostgreSQL: claimed, settled, rescued, all by the guarded path."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import asyncpg

from onward.core.verdicts import Transition
from onward.store import logs, queries
from onward.store.database import Pool, answering
from onward.store.guard import Guard

SQL = queries.load("executions.sql")


class ExecutionState(NamedTuple):
    """Where an execution stands, as the store last saw it."""

    execution_id: int
    lifecycle: str
    status: str
    epoch: int
    version: int


class ExecutionEvent(NamedTuple):
    """Something that was said about an execution."""

    execution_id: int
    event: str
    epoch: int | None = None
    source: str = ""
    # JSON: delay_s, costs, cause, exit_code, error, output, worker_id, grace_s
    data: str | None = None


Answer = Transition[ExecutionState]

EXECUTIONS = Guard[int, ExecutionState](SQL["record"], ExecutionState)

_CLAIM = SQL["claim"].replace("{ids}", "$1")
_CLAIM_HEADS = SQL["claim"].replace("{ids}", f"ARRAY({SQL['heads']})")

# What PostgreSQL says when two workers want one host and the first wall is down, because the
# connection that holds the locks was cut.
_SECOND_WALL = asyncpg.UniqueViolationError

_EVENT = 8  # the column of `claim` that follows the answer of the guarded path


class Candidate(NamedTuple):
    """An execution that could run now, if its host is free."""

    execution_id: int
    host_id: int
    read_only: bool


class Claimed(NamedTuple):
    """An execution that this worker holds, and what it needs to know to run it."""

    execution_id: int
    epoch: int
    attempt: int
    retries: int
    timeout_s: float
    read_only: bool
    job_id: int
    host_id: int
    host_name: str
    address: str
    channel: str
    key_generation: int = 0


class Errand(NamedTuple):
    """What a job asks of each of its hosts."""

    job_id: int
    command_type: str
    params: str  # JSON
    max_retries: int
    max_concurrency: int | None
    trace: Mapping[str, str]  # which request the job comes from
    argv: Sequence[str] | None = None  # the arguments that its type fixed, if it did
    masked: Sequence[str] = ()  # the parameters that nobody is to see


class Overdue(NamedTuple):
    """A run whose deadline has passed."""

    execution_id: int
    epoch: int
    retries: int
    max_retries: int


async def candidates(pool: Pool, *, after_host: int, limit: int) -> list[Candidate]:
    """Find the oldest due execution of each free host, from the host after `after_host` on."""
    with answering():
        rows = await pool.fetch(SQL["candidates"], after_host, limit)
    return [Candidate(*row) for row in rows]


async def wanted(pool: Pool, execution_ids: Sequence[int]) -> list[Candidate]:
    """Find what is to be claimed on the hosts of these executions: the oldest that may run there.

    That need not be one of them. One that was named before its turn would overtake others.
    """
    with answering():
        rows = await pool.fetch(SQL["wanted"], execution_ids)
    return [Candidate(*row) for row in rows]


async def claim(
    pool: Pool, wanted: Sequence[int], *, worker_id: int, grace_s: float
) -> tuple[list[Claimed], list[int]]:
    """Claim what is still free; returns what is ours, and what a rule has blocked.

    Nothing is, if the second wall says that one of the hosts is not free after all.
    """
    try:
        with answering():
            rows = await pool.fetch(_CLAIM, wanted, worker_id, grace_s)
    except _SECOND_WALL:
        return [], []
    return _claimed(rows)


def _claimed(rows: Sequence[asyncpg.Record]) -> tuple[list[Claimed], list[int]]:
    claimed, blocked = [], []
    for row in rows:
        event, execution_id = row[_EVENT], row[_EVENT + 1]
        if not EXECUTIONS.judged((execution_id, event, None, "", None), row).changed:
            continue
        if event == "claim":
            claimed.append(Claimed(*row[_EVENT + 1 :]))
        else:
            blocked.append(execution_id)
    return claimed, blocked


async def errands(pool: Pool, job_ids: Sequence[int]) -> list[Errand]:
    """Return what these jobs ask of their hosts."""
    with answering():
        rows = await pool.fetch(SQL["errands"], job_ids)
    return [_errand(row) for row in rows]


def _errand(row: asyncpg.Record) -> Errand:
    argv = row["argv"]
    return Errand(*row)._replace(
        trace=json.loads(row["trace"]), argv=None if argv is None else json.loads(argv)
    )


async def report(
    pool: Pool, events: Sequence[ExecutionEvent], lines: Sequence[logs.NewLine]
) -> list[Answer]:
    """Record events together with what was printed before them: both are there, or neither."""
    with answering():
        async with pool.acquire() as connection:
            return await EXECUTIONS.record(connection, events, along=_printing(lines))


async def report_and_claim(
    pool: Pool,
    events: Sequence[ExecutionEvent],
    lines: Sequence[logs.NewLine],
    *,
    hosts: Sequence[int],
    worker_id: int,
    grace_s: float,
) -> list[Claimed]:
    """Record events as `report` does, and claim what is next on `hosts`, in one transaction.

    The hosts are held by this worker for itself, and what is claimed wants its host for itself.
    """
    try:
        with answering():
            async with pool.acquire() as connection, connection.transaction():
                await EXECUTIONS.record(connection, events, along=_printing(lines))
                rows = await connection.fetch(_CLAIM_HEADS, hosts, worker_id, grace_s)
    except _SECOND_WALL:
        await report(pool, events, lines)
        return []
    return _claimed(rows)[0]


def _printing(lines: Sequence[logs.NewLine]) -> tuple[str, Sequence[object]] | None:
    return (SQL["report"], tuple(zip(*lines, strict=True))) if lines else None


async def held_by(pool: Pool, worker_id: int, *, older_s: float) -> list[tuple[int, int]]:
    """Find what this worker claimed more than `older_s` ago, as pairs of id and epoch."""
    with answering():
        rows = await pool.fetch(SQL["held_by"], worker_id, older_s)
    return [(row["id"], row["epoch"]) for row in rows]


async def to_stop(pool: Pool, *, worker_id: int) -> list[tuple[int, int]]:
    """Find this worker's runs whose job was cancelled, as pairs of id and epoch."""
    with answering():
        return [(row["id"], row["epoch"]) for row in await pool.fetch(SQL["to_stop"], worker_id)]


async def overdue(pool: Pool, *, limit: int) -> list[Overdue]:
    """Find runs whose deadline has passed."""
    with answering():
        return [Overdue(*row) for row in await pool.fetch(SQL["overdue"], limit)]


async def unplanned(pool: Pool, *, limit: int) -> list[int]:
    """Find jobs that have something left to plan, and may be planned."""
    with answering():
        return [row["id"] for row in await pool.fetch(SQL["unplanned"], limit)]


async def rescue(pool: Pool, *, lost_after_s: float, limit: int) -> list[int]:
    """Queue again what was left by workers that have not breathed for `lost_after_s`."""
    with answering():
        rows = await pool.fetch(SQL["rescue"], lost_after_s, limit)
    return [row["id"] for row in rows if row["verdict"] == "OK"]
