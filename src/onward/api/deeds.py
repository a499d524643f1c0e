"""What is done with a job: decided, changed, cancelled, held back, and run again where it failed.

Whoever is refused is told how the job stands instead, and what may be done with it as it is.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, assert_never

from fastapi import Depends, Request, Response
from pydantic import Field

from onward.api import conditional
from onward.api.conditional import Guard, Seen
from onward.api.intake import Accepted, MaxConcurrency
from onward.api.jobs import UNKNOWN, Job, answer, row_of, shown, unknown
from onward.api.models import Model, Name, Text
from onward.api.paging import Id, id_of
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Calling, Services, Serving, services_of
from onward.api.tracing import trace_of
from onward.errors import InvalidInput
from onward.fleet.retry import RetryOutcome, retry_failed
from onward.fleet.standing import live
from onward.fleet.submit import checked_limit, edited_params
from onward.store import inputs
from onward.store import jobs as store
from onward.store.browse import Row
from onward.store.jobs import Cancellation, Decision

_REFUSALS: Final = {
    **UNKNOWN,
    409: problem_response(
        "Another request is changing it, or the job stands otherwise; the answer says how"
    ),
}

deeds = router("/jobs", "jobs")


async def _version(request: Request) -> int:
    return shown(await row_of(services_of(request), id_of(request, "job_id"))).version


_JOB: Final = Guard("job", current=_version, lock=lambda request: f"job:{id_of(request, 'job_id')}")
SeenJob = Annotated[Seen, Depends(_JOB, scope="function")]


class Why(Model):
    """The reason that somebody gives for what they do."""

    reason: Text = Field(default="", examples=["seen in staging"])


class Edit(Model):
    """What is to be changed of a plan; what is not named stays."""

    params: dict[str, Any] = Field(default_factory=dict, examples=[{"service": "caddy"}])
    max_concurrency: MaxConcurrency = Field(
        default=None, description="`null` lifts the limit.", examples=[10]
    )


class Retry(Model):
    """What is to be run again."""

    external_id: Name | None = Field(
        default=None,
        description="The caller's own id for the new job; without it, a repeat finds the same one.",
        examples=["deploy-2026-11-16-01-again"],
    )
    statuses: list[str] = Field(
        default_factory=lambda: sorted(store.FAILED),
        min_length=1,
        max_length=8,
        description=f"Which of {', '.join(sorted(store.RETRIED))}.",
        examples=[sorted(store.FAILED)],
    )


class CancelledJob(Job):
    """A job that was cancelled, and what may still come of it."""

    still_running: int = Field(
        description="How many were asked to stop; any of them may finish first."
    )


@deeds.post("/{job_id}/approve", **_JOB.on(needs(Permission.APPROVE, responses=_REFUSALS)))
async def approve_job(
    job_id: Id,
    seen: SeenJob,
    response: Response,
    caller: Calling,
    services: Serving,
    why: Why | None = None,
) -> Job:
    """Approve the plan that was seen: its version goes in `If-Match`. Not one's own."""
    await _decide(services, job_id, seen, "APPROVED", caller.person, why)
    return await answer(response, services, job_id)


@deeds.post("/{job_id}/reject", **_JOB.on(needs(Permission.APPROVE, responses=_REFUSALS)))
async def reject_job(
    job_id: Id,
    seen: SeenJob,
    response: Response,
    caller: Calling,
    services: Serving,
    why: Why | None = None,
) -> Job:
    """Reject the plan that was seen; what has not begun is cancelled. Not one's own."""
    await _decide(services, job_id, seen, "REJECTED", caller.person, why)
    return await answer(response, services, job_id)


@deeds.patch("/{job_id}", **_JOB.on(needs(Permission.RUN, responses=_REFUSALS)))
async def edit_job(
    job_id: Id,
    wanted: Edit,
    seen: SeenJob,
    response: Response,
    caller: Calling,
    services: Serving,
) -> Job:
    """Change a plan while it waits for approval. Whoever changes it cannot approve it.

    A masked parameter stays as it is if it comes back as it was shown.
    """
    changes = _changes(wanted, await row_of(services, job_id), services)
    edited = await store.edit(
        services.pool, job_id, version=seen.version, by=caller.person, **changes
    )
    if edited is None:
        raise unknown()
    if not edited.edited:
        if edited.approval_state == "WAIT_APPROVAL" and not edited.cancelled:
            raise seen.stale(edited.version)
        raise await _stands(services, job_id, "A plan is changed only while it waits for approval")
    return await answer(response, services, job_id)


@deeds.post(
    "/{job_id}/cancel",
    **needs(
        Permission.RUN,
        responses={
            **UNKNOWN,
            202: {"description": "What still runs was asked to stop", "model": CancelledJob},
            409: problem_response("Too late: the job has finished"),
        },
    ),
)
async def cancel_job(
    job_id: Id, response: Response, caller: Calling, services: Serving, why: Why | None = None
) -> CancelledJob:
    """Cancel what has not begun, and ask what runs to stop. Any of that may finish first."""
    reason = why.reason if why else ""
    match done := await store.cancel(services.pool, job_id, by=caller.person, reason=reason):
        case Cancellation.UNKNOWN_JOB:
            raise unknown()
        case Cancellation.TOO_LATE:
            raise await _stands(services, job_id, "Too late: the job has finished", code="too-late")
        case Cancellation.CANCELLED | Cancellation.CANCELLED_BEFORE:
            row = await row_of(services, job_id)
        case _:
            assert_never(done)
    job = shown(row)
    response.headers["ETag"] = conditional.etag(job.version)
    running = live(row)
    response.status_code = 202 if running else 200
    return CancelledJob(**job.model_dump(), still_running=running)


@deeds.post("/{job_id}/pause", **_JOB.on(needs(Permission.RUN, responses=_REFUSALS)))
async def pause_job(
    job_id: Id, seen: SeenJob, response: Response, caller: Calling, services: Serving
) -> Job:
    """Begin nothing more of a job until it is resumed; what runs goes on."""
    await _hold_back(services, job_id, seen, paused=True, by=caller.person)
    return await answer(response, services, job_id)


@deeds.post("/{job_id}/resume", **_JOB.on(needs(Permission.RUN, responses=UNKNOWN)))
async def resume_job(
    job_id: Id, seen: SeenJob, response: Response, caller: Calling, services: Serving
) -> Job:
    """Let a job go on."""
    await _hold_back(services, job_id, seen, paused=False, by=caller.person)
    return await answer(response, services, job_id)


@deeds.post(
    "/{job_id}/retry",
    status_code=202,
    **needs(
        Permission.RUN,
        responses={
            **UNKNOWN,
            200: {"description": "It was retried before", "model": Accepted},
            409: problem_response("It has not finished yet, or nothing of it failed"),
        },
    ),
)
async def retry_job(
    job_id: Id,
    request: Request,
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
        trace=trace_of(request),
    )
    if retried.made is None:
        raise await _not_retried(services, job_id, retried.outcome)
    row = await row_of(services, retried.made.job_id)
    response.status_code = 200 if retried.made.duplicate else 202
    response.headers["Location"] = f"/jobs/{retried.made.job_id}"
    response.headers["ETag"] = conditional.etag(retried.made.version)
    return Accepted(external_id=str(row["external_id"]), **retried.made._asdict())


async def _decide(
    services: Services, job_id: int, seen: Seen, state: Decision, by: str, why: Why | None
) -> None:
    reason = why.reason if why else ""
    decided = await store.decide(
        services.pool, job_id, version=seen.version, state=state, by=by, reason=reason
    )
    if decided is None:
        raise unknown()
    if decided.decided:
        return
    if decided.approval_state != "WAIT_APPROVAL" or decided.cancelled:
        raise await _stands(services, job_id, "The job does not wait for approval")
    if decided.had_a_hand:
        raise Problem(
            403,
            "four-eyes",
            "Somebody else has to decide",
            "Whoever asked for a job, or changed its plan, cannot decide about it.",
        )
    raise seen.stale(decided.version)


async def _hold_back(services: Services, job_id: int, seen: Seen, *, paused: bool, by: str) -> None:
    now = await store.pause(services.pool, job_id, version=seen.version, paused=paused, by=by)
    if now is None:
        raise unknown()
    if now.changed:
        return
    if now.version != seen.version:
        raise seen.stale(now.version)
    # What was so before is as good as what is so now: it is what the caller wanted.
    if now.paused != paused:
        raise await _stands(services, job_id, "There is nothing left to hold back")


def _changes(wanted: Edit, row: Row, services: Services) -> dict[str, Any]:
    """Return what of a plan is to be changed, checked."""
    named = wanted.model_fields_set
    if not named:
        raise InvalidInput("params", "is not there, nor max_concurrency: nothing would change")
    largest = services.settings.payload_max_bytes
    limit: int | Literal["keep"] | None = "keep"
    if "max_concurrency" in named:
        limit = checked_limit(wanted.max_concurrency)
    params = None
    if "params" in named:
        # From the job as it is now: if it was seen otherwise, nothing will be changed.
        given = edited_params(row, wanted.params)
        params = inputs.json_object("params", given, max_bytes=largest)
    return {"params": params, "max_concurrency": limit}


async def _not_retried(services: Services, job_id: int, outcome: RetryOutcome) -> Problem:
    match outcome:
        case RetryOutcome.UNKNOWN_JOB:
            return unknown()
        case RetryOutcome.NOT_FINISHED:
            title = "More of the job may fail: retry when it has ended"
        case _:
            title = "Nothing of the job is left to be run again"
    return await _stands(services, job_id, title)


async def _stands(
    services: Services, job_id: int, title: str, *, code: str = "job-stands-otherwise"
) -> Problem:
    """Make the refusal of a deed, with how the job stands and what may be done with it."""
    job = shown(await row_of(services, job_id))
    decided = f" {job.decided_by} has decided about it." if job.decided_by else ""
    cancelled = f" {job.cancelled_by} has cancelled it." if job.cancelled_by else ""
    return Problem(
        409,
        code,
        title,
        f"The job is {job.state}.{decided}{cancelled}",
        extra=job.model_dump(
            mode="json",
            include={
                *("job_id", "state", "allowed", "approval_state", "version", "counts"),
                *("decided_by", "decided_at", "decision_reason", "cancelled_by", "cancelled_at"),
            },
        ),
        headers={"ETag": conditional.etag(job.version)},
    )
