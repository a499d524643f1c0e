"""How things stand as a whole: what is open, what waits for somebody, who works, what ended when.

What is looked at, and how seldom, is the business of `fleet/overview.py`; here it gets its words.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final, get_args

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from onward.api.jobs import Job, shown
from onward.api.operations import Worker
from onward.api.permissions import Permission, needs
from onward.api.routing import router
from onward.core.lifecycles import EXECUTION
from onward.fleet import overview as fleet
from onward.fleet.attention import Concern
from onward.fleet.overview import Found
from onward.store.hosts import HostState
from onward.store.overview import MINUTES

_STEP_S: Final = 60
_LIVE: Final = [str(state) for state in EXECUTION.states if state not in EXECUTION.terminal]
_ENDED: Final = [str(state) for state in EXECUTION.states if state in EXECUTION.terminal]

overview = router("/overview", "operations")


class OpenJobs(BaseModel):
    """How many jobs have not finished."""

    open: int
    waiting: int = Field(description="Those that wait for approval.")
    paused: int


class Noticed(BaseModel):
    """Something that somebody should look at."""

    kind: Concern
    text: str = Field(examples=["Job 17: 40 of 120 that ended went wrong (33 %)."])
    job_id: int | None = Field(examples=[17])
    count: int = Field(description="Of whatever it is.", examples=[40])


class Activity(BaseModel):
    """How many executions ended lately, step by step; the last step is not over yet."""

    step_s: int = Field(examples=[_STEP_S])
    from_: datetime = Field(alias="from", description="When the first step began.")
    statuses: dict[str, list[int]] = Field(description="A number for each step, by how they ended.")


class Overview(BaseModel):
    """How things stand."""

    at: datetime
    executions: dict[str, int] = Field(
        description="How many are in each status, of those that have not ended."
    )
    jobs: OpenJobs
    hosts: dict[str, int] = Field(description="How many there are in each state.")
    blocks: int = Field(description="How many are in force.")
    workers: list[Worker] = Field(description="Those that live, or were lost in the last hour.")
    open: list[Job] = Field(description="The newest that have not finished.")
    waiting: list[Job] = Field(description="Those that have waited longest for approval.")
    attention: list[Noticed] = Field(description="The most pressing first.")
    activity: Activity


@overview.get("", response_model=Overview, **needs(Permission.READ))
async def get_overview(request: Request) -> Response:
    """Say how things stand: what is open, what waits for somebody, who works, what ended when.

    The answer may be a second old.
    """
    told = await overview_of(request.app).told(_written)
    return Response(told, media_type="application/json")


def overview_of(app: FastAPI) -> fleet.Overview:
    """Return what looks at how things stand for an application."""
    found = app.state.overview
    assert isinstance(found, fleet.Overview)  # noqa: S101 - create_app has put it there
    return found


def _written(found: Found) -> bytes:
    standing = found.standing
    told = Overview.model_validate(
        {
            "at": standing.at,
            "executions": {status: standing.executions.get(status, 0) for status in _LIVE},
            "jobs": standing.jobs,
            "hosts": {state: found.hosts.get(state, 0) for state in get_args(HostState)},
            "blocks": found.blocks,
            "workers": found.workers,
            "open": [shown(row) for row in found.open],
            "waiting": [shown(row) for row in found.waiting],
            "attention": [asdict(each) for each in found.attention],
            "activity": _activity(found),
        }
    )
    return told.model_dump_json(by_alias=True).encode()


def _activity(found: Found) -> dict[str, object]:
    last = found.standing.at.replace(second=0, microsecond=0)
    none = [0] * MINUTES
    return {
        "step_s": _STEP_S,
        "from": last - timedelta(seconds=_STEP_S * (MINUTES - 1)),
        "statuses": {status: found.activity.get(status, none) for status in _ENDED},
    }
