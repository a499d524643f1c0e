"""What people and pages look at: jobs, executions, their timelines, and what holds them up.

Nothing here takes a lock or changes anything. Lists are read by key from where the last page ended,
so that a page costs the same wherever it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import asyncpg

from onward.core.lifecycles import EXECUTION
from onward.store import queries
from onward.store.database import Pool, answering

_SQL = queries.load("browse.sql")
# What is shown of a job and of an execution is written down once.
SQL = {
    name: text.replace("{job}", _SQL["of_job"])
    .replace("{execution}", _SQL["of_execution"])
    .replace("{wanted}", _SQL["wanted"])
    for name, text in _SQL.items()
}

Row = dict[str, object]

_JSON: Final = frozenset(
    {"params", "argv", "selector", "counts", "detail", "late_result", "executions", "hosts"}
)
LAST: Final = 2**63 - 1
# Written out, so that the planner can match an index.
_OPEN: Final = {None: "true", True: "j.finished_at IS NULL", False: "j.finished_at IS NOT NULL"}
_UNSUCCESSFUL: Final = EXECUTION.terminal - {EXECUTION.moves["succeed"].target}


class Wanted(NamedTuple):
    """Which executions of a job are asked for; of what is not said, any."""

    statuses: Sequence[str] = ()
    cause: str | None = None
    exit_code: int | None = None
    # The digest of what it printed; empty for nothing, one zero if nobody knows.
    output: bytes | None = None
    late: bool | None = None  # whether its host said something when it was too late
    host: str | None = None  # a part of its name


ALL: Final = Wanted()


async def job(pool: Pool, job_id: int) -> Row | None:
    """Return a job with its counters."""
    return await _one(pool, SQL["job"], job_id)


async def jobs(
    pool: Pool,
    *,
    before: int = LAST,
    limit: int,
    approval_state: str | None = None,
    command_type: str | None = None,
    external_id: str | None = None,
    requested_by: str | None = None,
    is_open: bool | None = None,
) -> list[Row]:
    """Return jobs, the newest first."""
    query = SQL["jobs"].replace("{finished}", _OPEN[is_open])
    wanted = (approval_state, command_type, external_id, requested_by)
    return await rows(pool, query, before, limit, *wanted)


async def waiting_jobs(pool: Pool, *, limit: int) -> list[Row]:
    """Return jobs that wait for somebody's approval, the oldest first."""
    return await rows(pool, SQL["waiting_jobs"], limit)


async def job_timeline(pool: Pool, job_id: int, *, after: int = 0, limit: int) -> list[Row]:
    """Return what was done with a job, oldest first."""
    return await rows(pool, SQL["job_timeline"], job_id, after, limit)


async def masked_of_command(
    pool: Pool, cmd_id: str, execution_id: int | None
) -> tuple[str, list[str]] | None:
    """Return the parameters of a command, in JSON, and which nobody is to see, if there are any."""
    with answering():
        row = await pool.fetchrow(SQL["masked_of_command"], cmd_id, execution_id)
    return None if row is None else (row["params"], row["masked"])


async def execution(pool: Pool, execution_id: int) -> Row | None:
    """Return one execution."""
    return await _one(pool, SQL["execution"], execution_id)


async def executions_of_job(
    pool: Pool, job_id: int, wanted: Wanted = ALL, *, after_host: int = 0, limit: int
) -> list[Row]:
    """Return the executions of a job in the order of their hosts."""
    return await rows(pool, _of_job(wanted), job_id, after_host, limit, *wanted[1:])


async def count_of_job(pool: Pool, job_id: int, wanted: Wanted = ALL) -> int:
    """Say how many executions of a job are wanted."""
    query = SQL["count"].replace("{query}", _of_job(wanted))
    with answering():
        return int(await pool.fetchval(query, job_id, 0, None, *wanted[1:]))


def _of_job(wanted: Wanted) -> str:
    failed = wanted.statuses and _UNSUCCESSFUL.issuperset(wanted.statuses)
    query = SQL["failures_of_job" if failed else "executions_of_job"]
    return query.replace("{statuses}", _in(wanted.statuses))


async def executions_of_host(
    pool: Pool, host_id: int, *, before: int = LAST, limit: int, statuses: Sequence[str] = ()
) -> list[Row]:
    """Return the executions of a host, the newest first."""
    query = SQL["executions_of_host"].replace("{statuses}", _in(statuses))
    return await rows(pool, query, host_id, before, limit)


async def execution_timeline(
    pool: Pool, execution_id: int, *, after: int = 0, limit: int
) -> list[Row]:
    """Return every event that was addressed to an execution with its verdict, oldest first."""
    return await rows(pool, SQL["execution_timeline"], execution_id, after, limit)


async def newest_events(pool: Pool, execution_id: int, *, limit: int) -> list[Row]:
    """Return the newest events that were addressed to an execution, oldest first."""
    return (await rows(pool, SQL["newest_events"], execution_id, limit))[::-1]


async def why(pool: Pool, execution_id: int, *, lost_after_s: float) -> Row | None:
    """Return everything that could hold an execution up."""
    return await _one(pool, SQL["why"], execution_id, lost_after_s)


async def workers(pool: Pool, *, lost_after_s: float, before: int = LAST, limit: int) -> list[Row]:
    """Return the workers of the last day, the newest first."""
    return await rows(pool, SQL["workers"], lost_after_s, before, limit)


async def gauges(pool: Pool, *, lost_after_s: float) -> Row:
    """Return how much of everything there is."""
    row = await _one(pool, SQL["gauges"], lost_after_s)
    assert row is not None  # noqa: S101 - counting always answers with one row
    return row


async def readiness(pool: Pool, *, lost_after_s: float, stuck_after_s: float) -> Row | None:
    """Return what there is to say about whether work gets done; `None` without our tables."""
    try:
        return await _one(pool, SQL["readiness"], lost_after_s, stuck_after_s)
    except asyncpg.SyntaxOrAccessError:
        return None


def _in(statuses: Iterable[str]) -> str:
    """Write a condition over statuses as literals, so that the planner can match an index."""
    known = {str(status) for status in EXECUTION.states}
    chosen = sorted(known.intersection(statuses))
    listed = ", ".join(f"'{status}'" for status in chosen)
    return f"e.status IN ({listed})" if chosen else "true"


async def _one(pool: Pool, query: str, *parameters: object) -> Row | None:
    with answering():
        row = await pool.fetchrow(query, *parameters)
    return None if row is None else _plain(row)


async def rows(pool: Pool, query: str, *parameters: object) -> list[Row]:
    """Return what a query finds, in plain values."""
    with answering():
        return [_plain(row) for row in await pool.fetch(query, *parameters)]


def _plain(row: asyncpg.Record) -> Row:
    return {
        name: json.loads(value) if name in _JSON and isinstance(value, str) else value
        for name, value in row.items()
    }
