"""Who did what, the newest first: with jobs, and with everything else that people change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import BaseModel, Field

from onward.api import paging
from onward.api.auth import Caller
from onward.api.paging import Cursor, Limit
from onward.api.permissions import Permission, needs
from onward.api.routing import router
from onward.api.services import Calling, Serving
from onward.errors import InvalidInput
from onward.store import audit as store
from onward.store import inputs
from onward.store.audit import KINDS, Kind, Position

_LIST: Final = "audit"
_SOURCES: Final = frozenset({1, 2})
# Who has which key, who has logged in and who was given what is asked of nobody but an admin.
_PRIVATE: Final = frozenset({"key", "session", "item"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

audit = router("/audit", "audit")


class Deed(BaseModel):
    """Something that somebody has done."""

    at: datetime
    by: str = Field(
        description="Whose key it was; or what did it by itself, such as `environment`.",
        examples=["ann"],
    )
    deed: str = Field(description="A verb.", examples=["change"])
    kind: Kind = Field(description="Of what it was done with.")
    subject: str = Field(
        description="Which one: the id of a job, of a host, also for its blocks and its agent, or "
        "of a key, also for sessions; the name of a command type; the number of an item. Empty, if "
        "it was done with many at once.",
        examples=["7"],
    )
    detail: dict[str, Any] | None = Field(examples=[{"name": "web-1", "state": "DISABLED"}])
    request_id: str | None = Field(
        description="Of the request that it was done by. What was done with a job has none."
    )


class AuditPage(BaseModel):
    """A page of deeds, the newest first."""

    items: list[Deed]
    next_cursor: str | None


@audit.get("", **needs(Permission.READ))
async def list_deeds(
    services: Serving,
    caller: Calling,
    limit: Limit = 100,
    cursor: Cursor = None,
    by: Annotated[
        str | None, Query(max_length=inputs.NAME_MAX, description="Only of this person.")
    ] = None,
    kind: Annotated[
        list[Kind] | None, Query(max_length=len(KINDS), description="Only of these kinds.")
    ] = None,
    subject: Annotated[
        str | None,
        Query(max_length=inputs.NAME_MAX, description="Only with this one, of whatever kind."),
    ] = None,
) -> AuditPage:
    """List who did what, the newest first; what is older than the timelines are kept is gone.

    What was done with keys, sessions and items is told to admins alone.
    """
    kinds = tuple(each for each in dict.fromkeys(kind or KINDS) if _may_know(caller, each))
    if not kinds:
        return AuditPage(items=[], next_cursor=None)
    found = await store.page(
        services.pool,
        after=_position(cursor),
        limit=limit + 1,
        by=by,
        kinds=kinds if kind or len(kinds) < len(KINDS) else (),
        subject=subject,
    )
    page = found[:limit]
    return AuditPage(
        items=[Deed.model_validate(each, from_attributes=True) for each in page],
        next_cursor=_cursor(page[-1].position) if len(found) > limit else None,
    )


def _may_know(caller: Caller, kind: Kind) -> bool:
    return kind not in _PRIVATE or caller.may(Permission.ADMIN)


def _cursor(position: Position) -> str:
    at = (position.at - _EPOCH) // _MICROSECOND
    return paging.encode(_LIST, [at, position.source, position.seq])


def _position(cursor: str | None) -> Position | None:
    numbers = paging.decode_ids(_LIST, cursor, length=len(Position._fields))
    if numbers is None:
        return None
    at, source, seq = numbers
    try:
        position = Position(_EPOCH + at * _MICROSECOND, source, seq)
    except OverflowError:
        position = None
    if position is None or source not in _SOURCES or seq < 0:
        raise InvalidInput("cursor", "is not one that this list has given; begin without one")
    return position
