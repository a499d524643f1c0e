"""Jobs in PostgreSQL: submitted once, approved once, planned within their limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import asyncpg

from onward.core.lifecycles import EXECUTION
from onward.core.selectors import Selector, to_json, to_sql
from onward.errors import JobConflict, PlanChanged
from onward.store import plans, queries
from onward.store.database import Connection, Pool, answering
from onward.store.plans import Template

_SQL = queries.load("jobs.sql")
SQL = {name: text.replace("{may_move}", _SQL["may_move"]) for name, text in _SQL.items()}

_SUBMIT_FROM: Final = 13  # the first parameter of `submit` that belongs to the selector
_CANCEL_BATCH: Final = 5_000  # executions that one statement cancels
_EVENTS: Final = {"APPROVED": "approve", "REJECTED": "reject"}

# What a retry takes up: whatever ended, and not as it was meant to.
RETRIED: Final = frozenset(
    str(EXECUTION.moves[event].target) for event in ("fail", "timeout", "block", "cancel")
)
FAILED: Final = frozenset(str(EXECUTION.moves[event].target) for event in ("fail", "timeout"))

Decision = Literal["APPROVED", "REJECTED"]


class NewJob(NamedTuple):
    """A job to be submitted; every field has been checked."""

    external_id: str
    command_type: str
    params: str  # JSON
    selector: Selector
    max_concurrency: int | None = None
    requested_by: str = ""
    digest: str | None = None  # of the plan that was seen; None takes the fleet as it is
    trace: str = "{}"  # JSON: which request made it, and what that was part of
    template: Template = Template()  # of its type, as far as is known; the parameters suit it


# Raises InvalidInput if the parameters of a job do not suit the template of its type.
Suits = Callable[[NewJob], None]


class Submitted(NamedTuple):
    """A job that is there, and whether it was there before."""

    job_id: int
    total: int
    approval_state: str | None
    version: int
    duplicate: bool


class Decided(NamedTuple):
    """What became of an approval or a rejection."""

    approval_state: str | None
    version: int
    decided: bool  # false: somebody or something was there before; this is how it stands
    decided_by: str | None = None
    cancelled: bool = False
    had_a_hand: bool = False  # who asked for the job, or changed it, may not decide about it


class Edited(NamedTuple):
    """What became of a change of a plan."""

    version: int
    edited: bool  # false: it has another version, or waits for no approval; this is how it stands
    approval_state: str | None
    cancelled: bool


class Paused(NamedTuple):
    """What became of holding a job back, or of letting it go on."""

    version: int
    paused: bool
    changed: bool  # false: it has another version, or was so before, or is over


class Cancellation(StrEnum):
    """What became of the wish to cancel a job."""

    CANCELLED = "CANCELLED"  # what waited has ended; what runs is asked to stop
    CANCELLED_BEFORE = "CANCELLED_BEFORE"
    TOO_LATE = "TOO_LATE"  # it has finished
    UNKNOWN_JOB = "UNKNOWN_JOB"


class _Asked(NamedTuple):
    """A job in the words of SQL: which hosts, and what to remember of the question."""

    condition: str
    parameters: Sequence[object]
    names: list[str]
    selector: str  # JSON
    retry_of: int | None = None


class _NotMade(NamedTuple):
    """Why the statement made no job, from what it has seen itself."""

    type_known: bool
    template: Template
    chosen: int
    missing: Sequence[str]
    digest: str


async def submit(pool: Pool, job: NewJob, *, suits: Suits | None = None) -> Submitted:
    """Make a job with its executions, or find the one that this webhook made before.

    If its type says something else about its parameters than the job expects, `suits` is asked.
    """
    condition, parameters = to_sql(job.selector, first=_SUBMIT_FROM)
    written = json.dumps(to_json(job.selector), ensure_ascii=False)
    asked = _Asked(condition, parameters, plans.names_of(job.selector), written)
    while True:
        made = await _submit(pool, job, asked)
        if isinstance(made, Submitted):
            return made
        if not made.type_known:
            raise await plans.unknown_type(pool, job.command_type)
        if made.template == job.template:
            break
        job = job._replace(template=made.template)
        if suits is not None:
            suits(job)
    plans.refuse_no_hosts(made.missing, made.chosen)
    raise PlanChanged(made.digest)


async def retry(pool: Pool, job: NewJob, *, of: int, statuses: Sequence[str]) -> Submitted | None:
    """Make a job of what another left undone, except where a late result says that it was done.

    `None` if nothing is left of it; hosts that have been disabled since are left alone, too.
    """
    written = json.dumps({"failed_of": of, "statuses": list(statuses)})
    made = await _submit(pool, job, _Asked(SQL["undone"], (of, statuses), [], written, of))
    if isinstance(made, Submitted):
        return made
    if not made.type_known:
        raise await plans.unknown_type(pool, job.command_type)
    return None


_SUBMIT: Final = (
    SQL["submit"].replace("{digest}", plans.DIGEST).replace("{missing}", plans.missing("$7"))
)


async def _submit(pool: Pool, job: NewJob, asked: _Asked) -> Submitted | _NotMade:
    body = (job.command_type, job.params, asked.selector, job.max_concurrency)
    with answering():
        made = await pool.fetchrow(
            _SUBMIT.replace("{chosen}", asked.condition),
            job.external_id,
            *body,
            job.requested_by,
            asked.names,
            job.digest,
            asked.retry_of,
            job.trace,
            *job.template,
            *asked.parameters,
        )
        assert made is not None  # noqa: S101 - the query always answers with one row
        if made["id"] is not None:
            return _submitted(made, duplicate=False)
        known = await pool.fetchrow(SQL["find_external"], job.external_id, *body)
    if known is None:
        template = plans.template_of(made)
        return _NotMade(
            made["type_known"], template, made["chosen"], made["missing"], made["digest"]
        )
    if other := known["other"]:
        raise JobConflict(
            "external_id",
            f"{job.external_id!r} is job {known['id']}, but with another {' and '.join(other)}",
        )
    return _submitted(known, duplicate=True)


def _submitted(row: asyncpg.Record, *, duplicate: bool) -> Submitted:
    return Submitted(
        row["id"], row["total"], row["approval_state"], row["version"], duplicate=duplicate
    )


async def decide(
    pool: Pool, job_id: int, *, version: int, state: Decision, by: str, reason: str
) -> Decided | None:
    """Approve or reject the plan of this version; `None` when there is no such job.

    What follows from the decision is part of it: an approved job is to be planned, and what a
    rejected one has waiting is cancelled.
    """
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                SQL["decide"], job_id, version, state, by, reason, _EVENTS[state]
            )
            if row is None:
                row = await connection.fetchrow(SQL["standing"], job_id, by)
                return None if row is None else Decided(*row)
            if state == "REJECTED":
                await _cancel_waiting(connection, job_id, f"rejected by {by}")
            return Decided(row["approval_state"], row["version"], decided=True, decided_by=by)


async def edit(
    pool: Pool,
    job_id: int,
    *,
    version: int,
    by: str,
    params: str | None = None,
    max_concurrency: int | Literal["keep"] | None = "keep",
) -> Edited | None:
    """Change the plan of this version while it waits for approval; `None`: there is no such job."""
    keep = max_concurrency == "keep"
    limit = None if keep else max_concurrency
    with answering():
        row = await pool.fetchrow(SQL["edit"], job_id, version, params, not keep, limit, by)
        if row is not None:
            return Edited(row["version"], True, "WAIT_APPROVAL", False)  # noqa: FBT003 - fields
        row = await pool.fetchrow(SQL["standing"], job_id, by)
    if row is None:
        return None
    return Edited(row["version"], False, row["approval_state"], row["cancelled"])  # noqa: FBT003


async def cancel(pool: Pool, job_id: int, *, by: str, reason: str = "") -> Cancellation:
    """Cancel what has not begun, and ask what runs to stop; it may finish first."""
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(SQL["lock"], job_id)
            if row is None:
                return Cancellation.UNKNOWN_JOB
            if row["cancelled"]:
                return Cancellation.CANCELLED_BEFORE
            ended = await _cancel_waiting(connection, job_id, f"cancelled by {by}")
            done = await connection.fetchval(SQL["cancel"], job_id, by, reason, ended)
            return Cancellation.TOO_LATE if done is None else Cancellation.CANCELLED


async def finish_cancelling(pool: Pool, *, limit: int) -> None:
    """Cancel what came back to the queue of cancelled jobs, and close those that are done."""
    with answering():
        for (job_id,) in await pool.fetch(SQL["cancel_open"], limit):
            await _cancel_waiting(pool, job_id, "reaper")
            await pool.execute(SQL["close_cancel"], job_id)


async def _cancel_waiting(where: Pool | Connection, job_id: int, source: str) -> int:
    """Cancel what has not begun, batch by batch; returns how many."""
    cancelled = 0
    after_host: int | None = 0
    while after_host is not None:
        row = await where.fetchrow(SQL["cancel_waiting"], job_id, source, after_host, _CANCEL_BATCH)
        assert row is not None  # noqa: S101 - counting always answers with one row
        after_host, ended = row
        cancelled += ended
    return cancelled


async def pause(pool: Pool, job_id: int, *, version: int, paused: bool, by: str) -> Paused | None:
    """Hold the job of this version back from being planned and claimed, or let it go on.

    `None` when there is no such job.
    """
    with answering():
        now = await pool.fetchval(SQL["pause"], job_id, paused, by, version)
        if now is not None:
            return Paused(now, paused=paused, changed=True)
        row = await pool.fetchrow(SQL["held_back"], job_id)
    return None if row is None else Paused(row["version"], paused=row["paused"], changed=False)


async def plan(pool: Pool, job_id: int, *, batch: int) -> list[int]:
    """Queue the next executions of a job, as many as it may have; returns which."""
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            if await connection.fetchval(SQL["lock_to_plan"], job_id) is None:
                return []
            return [row["id"] for row in await connection.fetch(SQL["plan"], job_id, batch)]


async def counts(pool: Pool, job_id: int) -> dict[str, int]:
    """How many executions of a job are in each status."""
    with answering():
        rows = await pool.fetch(SQL["counts"], job_id)
    return {row["status"]: row["n"] for row in rows if row["n"]}


async def finish(pool: Pool, *, limit: int) -> None:
    """Note of jobs of which nothing is open any more when that was; up to `limit` of them."""
    with answering():
        await pool.execute(SQL["finish"], limit)


async def sum_counts(pool: Pool, *, above: int) -> None:
    """Sum up the counters of open jobs that have more than `above` changes."""
    with answering():
        await pool.execute(SQL["sum_counts"], above)
