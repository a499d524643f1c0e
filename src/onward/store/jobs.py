"""Jobs in PostgreSQL: submitted once, approved once, planned within their limits."""

from __future__ import annotations

import json
from typing import NamedTuple

from onward.core.selectors import Names, Selector, to_json, to_sql
from onward.errors import InvalidInput, JobConflict
from onward.store import queries
from onward.store.database import Connection, Pool, answering

SQL = queries.load("jobs.sql")

_SELECTOR_FROM = 8  # the first parameter of `submit` that belongs to the selector


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
    connection: Connection, job_id: int, *, version: int, state: str, by: str, reason: str
) -> Decided | None:
    """Approve or reject the plan of this version; `None` when there is no such job."""
    row = await connection.fetchrow(SQL["decide"], job_id, version, state, by, reason)
    if row is not None:
        if state == "APPROVED":
            await connection.execute(
                "INSERT INTO outbox (topic, job_id) VALUES ('plan_job', $1)", job_id
            )
        return Decided(row["approval_state"], row["version"], decided=True)
    row = await connection.fetchrow(
        "SELECT approval_state, version FROM jobs WHERE id = $1", job_id
    )
    return None if row is None else Decided(row["approval_state"], row["version"], decided=False)


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
