"""For whoever keeps the service running: health, workers, metrics."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from fastapi import FastAPI, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from onward.api import paging
from onward.api.events import feed_of
from onward.api.paging import Cursor, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import RETRY_AFTER_S, Problem
from onward.api.routing import router
from onward.api.scrape import Scrape
from onward.api.services import Serving
from onward.api.traffic import TRAFFIC
from onward.fleet.ready import Readiness, Standing
from onward.store import browse

_LIST: Final = "workers"

health = router("/health", "operations")
workers = router("/workers", "operations")
metrics = router("/metrics", "operations")


class Live(BaseModel):
    """A process that answers."""

    live: bool


class Ready(BaseModel):
    """Whether work gets done, part by part."""

    ready: bool
    database: bool = Field(description="It answers.")
    schema_: bool = Field(alias="schema", description="It is the one of this program.")
    workers: bool = Field(description="At least one lives and gets on with its work.")
    missing: list[str] = Field(description="What is missing, in words.", examples=[[]])


class Worker(BaseModel):
    """A process that runs executions."""

    worker_id: int = Field(examples=[3])
    name: str = Field(description="Its machine and process id.", examples=["runner-1:4711"])
    started_at: datetime
    beat_at: datetime = Field(description="When it last said that it lives.")
    progress_at: datetime = Field(description="When it last got on with its work.")
    stopped_at: datetime | None = Field(description="When it left; not where it was killed.")
    lives: bool
    refused: int = Field(
        description="Messages of the broker that it would not take; 0 without a broker.",
        examples=[0],
    )
    running: int = Field(description="Executions that it runs now.", examples=[120])


class WorkerPage(BaseModel):
    """The workers of the last day, the newest first."""

    items: list[Worker]
    next_cursor: str | None


@health.get("/live", **needs(Permission.PUBLIC))
async def say_live() -> Live:
    """Say that this process answers. It says nothing about anything else."""
    return Live(live=True)


@health.get(
    "/ready",
    **needs(Permission.PUBLIC, responses={503: problem_response("Something is missing")}),
)
async def say_ready(
    request: Request,
    *,
    api_only: Annotated[
        bool, Query(description="Leave workers out: this process only takes requests.")
    ] = False,
) -> Ready:
    """Say whether work gets done: the database answers, its schema is right, a worker gets on."""
    found = await readiness_of(request.app).standing()
    if not (found.database and found.schema and (found.workers or api_only)):
        raise _not_ready(found)
    return Ready.model_validate({"ready": True, **_parts(found)})


@workers.get("", **needs(Permission.READ))
async def list_workers(services: Serving, limit: Limit = 100, cursor: Cursor = None) -> WorkerPage:
    """List the workers of the last day, the newest first."""
    position = paging.decode_ids(_LIST, cursor, length=1)
    found = await browse.workers(
        services.pool,
        lost_after_s=services.settings.worker_lost_after_s,
        limit=limit + 1,
        **({"before": position[0]} if position else {}),
    )
    page = [Worker.model_validate(row) for row in found[:limit]]
    more = len(found) > limit
    return WorkerPage(
        items=page, next_cursor=paging.encode(_LIST, [page[-1].worker_id]) if more else None
    )


@metrics.get(
    "",
    response_class=PlainTextResponse,
    response_description="Metrics in the text format of Prometheus",
    **needs(Permission.READ),
)
async def get_metrics(request: Request, services: Serving) -> Response:
    """Return metrics for Prometheus; the key of a viewer is enough.

    What is in the database is counted now, for all processes. Requests and streams are those of the
    process that answers.
    """
    gauges = await browse.gauges(services.pool, lost_after_s=services.settings.worker_lost_after_s)
    scrape = Scrape(gauges, request.scope[TRAFFIC], feed_of(request.app).listeners)
    return Response(generate_latest(scrape), headers={"Content-Type": CONTENT_TYPE_LATEST})


def readiness_of(app: FastAPI) -> Readiness:
    """Return what looks after an application."""
    found = app.state.readiness
    assert isinstance(found, Readiness)  # noqa: S101 - create_app has put it there
    return found


def _not_ready(found: Standing) -> Problem:
    return Problem(
        503,
        "not-ready",
        "Work does not get done",
        " ".join(found.missing),
        extra={"ready": False, **_parts(found)},
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def _parts(found: Standing) -> dict[str, object]:
    return {
        "database": found.database,
        "schema": found.schema,
        "workers": found.workers,
        "missing": list(found.missing),
    }
