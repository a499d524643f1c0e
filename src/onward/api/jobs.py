"""Jobs: looked at, decided about, changed, cancelled, held, and run again where they failed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from onward.api import conditional, paging
from onward.api.executions import (
    ExecutionPage,
    StatusFilter,
    checked_statuses,
    execution_page,
)
from onward.api.intake import Accepted, MaxConcurrency
from onward.api.models import Model, Name, Text
from onward.api.paging import Cursor, Id, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Calling, Services, Serving
from onward.fleet.retry import RetryOutcome, retry_failed
from onward.fleet.standing import JobState, job_state
from onward.fleet.submit import checked_limit
from onward.store import browse, inputs
from onward.store import jobs as store
from onward.store.browse import Row
from onward.store.jobs import Decision

_LIST: Final = "jobs"
_TIMELINE: Final = "job timeline"

_UNKNOWN = {404: problem_response("There is no such job")}
_GUARDED = {
    **_UNKNOWN,
    409: problem_response("The job stands otherwise; the answer says how"),
    412: problem_response("It is no longer the version that was seen"),
    428: problem_response("If-Match is missing"),
}

jobs = router("/jobs", "jobs")


class Job(BaseModel):
    """A job, and how many of its executions are where."""

    job_id: int
    external_id: str
    state: JobState
    command_type: str
    params: dict[str, Any]
    selector: dict[str, Any]
    max_concurrency: int | None
    read_only: bool
    timeout_s: float
    max_retries: int
    approval_state: str | None
    requested_by: str
    edited_by: list[str]
    decided_by: str | None
    decided_at: datetime | None
    decision_reason: str | None
    paused_at: datetime | None
    cancelled_at: datetime | None
    cancelled_by: str | None
    retry_of: int | None
    total: int
    counts: dict[str, int] = Field(examples=[{"SUCCESS": 1_000}])
    version: int
    created_at: datetime
    updated_at: datetime


class JobPage(BaseModel):
    """A page of jobs, the newest first."""

    items: list[Job]
    next_cursor: str | None


class JobEvent(BaseModel):
    """Something that was done with a job."""

    at: datetime
    event: str
    by: str
    detail: dict[str, Any] | None


class JobTimeline(BaseModel):
    """What was done with a job, oldest first."""

    items: list[JobEvent]
    next_cursor: str | None


class Why(Model):
    """The reason that somebody gives for what they do."""

    reason: Text = Field(default="", examples=["seen in staging"])


class Edit(Model):
    """What is to be changed of a plan; what is not named stays."""

    params: dict[str, Any] | None = None
    max_concurrency: MaxConcurrency = None


class Retry(Model):
    """What is to be run again."""

    external_id: Name | None = None
    statuses: list[str] = Field(
        default_factory=lambda: sorted(store.FAILED), min_length=1, max_length=8
    )


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
) -> JobPage:
    """List jobs, the newest first."""
    position = paging.decode_ids(_LIST, cursor, length=1)
    found = await browse.jobs(
        services.pool,
        limit=limit + 1,
        approval_state=approval_state,
        command_type=_stored("command_type", command_type),
        external_id=_stored("external_id", external_id),
        **({"before": position[0]} if position else {}),
    )
    page = found[:limit]
    return JobPage(
        items=[_job(row) for row in page],
        next_cursor=(
            paging.encode(_LIST, [_id(page[-1], "job_id")]) if len(found) > limit else None
        ),
    )


@jobs.get("/{job_id}", **needs(Permission.READ, responses=_UNKNOWN))
async def get_job(job_id: Id, response: Response, services: Serving) -> Job:
    """Return a job. Its ETag is the version that an approval names.

    The counters move without the version, so the answer is never a 304.
    """
    row = await _row(services, job_id)
    response.headers["ETag"] = conditional.etag(_id(row, "version"))
    return _job(row)


@jobs.get("/{job_id}/timeline", **needs(Permission.READ, responses=_UNKNOWN))
async def get_job_timeline(
    job_id: Id, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> JobTimeline:
    """Return who did what with a job, and why."""
    await _row(services, job_id)
    position = paging.decode_ids(_TIMELINE, cursor, length=1)
    found = await browse.job_timeline(
        services.pool, job_id, after=position[0] if position else 0, limit=limit + 1
    )
    page = found[:limit]
    return JobTimeline(
        items=[JobEvent.model_validate(row) for row in page],
        next_cursor=(
            paging.encode(_TIMELINE, [_id(page[-1], "seq")]) if len(found) > limit else None
        ),
    )


@jobs.get("/{job_id}/executions", **needs(Permission.READ, responses=_UNKNOWN))
async def list_executions(
    job_id: Id,
    services: Serving,
    limit: Limit = 100,
    cursor: Cursor = None,
    status: StatusFilter = None,
) -> ExecutionPage:
    """List the executions of a job in the order of their hosts."""
    await _row(services, job_id)
    position = paging.decode_ids(f"executions of job {job_id}", cursor, length=1)
    found = await browse.executions_of_job(
        services.pool,
        job_id,
        after_host=position[0] if position else 0,
        limit=limit + 1,
        statuses=checked_statuses(status),
    )
    return execution_page(found, limit, f"executions of job {job_id}", "host_id")


@jobs.post("/{job_id}/approve", **needs(Permission.APPROVE, responses=_GUARDED))
async def approve_job(
    job_id: Id,
    request: Request,
    response: Response,
    caller: Calling,
    services: Serving,
    why: Why | None = None,
) -> Job:
    """Approve the plan that was seen: its version goes in `If-Match`. Not one's own."""
    return await _decide(request, response, services, job_id, "APPROVED", caller.person, why)


@jobs.post("/{job_id}/reject", **needs(Permission.APPROVE, responses=_GUARDED))
async def reject_job(
    job_id: Id,
    request: Request,
    response: Response,
    caller: Calling,
    services: Serving,
    why: Why | None = None,
) -> Job:
    """Reject the plan that was seen; what has not begun is cancelled."""
    return await _decide(request, response, services, job_id, "REJECTED", caller.person, why)


@jobs.patch("/{job_id}", **needs(Permission.RUN, responses=_GUARDED))
async def edit_job(
    job_id: Id,
    wanted: Edit,
    request: Request,
    response: Response,
    caller: Calling,
    services: Serving,
) -> Job:
    """Change a plan while it waits for approval. Whoever changes it cannot approve it."""
    version = conditional.if_match(request, what="job")
    limit: int | Literal["keep"] | None = "keep"
    if "max_concurrency" in wanted.model_fields_set:
        limit = checked_limit(wanted.max_concurrency)
    edited = await store.edit(
        services.pool,
        job_id,
        version=version,
        by=caller.person,
        params=None
        if wanted.params is None
        else inputs.json_object(
            "params", wanted.params, max_bytes=services.settings.payload_max_bytes
        ),
        max_concurrency=limit,
    )
    if edited is None:
        raise _unknown()
    if not edited.edited:
        if edited.approval_state == "WAIT_APPROVAL" and not edited.cancelled:
            raise conditional.stale(edited.version)
        raise await _stands(services, job_id, "A plan is changed only while it waits for approval")
    return await _answer(response, services, job_id)


@jobs.post("/{job_id}/cancel", **needs(Permission.RUN, responses=_UNKNOWN))
async def cancel_job(
    job_id: Id, response: Response, caller: Calling, services: Serving, why: Why | None = None
) -> Job:
    """Cancel what has not begun, and ask what runs to stop. It may have finished first."""
    reason = why.reason if why else ""
    if not await store.cancel(services.pool, job_id, by=caller.person, reason=reason):
        row = await _row(services, job_id)
        if row["cancelled_at"] is None:
            raise await _stands(services, job_id, "Too late: the job has finished")
    return await _answer(response, services, job_id)


@jobs.post("/{job_id}/pause", **needs(Permission.RUN, responses=_UNKNOWN))
async def pause_job(job_id: Id, response: Response, caller: Calling, services: Serving) -> Job:
    """Begin nothing more of a job until it is resumed; what runs goes on."""
    return await _pause(response, services, job_id, caller.person, paused=True)


@jobs.post("/{job_id}/resume", **needs(Permission.RUN, responses=_UNKNOWN))
async def resume_job(job_id: Id, response: Response, caller: Calling, services: Serving) -> Job:
    """Let a job go on."""
    return await _pause(response, services, job_id, caller.person, paused=False)


@jobs.post(
    "/{job_id}/retry",
    status_code=202,
    **needs(
        Permission.RUN,
        responses={**_UNKNOWN, 409: problem_response("The job has not finished yet")},
    ),
)
async def retry_job(
    job_id: Id,
    response: Response,
    caller: Calling,
    services: Serving,
    wanted: Retry | None = None,
) -> Accepted:
    """Make a new job of what failed, and leave alone what turned out to have succeeded."""
    wanted = wanted or Retry()
    retried = await retry_failed(
        services.pool,
        job_id,
        by=caller.person,
        external_id=wanted.external_id,
        statuses=wanted.statuses,
    )
    if retried.outcome is RetryOutcome.UNKNOWN_JOB:
        raise _unknown()
    if retried.made is None:
        raise await _stands(services, job_id, "More of the job may fail: retry when it has ended")
    row = await _row(services, retried.made.job_id)
    response.status_code = 200 if retried.made.duplicate else 202
    response.headers["Location"] = f"/jobs/{retried.made.job_id}"
    response.headers["ETag"] = conditional.etag(retried.made.version)
    return Accepted(external_id=str(row["external_id"]), **retried.made._asdict())


async def _decide(
    request: Request,
    response: Response,
    services: Services,
    job_id: int,
    state: Decision,
    by: str,
    why: Why | None,
) -> Job:
    version = conditional.if_match(request, what="job")
    reason = why.reason if why else ""
    decided = await store.decide(
        services.pool, job_id, version=version, state=state, by=by, reason=reason
    )
    if decided is None:
        raise _unknown()
    if decided.decided:
        return await _answer(response, services, job_id)
    if decided.approval_state != "WAIT_APPROVAL" or decided.cancelled:
        raise await _stands(services, job_id, "The job does not wait for approval")
    if decided.had_a_hand:
        raise Problem(
            403,
            "four-eyes",
            "Somebody else has to decide",
            "Whoever asked for a job, or changed its plan, cannot decide about it.",
        )
    raise conditional.stale(decided.version)


async def _pause(
    response: Response, services: Services, job_id: int, by: str, *, paused: bool
) -> Job:
    # Asked for what is so already, it says how it is: that is what the caller wanted.
    await store.pause(services.pool, job_id, paused=paused, by=by)
    return await _answer(response, services, job_id)


async def _answer(response: Response, services: Services, job_id: int) -> Job:
    row = await _row(services, job_id)
    response.headers["ETag"] = conditional.etag(_id(row, "version"))
    return _job(row)


async def _row(services: Services, job_id: int) -> Row:
    row = await browse.job(services.pool, job_id)
    if row is None:
        raise _unknown()
    return row


async def _stands(services: Services, job_id: int, title: str) -> Problem:
    """Make the refusal of a move, with how the job stands."""
    row = await _row(services, job_id)
    job = _job(row)
    decided = f" It was decided by {job.decided_by}." if job.decided_by else ""
    return Problem(
        409,
        "job-stands-otherwise",
        title,
        f"The job is {job.state}.{decided}",
        extra={
            "state": job.state,
            "approval_state": job.approval_state,
            "decided_by": job.decided_by,
            "version": job.version,
            "counts": job.counts,
        },
        headers={"ETag": conditional.etag(job.version)},
    )


def _job(row: Row) -> Job:
    return Job.model_validate({**row, "state": job_state(row)})


def _id(row: Row, name: str) -> int:
    value = row[name]
    assert isinstance(value, int)  # noqa: S101 - a column of integers
    return value


def _stored(field: str, value: str | None) -> str | None:
    return None if value is None else inputs.text(field, value)


def _unknown() -> Problem:
    return Problem(404, "unknown-job", "There is no such job")
