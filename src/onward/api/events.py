"""What changes, as it changes: one stream, which can be resumed where it broke.

Every event carries an id, and the stream can be resumed after any of them: the header
`Last-Event-ID` (which browsers send by themselves) or `?after=` names the last one that was heard.
What comes then is everything after it, once. The same positions lead through the pages of
`/events/page`, for callers who would rather ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final, Literal

from fastapi import Depends, FastAPI, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from onward.api import paging
from onward.api.auth import caller_by_key, require
from onward.api.event_stream import EventStream, Write
from onward.api.paging import Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import RETRY_AFTER_S, Problem
from onward.api.routing import router
from onward.api.services import Services, Serving
from onward.core.lifecycles import EXECUTION
from onward.errors import InvalidInput, ServerProblem
from onward.fleet.follow import Feed, Listener
from onward.store import changes
from onward.store.changes import KINDS, Change, Position

_POSITION: Final = "changes"
_STREAMS_MAX: Final = 1_000
_KEEP_ALIVE_S: Final = 15.0
_RETRY_MS: Final = 2_000
_AGAIN_S: Final = 1.0  # until a server that is away is asked again
_READINGS: Final = 20  # that one page may take
_GONE: Final = {410: problem_response("The position is too old, or of another database")}

Kind = Literal["job", "execution", "command"]

events = router("/events", "events")


class Changed(BaseModel):
    """Something that changed: a job, an execution, or a command that travels by itself."""

    kind: Kind
    at: datetime
    job_id: int | None = Field(description="Of a job or an execution.", examples=[17])
    execution_id: int | None = Field(description="Of an execution.", examples=[812])
    host_id: int | None = Field(description="Of an execution.", examples=[4])
    cmd_id: str | None = Field(description="Of a command.")
    event: str = Field(examples=["succeed"])
    status: str | None = Field(
        description="What it became; jobs have none of their own.",
        examples=[str(EXECUTION.moves["succeed"].target)],
    )
    seq: int = Field(
        description="Which of two changes of one thing came later: the one with the higher number. "
        "They may be told the other way round.",
        examples=[40_112],
    )


class ChangePage(BaseModel):
    """What has changed, in order.

    The cursor is there also at the end: asked again with it, what changed meanwhile is the answer.
    """

    items: list[Changed]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class Filter:
    """What somebody wants to hear of."""

    job_id: int | None
    kinds: frozenset[str]

    def of(self, found: Sequence[Change]) -> list[Change]:
        """Leave out what is not wanted."""
        return [change for change in found if self._fits(change)]

    def _fits(self, change: Change) -> bool:
        return (self.job_id is None or change.job_id == self.job_id) and (
            KINDS[change.kind - 1] in self.kinds
        )


async def _wanted(
    job_id: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="Only of this job and its executions.")
    ] = None,
    kind: Annotated[
        list[Kind] | None, Query(max_length=len(KINDS), description="Only of these kinds.")
    ] = None,
) -> Filter:
    return Filter(job_id, frozenset(kind or KINDS))


Wanted = Annotated[Filter, Depends(_wanted)]
After = Annotated[
    str | None,
    Query(description="Go on after this id, or `next_cursor`. Without it: from now on."),
]
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="As `after`, and stronger: browsers send it."),
]


@events.get(
    "",
    status_code=200,
    response_class=EventStream,
    response_description="Events without end, with comments to keep the connection alive",
    **needs(
        Permission.READ,
        responses={
            503: problem_response("Too many listen already"),
            **_GONE,
        },
    ),
)
async def stream_events(
    request: Request,
    services: Serving,
    wanted: Wanted,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream what changes, as server-sent events.

    The `data` of each is what a page lists. Its `id` is a position from which the stream goes on
    exactly, also between two changes that were made together.
    """
    feed = feed_of(request.app)
    position = await _position(services, last_event_id or after)
    if feed.listeners >= _STREAMS_MAX:
        raise Problem(
            503,
            "too-many-streams",
            "Too many listen already",
            f"This process tells at most {_STREAMS_MAX} at once; try again, or ask for pages.",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )
    stream = _Stream(request, services, feed, wanted)

    async def tell(write: Write) -> None:
        async with feed.listen(position) as listener:
            await stream.tell(listener, write)

    return EventStream(tell, feed.closed)


@events.get("/page", **needs(Permission.READ, responses=_GONE))
async def list_events(
    services: Serving, wanted: Wanted, limit: Limit = 100, after: After = None
) -> ChangePage:
    """Return what has changed since a position; without one, only the position of now.

    With a filter a page may be short: the cursor is further on in any case.
    """
    reader = changes.Reader(services.pool, await _position(services, after), limit=limit)
    found: list[Change] = []
    position = reader.position
    for _ in range(_READINGS):
        read = await reader.read()
        found += wanted.of(read)
        position = reader.position
        if not read or len(found) >= limit:
            break
    if len(found) > limit:
        position = found[limit - 1].position
    return ChangePage(
        items=[_changed(change) for change in found[:limit]], next_cursor=_id(position)
    )


def feed_of(app: FastAPI) -> Feed:
    """Return the feed of an application."""
    found = app.state.feed
    assert isinstance(found, Feed)  # noqa: S101 - create_app has put it there
    return found


def end_streams(app: FastAPI) -> None:
    """End all streams of an application, for a process that is about to leave."""
    feed_of(app).close()


class _Stream:
    """What one caller is told."""

    def __init__(self, request: Request, services: Services, feed: Feed, wanted: Filter) -> None:
        self._scope = request.scope
        self._services = services
        self._feed = feed
        self._wanted = wanted

    async def tell(self, listener: Listener, write: Write) -> None:
        """Tell everything that is wanted, and sometimes only that we are still here."""
        await write(f"retry: {_RETRY_MS}\nid: {_id(listener.position)}\n\n".encode())
        written_at = time.monotonic()
        while not self._feed.closed.is_set():
            left_s = written_at + _KEEP_ALIVE_S - time.monotonic()
            found = await self._next(listener, max(left_s, 0.0))
            if not await self._may_hear():
                return
            told = b"".join(map(_event, self._wanted.of(found)))
            if not told and time.monotonic() < written_at + _KEEP_ALIVE_S:
                continue
            # An id without data is no event, but the caller knows from where to go on.
            await write(told or f": still here\nid: {_id(listener.position)}\n\n".encode())
            written_at = time.monotonic()

    async def _next(self, listener: Listener, wait_s: float) -> Sequence[Change]:
        try:
            return await listener.next(wait_s=wait_s)
        except ServerProblem:
            # While the server is away nothing changes, and the caller need not know.
            await asyncio.sleep(_AGAIN_S)
            return ()

    async def _may_hear(self) -> bool:
        """Ask again whose key it is: it may have been revoked since."""
        while True:
            try:
                require(await caller_by_key(self._scope, self._services.keys), Permission.READ)
            except Problem:
                return False
            except ServerProblem:
                await asyncio.sleep(_AGAIN_S)
            else:
                return True


async def _position(services: Services, told: str | None) -> Position:
    """Return where to go on; refuse a position that leads nowhere."""
    if told is None:
        return await changes.horizon(services.pool)
    position = _read(told)
    if not await changes.can_go_on(services.pool, position):
        raise Problem(
            410,
            "position-gone",
            "There is no way on from this position",
            "It is too old, or of another database. Look at how things stand now, and begin again "
            "without a position.",
        )
    return position


def _read(told: str) -> Position:
    try:
        numbers = paging.decode_ids(_POSITION, told, length=len(Position._fields))
    except InvalidInput:
        numbers = None
    if numbers is None or min(numbers) < 0:
        raise InvalidInput("after", "is not an id that this stream has given; begin without one")
    return Position(*numbers)


def _id(position: Position) -> str:
    return paging.encode(_POSITION, position)


# Once for all who listen.
@lru_cache(maxsize=4_096)
def _event(change: Change) -> bytes:
    return f"id: {_id(change.position)}\ndata: {_changed(change).model_dump_json()}\n\n".encode()


def _changed(change: Change) -> Changed:
    return Changed.model_validate(
        {
            **change._asdict(),
            "kind": KINDS[change.kind - 1],
            "cmd_id": None if change.cmd_id is None else str(change.cmd_id),
        }
    )
