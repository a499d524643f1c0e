"""Where jobs come in: the webhook, and the plan that says beforehand what it would do."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from onward.api.conditional import described, etag
from onward.api.models import Model, Name
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Calling, Serving
from onward.api.tracing import trace_of
from onward.core.selectors import describe, parse
from onward.errors import PlanChanged
from onward.fleet.submit import check_suits, checked_limit, new_job
from onward.store import inputs, plans
from onward.store.plans import Plan as Planned

_PLAN_TAG = re.compile(r'(W/)?"plan-([0-9a-f]{32})"').fullmatch
_NAMED: Final = 100
_NEVER: Final = ""  # the digest of no plan
_EXAMPLE: Final = "9e107d9d372bb6826bd81d3542a419d6"


def _tag(digest: str) -> str:
    """Write the digest of a plan as its entity tag."""
    return f'"plan-{digest}"'


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
Named = Annotated[int, Query(ge=0, le=1_000, description="How many hosts of each kind to name.")]

webhook = router("/webhook", "jobs")
plan = router("/jobs", "jobs")


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

    job_id: int = Field(examples=[17])
    external_id: str = Field(examples=["deploy-2026-11-16-01"])
    total: int = Field(description="How many hosts it is for.", examples=[1_000])
    approval_state: str | None = Field(examples=["WAIT_APPROVAL"])
    version: int = Field(examples=[1])
    duplicate: bool = Field(description="Whether it was there before this request.")


class PlanHost(BaseModel):
    """A host that would run."""

    host_id: int = Field(examples=[4])
    name: str = Field(examples=["web-4"])


class PlanBlock(PlanHost):
    """A host on which a rule forbids it."""

    reason: str = Field(examples=["disk is full"])
    owner: str = Field(examples=["ann"])
    expires_at: datetime | None


class PlanBusy(PlanHost):
    """A host that would run, once it has finished something else."""

    execution_id: int = Field(examples=[812])


class PlannedHosts(BaseModel):
    """Who would run and who would not. Counts are whole; lists name the first of each kind."""

    total: int = Field(examples=[1_000])
    runs: int = Field(description="How many would run, the busy ones too.", examples=[990])
    blocked: int = Field(examples=[10])
    busy: int = Field(examples=[3])
    hosts: list[PlanHost]
    blocked_hosts: list[PlanBlock]
    busy_hosts: list[PlanBusy]


class Plan(PlannedHosts):
    """What a job would do if it were sent now."""

    selector: str = Field(
        description="The selector, as it was understood.", examples=["hosts where role=web"]
    )
    needs_approval: bool
    argv: list[str] | None = Field(
        description="The arguments that its type fixes.",
        examples=[["systemctl", "restart", "{service}"]],
    )
    masked: list[str] = Field(
        description="The parameters that nobody is to see.", examples=[["token"]]
    )
    etag: str = Field(
        description="Send it as If-Match with the job to have this plan or none.",
        examples=[_tag(_EXAMPLE)],
    )


_TAKES = needs(
    Permission.RUN,
    signed=True,
    responses={
        200: {"description": "The job was there before", "model": Accepted},
        400: problem_response("The body is not strict JSON, or If-Match is not of a plan"),
        409: problem_response("The signed message was taken before"),
        412: problem_response("The fleet is no longer as the plan said"),
    },
)
_TAKES["openapi_extra"]["parameters"] = [described("plan", example=_tag(_EXAMPLE), required=False)]


@webhook.post("/jobs", status_code=202, **_TAKES)
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
        trace=trace_of(request),
    )
    try:
        made = await services.counter.submit(services.pool, job)
    except PlanChanged as changed:
        raise _stale(changed) from changed
    response.status_code = 200 if made.duplicate else 202
    response.headers["Location"] = f"/jobs/{made.job_id}"
    response.headers["ETag"] = etag(made.version)
    if made.duplicate:
        response.headers["Idempotent-Replay"] = "true"
    return Accepted(external_id=job.external_id, **made._asdict())


@plan.post("/plan", **needs(Permission.READ))
async def plan_job(
    wanted: PlanRequest, response: Response, services: Serving, named: Named = _NAMED
) -> Plan:
    """Say what a job would do if it were sent now, and change nothing."""
    selector = parse(wanted.selector)
    checked_limit(wanted.max_concurrency)
    inputs.json_object("params", wanted.params, max_bytes=services.settings.payload_max_bytes)
    found = await plans.preview(services.pool, wanted.command_type, selector, named=named)
    check_suits(wanted.params, found.template)
    argv = found.template.argv
    tag = _tag(found.digest)
    response.headers["ETag"] = tag
    return Plan.model_validate(
        {
            **hosts_of(found.plan),
            "selector": describe(selector),
            "needs_approval": found.needs_approval,
            "argv": None if argv is None else json.loads(argv),
            "masked": found.template.masked,
            "etag": tag,
        }
    )


def hosts_of(planned: Planned) -> dict[str, object]:
    """Return a plan in the words of the API."""
    return {
        "total": planned.total,
        "runs": planned.total - planned.blocked,
        "blocked": planned.blocked,
        "busy": planned.busy,
        "hosts": planned.runs,
        "blocked_hosts": planned.blocks,
        "busy_hosts": planned.busy_hosts,
    }


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
    # A weak tag never matches.
    return _NEVER if found[1] else found[2]


def _stale(changed: PlanChanged) -> Problem:
    tag = _tag(changed.digest)
    return Problem(
        412,
        "plan-changed",
        "The fleet has changed since the plan",
        str(changed),
        extra={"etag": tag},
        headers={"ETag": tag},
    )
