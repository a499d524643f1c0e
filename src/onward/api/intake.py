"""Where jobs come in: the webhook, and the plan that says beforehand what it would do."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from onward.api.conditional import etag
from onward.api.models import Model, Name
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Calling, Serving
from onward.core.selectors import describe, parse
from onward.fleet.submit import checked_limit, new_job
from onward.store import inputs, jobs

_PLAN_TAG = re.compile(r'"plan-([0-9a-f]{32})"').fullmatch
_NAMED: Final = 100

Selector = Annotated[
    Any,
    Field(
        description="Who it is for: `all`, a list of host names, an object with `hostnames`, "
        "`labels` or `expression`, or an expression such as `role=web and not zone=eu`.",
        json_schema_extra={"type": ["string", "array", "object"]},
    ),
]
MaxConcurrency = Annotated[
    int | None,
    Field(ge=1, le=1_000_000, description="How many of its executions may be under way at once."),
]

webhook = router("/webhook", "jobs")
plans = router("/jobs", "jobs")


class PlanRequest(Model):
    """What would be run, and where."""

    command_type: Name = Field(examples=["RESTART_SERVICE"])
    params: dict[str, Any] = Field(default_factory=dict, examples=[{"service": "nginx"}])
    selector: Selector = Field(examples=["role=web and not zone=eu"])
    max_concurrency: MaxConcurrency = Field(default=None, examples=[50])


class JobRequest(PlanRequest):
    """A job: its id is the sender's own, and makes a repeat of the message harmless."""

    external_id: Name = Field(examples=["deploy-2026-11-16-01"])


class Accepted(BaseModel):
    """A job that is there."""

    job_id: int
    external_id: str
    total: int = Field(description="How many hosts it is for.")
    approval_state: str | None
    version: int
    duplicate: bool = Field(description="Whether it was there before this request.")


class PlanHost(BaseModel):
    """A host that would run."""

    host_id: int
    name: str


class PlanBlock(PlanHost):
    """A host on which a rule forbids it."""

    reason: str
    owner: str
    expires_at: str | None


class PlanBusy(PlanHost):
    """A host that would run, once it has finished something else."""

    execution_id: int


class Plan(BaseModel):
    """What a job would do now. Counts are whole; lists name the first of each kind."""

    selector: str = Field(description="The selector, as it was understood.")
    needs_approval: bool
    total: int
    runs: int
    blocked: int
    busy: int
    etag: str = Field(description="Send it as If-Match with the job to have this plan or none.")
    hosts: list[PlanHost]
    blocked_hosts: list[PlanBlock]
    busy_hosts: list[PlanBusy]


@webhook.post(
    "/jobs",
    status_code=202,
    **needs(
        Permission.RUN,
        signed=True,
        responses={
            200: {"description": "The job was there before", "model": Accepted},
            412: problem_response("The fleet is no longer as the plan said"),
        },
    ),
)
async def submit_job(
    wanted: JobRequest, request: Request, response: Response, caller: Calling, services: Serving
) -> Accepted:
    """Take a job: it is stored with all its executions, or not at all.

    The same message again finds the same job; another body under the same `external_id` is refused
    with what differs. With `If-Match`, the job is taken only if it would do what the plan said.
    """
    job = new_job(
        **wanted.model_dump(),
        requested_by=caller.person,
        params_max_bytes=services.settings.payload_max_bytes,
        digest=_plan_seen(request),
    )
    made = await jobs.submit(services.pool, job)
    response.status_code = 200 if made.duplicate else 202
    response.headers["Location"] = f"/jobs/{made.job_id}"
    response.headers["ETag"] = etag(made.version)
    if made.duplicate:
        response.headers["Idempotent-Replay"] = "true"
    return Accepted(external_id=job.external_id, **made._asdict())


@plans.post("/plan", **needs(Permission.READ))
async def plan_job(
    wanted: PlanRequest,
    response: Response,
    services: Serving,
    named: Annotated[
        int, Query(ge=0, le=1_000, description="How many hosts of each kind to name.")
    ] = _NAMED,
) -> Plan:
    """Say what a job would do if it were sent now, and change nothing."""
    selector = parse(wanted.selector)
    checked_limit(wanted.max_concurrency)
    inputs.json_object("params", wanted.params, max_bytes=services.settings.payload_max_bytes)
    found = await jobs.preview(services.pool, wanted.command_type, selector, named=named)
    tag = f'"plan-{found.digest}"'
    response.headers["ETag"] = tag
    return Plan.model_validate(
        {
            "selector": describe(selector),
            "needs_approval": found.needs_approval,
            "total": found.total,
            "runs": found.total - found.blocked,
            "blocked": found.blocked,
            "busy": found.busy,
            "etag": tag,
            "hosts": found.runs,
            "blocked_hosts": found.blocks,
            "busy_hosts": found.busy_hosts,
        }
    )


def _plan_seen(request: Request) -> str | None:
    """Return the digest of the plan that the sender has seen, if the sender says so."""
    given = request.headers.getlist("if-match")
    if not given:
        return None
    found = _PLAN_TAG(given[0]) if len(given) == 1 else None
    if found is None:
        raise Problem(
            400,
            "if-match-malformed",
            "If-Match cannot be read",
            "Send the ETag of a plan as POST /jobs/plan gave it, or no If-Match at all.",
        )
    return found[1]
