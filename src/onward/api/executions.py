"""Executions: where each is, why it is there, what was said about it and what its host printed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import BaseModel, Field

from onward.api import paging
from onward.api.paging import Cursor, Id, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Services, Serving
from onward.core.lifecycles import EXECUTION
from onward.errors import InvalidInput
from onward.fleet.why import Reason, why
from onward.store import browse, logs
from onward.store.browse import Row

_TIMELINE: Final = "execution timeline"
_LOGS: Final = "execution logs"
_UNKNOWN = {404: problem_response("There is no such execution")}
_STATUSES: Final = tuple(map(str, EXECUTION.states))

executions = router("/executions", "executions")

StatusFilter = Annotated[
    list[str] | None,
    Query(max_length=len(_STATUSES), description=f"Only these, of {', '.join(_STATUSES)}."),
]


class Execution(BaseModel):
    """One command on one host."""

    execution_id: int
    job_id: int
    host_id: int
    host: str | None
    status: str
    epoch: int = Field(description="The fence of the present attempt.")
    version: int
    attempt: int
    retries: int
    due_at: datetime | None
    deadline_at: datetime | None
    worker_id: int | None
    cause: str | None
    exit_code: int | None
    error: str | None
    late_result: dict[str, Any] | None = Field(
        description="What the host said when it was too late to change the status."
    )
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


class ExecutionPage(BaseModel):
    """A page of executions."""

    items: list[Execution]
    next_cursor: str | None


class ExecutionEvent(BaseModel):
    """Something that was said about an execution, and what became of it."""

    at: datetime
    event: str
    verdict: str
    from_status: str | None
    to_status: str | None
    epoch: int | None
    source: str
    detail: dict[str, Any] | None


class ExecutionTimeline(BaseModel):
    """Everything that was said about an execution, oldest first."""

    items: list[ExecutionEvent]
    next_cursor: str | None


class Explanation(BaseModel):
    """The one reason why an execution is where it is, and how it came there."""

    execution_id: int
    status: str
    reason: Reason
    text: str
    facts: dict[str, Any]
    timeline: list[ExecutionEvent] = Field(description="The newest hundred events, oldest first.")


class LogLine(BaseModel):
    """A line that the host printed, or one in which Onward says that it left something out."""

    epoch: int
    line: int
    at: datetime
    stream: str
    text: str


class LogPage(BaseModel):
    """Lines in the order in which they were printed.

    The cursor is there also at the end: asked again with it, what was printed meanwhile is the
    answer.
    """

    items: list[LogLine]
    next_cursor: str | None


@executions.get("/{execution_id}", **needs(Permission.READ, responses=_UNKNOWN))
async def get_execution(execution_id: Id, services: Serving) -> Execution:
    """Return one execution."""
    return Execution.model_validate(await _row(services, execution_id))


@executions.get("/{execution_id}/why", **needs(Permission.READ, responses=_UNKNOWN))
async def explain_execution(execution_id: Id, services: Serving) -> Explanation:
    """Say why an execution is where it is: exactly one reason."""
    row = await browse.why(
        services.pool, execution_id, lost_after_s=services.settings.worker_lost_after_s
    )
    if row is None:
        raise _unknown()
    found = why(row)
    events = await browse.execution_timeline(services.pool, execution_id, limit=10_000)
    return Explanation(
        execution_id=execution_id,
        status=str(row["status"]),
        reason=found.reason,
        text=found.text,
        facts=dict(found.facts),
        timeline=[ExecutionEvent.model_validate(event) for event in events[-100:]],
    )


@executions.get("/{execution_id}/timeline", **needs(Permission.READ, responses=_UNKNOWN))
async def get_execution_timeline(
    execution_id: Id, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> ExecutionTimeline:
    """Return every event with its verdict, also those that moved nothing."""
    await _row(services, execution_id)
    position = paging.decode_ids(_TIMELINE, cursor, length=1)
    found = await browse.execution_timeline(
        services.pool, execution_id, after=position[0] if position else 0, limit=limit + 1
    )
    page = found[:limit]
    return ExecutionTimeline(
        items=[ExecutionEvent.model_validate(row) for row in page],
        next_cursor=_cursor(_TIMELINE, page[-1]["seq"]) if len(found) > limit else None,
    )


@executions.get("/{execution_id}/logs", **needs(Permission.READ, responses=_UNKNOWN))
async def get_execution_logs(
    execution_id: Id, services: Serving, limit: Limit = 1_000, cursor: Cursor = None
) -> LogPage:
    """Return what the host printed, also while it runs."""
    await _row(services, execution_id)
    position = paging.decode_ids(f"{_LOGS} {execution_id}", cursor, length=2)
    after = (position[0], position[1]) if position else (-1, 0)
    found = await logs.page(services.pool, execution_id, after=after, limit=limit)
    last = (found[-1].epoch, found[-1].line) if found else position
    return LogPage(
        items=[LogLine.model_validate(line._asdict()) for line in found],
        next_cursor=_cursor(f"{_LOGS} {execution_id}", *last) if last else None,
    )


def execution_page(found: Sequence[Row], limit: int, kind: str, key: str) -> ExecutionPage:
    """Make a page of what was found, one more than fits it if there is another page."""
    page = found[:limit]
    return ExecutionPage(
        items=[Execution.model_validate(row) for row in page],
        next_cursor=_cursor(kind, page[-1][key]) if len(found) > limit else None,
    )


def checked_statuses(wanted: Sequence[str] | None) -> Sequence[str]:
    """Return the statuses of a filter, or say which of them is none."""
    for status in wanted or ():
        if status not in _STATUSES:
            raise InvalidInput("status", f"is not one of {', '.join(_STATUSES)}")
    return wanted or ()


async def _row(services: Services, execution_id: int) -> Row:
    row = await browse.execution(services.pool, execution_id)
    if row is None:
        raise _unknown()
    return row


def _cursor(kind: str, *position: object) -> str:
    return paging.encode(kind, [part for part in position if isinstance(part, int)])


def _unknown() -> Problem:
    return Problem(404, "unknown-execution", "There is no such execution")
