"""Jobs in PostgreSQL: submitted once, approved once, planned within their limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from onward.core.lifecycles import EXECUTION
from onward.core.selectors import Names, Selector, to_json, to_sql
from onward.errors import InvalidInput, JobConflict, PlanChanged
from onward.store import queries
from onward.store.database import Pool, answering

SQL = queries.load("jobs.sql")

_SUBMIT_FROM: Final = 10  # the first parameter of `submit` that belongs to the selector
_PREVIEW_FROM: Final = 4  # and of `preview`
_EVENTS: Final = {"APPROVED": "approve", "REJECTED": "reject"}

# What a retry takes up: whatever ended, and not as it was meant to.
RETRIED: Final = frozenset(
    str(EXECUTION.moves[event].target) for event in ("fail", "timeout", "block", "cancel")
)
FAILED: Final = frozenset(str(EXECUTION.moves[event].target) for event in ("fail", "timeout"))

_RETRIED = """
h.id IN (
    SELECT e.host_id FROM executions e
     WHERE e.job_id = ${job}
       AND e.status = ANY (${statuses}::text[])
       -- Its host has said since that it was done.
       AND e.late_result ->> 'event' IS DISTINCT FROM 'succeed')
"""

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


class Preview(NamedTuple):
    """What a job would do if it were submitted now. The lists may be cut short, the counts not."""

    needs_approval: bool
    total: int
    blocked: int
    busy: int
    digest: str
    runs: list[dict[str, object]]
    blocks: list[dict[str, object]]
    busy_hosts: list[dict[str, object]]


class _Asked(NamedTuple):
    """A job in the words of SQL: which hosts, and what to remember of the question."""

    condition: str
    parameters: Sequence[object]
    names: list[str]
    selector: str  # JSON
    retry_of: int | None = None


async def submit(pool: Pool, job: NewJob) -> Submitted:
    """Make a job with its executions, or find the one that this webhook made before."""
    condition, parameters = to_sql(job.selector, first=_SUBMIT_FROM)
    return await _submit(
        pool, job, _Asked(condition, parameters, _names(job.selector), _written(job.selector))
    )


async def retry(
    pool: Pool, job: NewJob, *, of: int, statuses: Sequence[str], selector: str
) -> Submitted:
    """Make a job of what another left undone, except where a late result says that it was done."""
    condition = _RETRIED.format(job=_SUBMIT_FROM, statuses=_SUBMIT_FROM + 1)
    return await _submit(pool, job, _Asked(condition, (of, statuses), [], selector, of))


async def _submit(pool: Pool, job: NewJob, asked: _Asked) -> Submitted:
    query = SQL["submit"].replace("{digest}", SQL["digest"])
    with answering():
        made = await pool.fetchrow(
            query.replace("{chosen}", asked.condition),
            job.external_id,
            job.command_type,
            job.params,
            asked.selector,
            job.max_concurrency,
            job.requested_by,
            asked.names,
            job.digest,
            asked.retry_of,
            *asked.parameters,
        )
        assert made is not None  # noqa: S101 - the query always answers with one row
        if made["id"] is not None:
            return Submitted(
                made["id"], made["total"], made["approval_state"], made["version"], duplicate=False
            )
        known = await pool.fetchrow(SQL["find_external"], job.external_id)
    if known is not None:
        _refuse_other(job, asked.selector, known["id"], json.loads(known["asked"]))
        return Submitted(
            known["id"], known["total"], known["approval_state"], known["version"], duplicate=True
        )
    await _refuse_unknown_type(pool, job.command_type)
    _refuse_no_hosts(made["missing"], made["chosen"])
    raise PlanChanged("The fleet has changed since this plan was seen: look at the plan again.")


async def preview(pool: Pool, command_type: str, selector: Selector, *, named: int) -> Preview:
    """Say what a job would do, and name up to `named` hosts of each kind."""
    condition, parameters = to_sql(selector, first=_PREVIEW_FROM)
    query = SQL["preview"].replace("{digest}", SQL["digest"]).replace("{chosen}", condition)
    with answering():
        row = await pool.fetchrow(query, _names(selector), command_type, named, *parameters)
    assert row is not None  # noqa: S101 - counting always answers with one row
    if row["needs_approval"] is None:
        await _refuse_unknown_type(pool, command_type)
    _refuse_no_hosts(row["missing"], row["total"])
    return Preview(*row[:5], *(json.loads(found) for found in row[5:8]))


def _names(selector: Selector) -> list[str]:
    return list(selector.names) if isinstance(selector, Names) else []


def _written(selector: Selector) -> str:
    return json.dumps(to_json(selector), ensure_ascii=False)


async def _refuse_unknown_type(pool: Pool, command_type: str) -> None:
    with answering():
        types = await pool.fetch("SELECT name FROM command_types ORDER BY name")
    if command_type not in {name for (name,) in types}:
        known_types = ", ".join(name for (name,) in types)
        raise InvalidInput("command_type", f"{command_type!r} is not one of {known_types}")


def _refuse_no_hosts(missing: Sequence[str], chosen: int) -> None:
    if missing:
        raise InvalidInput("selector", f"no such hosts: {', '.join(missing)}")
    if not chosen:
        raise InvalidInput("selector", "no host matches it, so there would be nothing to do")


def _refuse_other(job: NewJob, selector: str, job_id: int, known: dict[str, object]) -> None:
    asked: dict[str, object] = {
        "command_type": job.command_type,
        "params": json.loads(job.params),
        "selector": json.loads(selector),
        "max_concurrency": job.max_concurrency,
    }
    if other := [field for field, value in asked.items() if known[field] != value]:
        raise JobConflict(
            "external_id",
            f"{job.external_id!r} is job {job_id}, but with another {' and '.join(other)}",
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
                await connection.fetch(SQL["cancel_waiting"], job_id, f"rejected by {by}")
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


async def cancel(pool: Pool, job_id: int, *, by: str, reason: str = "") -> bool:
    """Cancel what has not begun, and ask what runs to stop.

    False if that was done before, or if it is too late because the job has finished.
    """
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            if await connection.fetchval(SQL["cancel"], job_id, by, reason) is None:
                return False
            await connection.fetch(SQL["cancel_waiting"], job_id, f"cancelled by {by}")
            return True


async def finish_cancelling(pool: Pool, *, limit: int) -> None:
    """Cancel what came back to the queue of cancelled jobs, and close those that are done."""
    with answering():
        for (job_id,) in await pool.fetch(SQL["cancel_open"], limit):
            await pool.fetch(SQL["cancel_waiting"], job_id, "reaper")
            await pool.execute(SQL["close_cancel"], job_id)


async def pause(pool: Pool, job_id: int, *, paused: bool, by: str) -> bool:
    """Hold a job back from being planned and claimed, or let it go on; false if it was so."""
    with answering():
        return await pool.fetchval(SQL["pause"], job_id, paused, by) is not None


async def plan(pool: Pool, job_id: int, *, batch: int) -> int:
    """Queue the next executions of a job, as many as it may have; returns how many."""
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            if await connection.fetchval(SQL["lock_to_plan"], job_id) is None:
                return 0
            return len(await connection.fetch(SQL["plan"], job_id, batch))


async def counts(pool: Pool, job_id: int) -> dict[str, int]:
    """How many executions of a job are in each status."""
    with answering():
        rows = await pool.fetch(SQL["counts"], job_id)
    return {row["status"]: row["n"] for row in rows if row["n"]}


async def sum_counts(pool: Pool, *, above: int) -> None:
    """Sum up the counters of jobs that have more than `above` changes."""
    with answering():
        await pool.execute(SQL["sum_counts"], above)
