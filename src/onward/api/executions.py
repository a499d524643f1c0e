"""Executions: where each is, why it is there, what was said about it and what its host printed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Depends, Query
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
from onward.store import browse, inputs, logs
from onward.store.browse import Row, Wanted
from onward.store.inputs import NAME_MAX

_EXPLAINED: Final = 100  # events that come along with an explanation
_UNKNOWN = {404: problem_response("There is no such execution")}
_STATUSES: Final = tuple(map(str, EXECUTION.states))
_NOTHING: Final = "none"  # what stands for the digest of what printed nothing
_NOT_KNOWN: Final = "unknown"
_DIGESTS: Final = {_NOTHING: "", _NOT_KNOWN: "00"}  # as the list compares them
_SHOWN: Final = str(EXECUTION.moves["fail"].target)  # the status of the examples

executions = router("/executions", "executions")

StatusFilter = Annotated[
    list[str] | None,
    Query(max_length=len(_STATUSES), description=f"Only these, of {', '.join(_STATUSES)}."),
]


class Execution(BaseModel):
    """One command on one host."""

    execution_id: int = Field(examples=[812])
    job_id: int = Field(examples=[17])
    host_id: int = Field(examples=[4])
    host: str | None = Field(examples=["web-4"])
    status: str = Field(examples=[_SHOWN])
    epoch: int = Field(description="The fence of the present attempt.", examples=[9_041])
    version: int = Field(examples=[5])
    attempt: int = Field(description="Counted from 1; 0 before the first.", examples=[2])
    retries: int = Field(description="How many of the retries it may have it has had.")
    due_at: datetime | None = Field(description="Not before this, if it waits.")
    deadline_at: datetime | None = Field(description="At the latest, if it runs.")
    worker_id: int | None
    cause: str | None = Field(
        description="Why the last attempt went wrong.", examples=["UNREACHABLE"]
    )
    exit_code: int | None = Field(examples=[1])
    error: str | None = Field(examples=["connection reset by peer"])
    output: str | None = Field(
        description="A digest of what the last attempt printed; `null` if that is nothing, or if "
        "nobody knows.",
        examples=["5b2b1f6f1c8f4ab0a1a3c2de9f0c7d11"],
    )
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


class CountedExecutions(ExecutionPage):
    """A page of executions, and how many there are on all pages, if that was asked."""

    count: int = Field(default=0, description="Only with `count=true`.", examples=[1])


class ExecutionEvent(BaseModel):
    """Something that was said about an execution, and what became of it."""

    at: datetime
    event: str = Field(examples=["fail"])
    verdict: str = Field(examples=["OK"])
    from_status: str | None
    to_status: str | None = Field(examples=[_SHOWN])
    epoch: int | None = Field(examples=[9_041])
    source: str = Field(description="Who said it.", examples=["worker"])
    detail: dict[str, Any] | None = Field(examples=[{"cause": "UNREACHABLE"}])


class ExecutionTimeline(BaseModel):
    """Everything that was said about an execution, oldest first."""

    items: list[ExecutionEvent]
    next_cursor: str | None


class Explanation(BaseModel):
    """The one reason why an execution is where it is, and how it came there."""

    execution_id: int = Field(examples=[812])
    status: str
    reason: Reason = Field(examples=[Reason.HOST_HELD])
    text: str = Field(examples=["web-4 is held by execution 790 of job 16."])
    facts: dict[str, Any] = Field(
        description="The same for programs; `since` and `until` are times.",
        examples=[{"since": "2026-11-16T10:00:00Z", "execution_id": 790, "job_id": 16}],
    )
    timeline: list[ExecutionEvent] = Field(description="The newest hundred events, oldest first.")


class LogLine(BaseModel):
    """A line that the host printed, or one in which Onward says that it left something out."""

    epoch: int = Field(description="Of the attempt that printed it.", examples=[9_041])
    line: int = Field(description="From 1, within the attempt.", examples=[1])
    at: datetime
    stream: str = Field(
        description="`stdout`, `stderr`, or `onward` for what Onward itself has to say.",
        examples=["stdout"],
    )
    text: str = Field(examples=["reloading nginx"])


class LogPage(BaseModel):
    """Lines in the order in which they were printed.

    The cursor is there also at the end: asked again with it, what was printed meanwhile is the
    answer.
    """

    status: str = Field(description="Of the execution, just before its lines were read.")
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
    events = await browse.newest_events(services.pool, execution_id, limit=_EXPLAINED)
    return Explanation(
        execution_id=execution_id,
        status=str(row["status"]),
        reason=found.reason,
        text=found.text,
        facts=dict(found.facts),
        timeline=[ExecutionEvent.model_validate(event) for event in events],
    )


@executions.get("/{execution_id}/timeline", **needs(Permission.READ, responses=_UNKNOWN))
async def get_execution_timeline(
    execution_id: Id, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> ExecutionTimeline:
    """Return every event with its verdict, also those that moved nothing."""
    await _row(services, execution_id)
    kind = f"timeline of execution {execution_id}"
    position = paging.decode_ids(kind, cursor, length=1)
    found = await browse.execution_timeline(
        services.pool, execution_id, after=position[0] if position else 0, limit=limit + 1
    )
    page = found[:limit]
    return ExecutionTimeline(
        items=[ExecutionEvent.model_validate(row) for row in page],
        next_cursor=_cursor(kind, page[-1]["seq"]) if len(found) > limit else None,
    )


@executions.get("/{execution_id}/logs", **needs(Permission.READ, responses=_UNKNOWN))
async def get_execution_logs(
    execution_id: Id, services: Serving, limit: Limit = 1_000, cursor: Cursor = None
) -> LogPage:
    """Return what the host printed, also while it runs.

    Where something was left out, a line of the stream `onward` says so.
    """
    # First the status: once it is an end, what was printed before it can be read.
    row = await _row(services, execution_id)
    kind = f"logs of execution {execution_id}"
    position = paging.decode_ids(kind, cursor, length=2)
    after = (position[0], position[1]) if position else (-1, 0)
    found = await logs.page(services.pool, execution_id, after=after, limit=limit)
    last = (found[-1].epoch, found[-1].line) if found else position
    return LogPage(
        status=str(row["status"]),
        items=[LogLine.model_validate(line._asdict()) for line in found],
        next_cursor=_cursor(kind, *last) if last else None,
    )


def execution_page(found: Sequence[Row], limit: int, *, kind: str, key: str) -> ExecutionPage:
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


async def _wanted(
    status: StatusFilter = None,
    cause: Annotated[
        str | None,
        Query(
            max_length=NAME_MAX,
            description="Only those that this went wrong with; `none`: nothing did.",
        ),
    ] = None,
    exit_code: Annotated[int | None, Query(ge=-(2**31), le=2**31 - 1)] = None,
    output: Annotated[
        str | None,
        Query(
            pattern=f"^([0-9a-f]{{32}}|{_NOTHING}|{_NOT_KNOWN})$",
            description="Only those that have ended and printed this, by its digest; "
            f"`{_NOTHING}`: nothing; `{_NOT_KNOWN}`: nobody knows what.",
        ),
    ] = None,
    late: Annotated[
        bool | None, Query(description="Only those that have a late result, or have none.")
    ] = None,
    host: Annotated[
        str | None,
        Query(min_length=1, max_length=NAME_MAX, description="Only where this is in the name."),
    ] = None,
) -> Wanted:
    digest = None if output is None else bytes.fromhex(_DIGESTS.get(output, output))
    return Wanted(
        checked_statuses(status),
        cause=None if cause is None else inputs.text("cause", cause),
        exit_code=exit_code,
        output=digest,
        late=late,
        host=None if host is None else inputs.text("host", host),
    )


WantedExecutions = Annotated[Wanted, Depends(_wanted)]


async def _row(services: Services, execution_id: int) -> Row:
    row = await browse.execution(services.pool, execution_id)
    if row is None:
        raise _unknown()
    return row


def _cursor(kind: str, *position: object) -> str:
    return paging.encode(kind, [part for part in position if isinstance(part, int)])


def _unknown() -> Problem:
    return Problem(404, "unknown-execution", "There is no such execution")
