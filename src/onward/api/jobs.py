"""Jobs as they are looked at: one, many, what was done with each, and the plan to be approved."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query, Response
from pydantic import BaseModel, Field

from onward.api import conditional, paging
from onward.api.executions import CountedExecutions, WantedExecutions, execution_page
from onward.api.intake import Named, PlannedHosts, hosts_of
from onward.api.paging import Counting, Cursor, Id, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Services, Serving
from onward.fleet.masking import masked_params
from onward.fleet.standing import Deed, JobState, allowed, job_state
from onward.store import browse, inputs, plans
from onward.store.browse import Row

UNKNOWN: Final = {404: problem_response("There is no such job")}
_LIST: Final = "jobs"

jobs = router("/jobs", "jobs")


class Job(BaseModel):
    """A job, and how many of its executions are where."""

    job_id: int = Field(examples=[17])
    external_id: str = Field(examples=["deploy-2026-11-16-01"])
    state: JobState
    allowed: list[Deed] = Field(description="What may be done with it now, by somebody who may.")
    command_type: str = Field(examples=["RESTART_SERVICE"])
    params: dict[str, Any] = Field(
        description="What is masked is shown as `***`.", examples=[{"service": "nginx"}]
    )
    argv: list[str] | None = Field(
        description="The arguments that its type fixed when it was made.",
        examples=[["systemctl", "restart", "{service}"]],
    )
    masked: list[str] = Field(
        description="The parameters that nobody is to see.", examples=[["token"]]
    )
    selector: dict[str, Any] = Field(examples=[{"expression": "role=web"}])
    max_concurrency: int | None = Field(examples=[50])
    read_only: bool
    timeout_s: float = Field(examples=[60.0])
    max_retries: int = Field(examples=[3])
    approval_state: str | None = Field(examples=["APPROVED"])
    requested_by: str = Field(examples=["ann"])
    edited_by: list[str]
    decided_by: str | None = Field(examples=["bob"])
    decided_at: datetime | None
    decision_reason: str | None = Field(examples=["seen in staging"])
    paused_at: datetime | None
    cancelled_at: datetime | None
    cancelled_by: str | None
    retry_of: int | None = Field(description="The job whose failed ones it runs again.")
    request_id: str | None = Field(
        description="The request that made it; it is in the logs of whatever came of it."
    )
    total: int = Field(examples=[1_000])
    counts: dict[str, int] = Field(
        description="How many of its executions are in each status.", examples=[{"SUCCESS": 1_000}]
    )
    version: int = Field(examples=[2])
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = Field(
        description="When the last of it ended; it is noted within a second or two."
    )


class JobPage(BaseModel):
    """A page of jobs, the newest first."""

    items: list[Job]
    next_cursor: str | None


class JobPlan(PlannedHosts):
    """What a job has not begun yet, as it would go now, and the job itself."""

    job: Job


class JobEvent(BaseModel):
    """Something that was done with a job."""

    at: datetime
    event: str = Field(examples=["approve"])
    by: str = Field(examples=["bob"])
    detail: dict[str, Any] | None = Field(examples=[{"reason": "seen in staging"}])


class JobTimeline(BaseModel):
    """What was done with a job, oldest first."""

    items: list[JobEvent]
    next_cursor: str | None


@jobs.get("", **needs(Permission.READ))
async def list_jobs(
    services: Serving,
    limit: Limit = 100,
    cursor: Cursor = None,
    approval_state: Annotated[
        Literal["WAIT_APPROVAL", "APPROVED", "REJECTED"] | None, Query()
    ] = None,
    command_type: Annotated[str | None, Query(max_length=255)] = None,
    external_id: Annotated[str | None, Query(max_length=255)] = None,
    requested_by: Annotated[str | None, Query(max_length=255)] = None,
    is_open: Annotated[
        bool | None, Query(alias="open", description="Only those that have not finished, or have.")
    ] = None,
) -> JobPage:
    """List jobs, the newest first."""
    position = paging.decode_ids(_LIST, cursor, length=1)
    found = await browse.jobs(
        services.pool,
        before=position[0] if position else browse.LAST,
        limit=limit + 1,
        approval_state=approval_state,
        command_type=_stored("command_type", command_type),
        external_id=_stored("external_id", external_id),
        requested_by=_stored("requested_by", requested_by),
        is_open=is_open,
    )
    page = found[:limit]
    return JobPage(
        items=[shown(row) for row in page],
        next_cursor=(
            paging.encode(_LIST, [_whole(page[-1], "job_id")]) if len(found) > limit else None
        ),
    )


@jobs.get("/{job_id}", **needs(Permission.READ, responses=UNKNOWN))
async def get_job(job_id: Id, response: Response, services: Serving) -> Job:
    """Return a job. Its ETag is the version that an approval names.

    The counters move without the version, so the answer is never a 304.
    """
    return await answer(response, services, job_id)


@jobs.get("/{job_id}/plan", **needs(Permission.READ, responses=UNKNOWN))
async def get_job_plan(
    job_id: Id, response: Response, services: Serving, named: Named = 100
) -> JobPlan:
    """Say what of a job would run now, what a rule blocks, and which hosts are busy.

    This is what an approver looks at; the ETag is the job's, and an approval names it.
    """
    # First the job: whatever is changed while the plan is looked at has another version.
    job = await answer(response, services, job_id)
    planned = await plans.of_job(services.pool, job_id, named=named)
    return JobPlan.model_validate({**hosts_of(planned), "job": job})


@jobs.get("/{job_id}/timeline", **needs(Permission.READ, responses=UNKNOWN))
async def get_job_timeline(
    job_id: Id, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> JobTimeline:
    """Return who did what with a job, and why."""
    await row_of(services, job_id)
    kind = f"timeline of job {job_id}"
    position = paging.decode_ids(kind, cursor, length=1)
    found = await browse.job_timeline(
        services.pool, job_id, after=position[0] if position else 0, limit=limit + 1
    )
    page = found[:limit]
    return JobTimeline(
        items=[JobEvent.model_validate(row) for row in page],
        next_cursor=paging.encode(kind, [_whole(page[-1], "seq")]) if len(found) > limit else None,
    )


@jobs.get(
    "/{job_id}/executions",
    response_model_exclude_unset=True,
    **needs(Permission.READ, responses=UNKNOWN),
)
async def list_executions(
    job_id: Id,
    services: Serving,
    wanted: WantedExecutions,
    limit: Limit = 100,
    cursor: Cursor = None,
    *,
    count: Counting = False,
) -> CountedExecutions:
    """List the executions of a job in the order of their hosts."""
    await row_of(services, job_id)
    kind = f"executions of job {job_id}"
    position = paging.decode_ids(kind, cursor, length=1)
    found = await browse.executions_of_job(
        services.pool,
        job_id,
        wanted,
        after_host=position[0] if position else 0,
        limit=limit + 1,
    )
    page = dict(execution_page(found, limit, kind=kind, key="host_id"))
    if count:
        page["count"] = await browse.count_of_job(services.pool, job_id, wanted)
    return CountedExecutions(**page)


async def answer(response: Response, services: Services, job_id: int) -> Job:
    """Return a job as it is now, with its version as the answer's ETag."""
    row = await row_of(services, job_id)
    response.headers["ETag"] = conditional.etag(_whole(row, "version"))
    return shown(row)


async def row_of(services: Services, job_id: int) -> Row:
    """Return what is stored of a job, or say that there is none."""
    row = await browse.job(services.pool, job_id)
    if row is None:
        raise unknown()
    return row


def shown(row: Row) -> Job:
    """Return a job in the words of the API, without what nobody is to see."""
    job = Job.model_validate({**row, "state": job_state(row), "allowed": allowed(row)})
    job.params = dict(masked_params(job.params, job.masked))
    return job


def unknown() -> Problem:
    """Make the answer to a question about a job that there is not."""
    return Problem(404, "unknown-job", "There is no such job")


def _whole(row: Row, name: str) -> int:
    value = row[name]
    assert isinstance(value, int)  # noqa: S101 - a column of integers
    return value


def _stored(field: str, value: str | None) -> str | None:
    return None if value is None else inputs.text(field, value)
