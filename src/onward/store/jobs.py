"""Jobs in PostgreSQL: submitted once, approved once, planned within their limits."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from onward.core.selectors import Names, Selector, to_json, to_sql
from onward.errors import InvalidInput, JobConflict
from onward.store import queries
from onward.store.database import Pool, answering

SQL = queries.load("jobs.sql")

_SELECTOR_FROM = 8  # the first parameter of `submit` that belongs to the selector


Decision = Literal["APPROVED", "REJECTED"]


class NewJob(NamedTuple):
    """A job to be submitted; every field has been checked."""

    external_id: str
    command_type: str
    params: str  # JSON
    selector: Selector
    max_concurrency: int | None = None
    requested_by: str = ""


class Submitted(NamedTuple):
    """A job that is there, and whether it was there before."""

    job_id: int
    total: int
    approval_state: str | None
    version: int
    duplicate: bool


class Decided(NamedTuple):
    """What became of an approval or a rejection."""

    approval_state: str
    version: int
    decided: bool  # false: somebody or something was there before; this is how it stands


async def submit(pool: Pool, job: NewJob) -> Submitted:
    """Make a job with its executions, or find the one that this webhook made before."""
    condition, parameters = to_sql(job.selector, first=_SELECTOR_FROM)
    names = list(job.selector.names) if isinstance(job.selector, Names) else []
    selector = json.dumps(to_json(job.selector), ensure_ascii=False)
    with answering():
        made = await pool.fetchrow(
            SQL["submit"].replace("{chosen}", condition),
            job.external_id,
            job.command_type,
            job.params,
            selector,
            job.max_concurrency,
            job.requested_by,
            names,
            *parameters,
        )
        assert made is not None  # noqa: S101 - the query always answers with one row
        if made["id"] is not None:
            return Submitted(
                made["id"], made["total"], made["approval_state"], made["version"], duplicate=False
            )
        known = await pool.fetchrow(SQL["find_external"], job.external_id)
        if known is not None:
            _refuse_other(job, selector, dict(known))
            return Submitted(
                known["id"],
                known["total"],
                known["approval_state"],
                known["version"],
                duplicate=True,
            )
        types = await pool.fetch("SELECT name FROM command_types ORDER BY name")
    if job.command_type not in {name for (name,) in types}:
        known_types = ", ".join(name for (name,) in types)
        raise InvalidInput("command_type", f"{job.command_type!r} is not one of {known_types}")
    if made["missing"]:
        raise InvalidInput("selector", f"no such hosts: {', '.join(made['missing'])}")
    raise InvalidInput("selector", "no host matches it, so there would be nothing to do")


def _refuse_other(job: NewJob, selector: str, known: dict[str, object]) -> None:
    asked: dict[str, object] = {
        "command_type": job.command_type,
        "params": json.loads(job.params),
        "selector": json.loads(selector),
        "max_concurrency": job.max_concurrency,
    }
    for column in ("params", "selector"):
        known[column] = json.loads(str(known[column]))
    if other := [field for field, value in asked.items() if known[field] != value]:
        raise JobConflict(
            "external_id",
            f"{job.external_id!r} is job {known['id']}, but with another {' and '.join(other)}",
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
            row = await connection.fetchrow(SQL["decide"], job_id, version, state, by, reason)
            if row is None:
                row = await connection.fetchrow(
                    "SELECT approval_state, version FROM jobs WHERE id = $1", job_id
                )
                if row is None:
                    return None
                return Decided(row["approval_state"], row["version"], decided=False)
            if state == "APPROVED":
                await connection.execute(
                    "INSERT INTO outbox (topic, job_id) VALUES ('plan_job', $1)", job_id
                )
            else:
                await connection.fetch(SQL["cancel_waiting"], job_id, f"rejected by {by}")
            return Decided(row["approval_state"], row["version"], decided=True)


async def cancel(pool: Pool, job_id: int, *, by: str) -> bool:
    """Cancel what has not begun, and ask what runs to stop; false if that was done before."""
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            if await connection.fetchval(SQL["cancel"], job_id, by) is None:
                return False
            await connection.fetch(SQL["cancel_waiting"], job_id, f"cancelled by {by}")
            return True


async def finish_cancelling(pool: Pool, *, limit: int) -> None:
    """Cancel what came back to the queue of cancelled jobs, and close those that are done."""
    with answering():
        for (job_id,) in await pool.fetch(SQL["cancel_open"], limit):
            await pool.fetch(SQL["cancel_waiting"], job_id, "reaper")
            await pool.execute(SQL["close_cancel"], job_id)


async def pause(pool: Pool, job_id: int, *, paused: bool) -> bool:
    """Hold a job back from being planned and claimed, or let it go on; false if it was so."""
    with answering():
        return await pool.fetchval(SQL["pause"], job_id, paused) is not None


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
