"""What changes, as it changes: one stream, which can be resumed where it broke.

Every event carries an id, and the stream can be resumed after any of them: the header
`Last-Event-ID` (which browsers send by themselves) or `?after=` names the last one that was heard.
What comes then is everything after it, once. The same positions lead through the pages of
`/events/page`, for callers who would rather ask.

Whoever shows thousands of changes a second asks for them by the batch: what is told together is one
event then, with one id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, FastAPI, Header, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from onward.api.auth import caller_of, require
from onward.api.event_stream import EventStream, Write
from onward.api.paging import Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import RETRY_AFTER_S, Problem
from onward.api.routing import router
from onward.api.services import Services, Serving
from onward.api.telling import (
    BATCHED,
    Changed,
    Kind,
    changed,
    in_one,
    one_by_one,
    position_id,
    read_position,
)
from onward.errors import ServerProblem
from onward.fleet.follow import Feed, Listener
from onward.store import changes
from onward.store.changes import KINDS, Change, Position

_STREAMS_MAX: Final = 1_000
_KEEP_ALIVE_S: Final = 15.0
_RETRY_MS: Final = 2_000
_AGAIN_S: Final = 1.0  # until a server that is away is asked again
_READINGS: Final = 20  # that one page may take
_GONE: Final = {410: problem_response("The position is too old, or of another database")}

events = router("/events", "events")


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
Batched = Annotated[
    bool,
    Query(
        description="Tell what comes together in one event. Its `data` is a list of changes, each "
        f"of them as [{', '.join(BATCHED)}]."
    ),
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
    *,
    batch: Batched = False,
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
    stream = _Stream(request, services, feed, wanted, in_one if batch else one_by_one)

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
        items=[changed(change) for change in found[:limit]], next_cursor=position_id(position)
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

    def __init__(
        self,
        request: Request,
        services: Services,
        feed: Feed,
        wanted: Filter,
        written: Callable[[Sequence[Change], Position], bytes],
    ) -> None:
        self._scope = request.scope
        self._services = services
        self._feed = feed
        self._wanted = wanted
        self._written = written

    async def tell(self, listener: Listener, write: Write) -> None:
        """Tell everything that is wanted, and sometimes only that we are still here."""
        await write(f"retry: {_RETRY_MS}\nid: {position_id(listener.position)}\n\n".encode())
        written_at = time.monotonic()
        while not self._feed.closed.is_set():
            left_s = written_at + _KEEP_ALIVE_S - time.monotonic()
            found = await self._next(listener, max(left_s, 0.0))
            if not await self._may_hear():
                return
            told = self._written(self._wanted.of(found), listener.position)
            if not told and time.monotonic() < written_at + _KEEP_ALIVE_S:
                continue
            # An id without data is no event, but the caller knows from where to go on.
            await write(told or f": still here\nid: {position_id(listener.position)}\n\n".encode())
            written_at = time.monotonic()

    async def _next(self, listener: Listener, wait_s: float) -> Sequence[Change]:
        try:
            return await listener.next(wait_s=wait_s)
        except ServerProblem:
            # While the server is away nothing changes, and the caller need not know.
            await asyncio.sleep(_AGAIN_S)
            return ()

    async def _may_hear(self) -> bool:
        """Ask again who listens: their key may have been revoked since, or they have logged out."""
        services = self._services
        while True:
            try:
                caller = await caller_of(self._scope, services.keys, services.sessions)
                require(caller, Permission.READ)
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
    position = read_position(told)
    if not await changes.can_go_on(services.pool, position):
        raise Problem(
            410,
            "position-gone",
            "There is no way on from this position",
            "It is too old, or of another database. Look at how things stand now, and begin again "
            "without a position.",
        )
    return position
