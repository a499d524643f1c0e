"""Blocks: what is forbidden on which host, by whom, why, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Response
from pydantic import BaseModel, Field

from onward.api import conditional, paging
from onward.api.conditional import Seen
from onward.api.hosts import HOST, UNKNOWN_HOST, SeenHost, host_of, unknown_host
from onward.api.intake import Selector
from onward.api.models import Model, Name, Text
from onward.api.paging import Cursor, Id, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Doing, Services, Serving
from onward.core.selectors import describe, parse
from onward.errors import InvalidInput
from onward.fleet.hosts import BLOCK_MAX, expiry, type_name
from onward.store import hosts as store
from onward.store.hosts import HostOutcome, Ruled
from onward.store.plans import refuse_no_hosts, unknown_type

_LIST: Final = "blocks"
_UNKNOWN: Final = {404: problem_response("There is no such host or block")}

of_host = router("/hosts", "hosts")
blocks = router("/blocks", "hosts")

ExpiresAt = Annotated[
    str | None,
    Field(
        max_length=64,
        description="When it ends by itself: RFC 3339 with an offset, in the future, at most "
        f"{BLOCK_MAX.days:,} days ahead.",
        examples=["2031-05-01T18:00:00+02:00"],
        json_schema_extra={"format": "date-time"},
    ),
]


class Rule(Model):
    """Why something is forbidden, by whom, and until when."""

    reason: Text = Field(min_length=1, examples=["its disk is being replaced"])
    owner: Name | None = Field(
        default=None, description="Whom to ask; the caller, if nobody is named.", examples=["ann"]
    )
    expires_at: ExpiresAt = None


class Rules(Rule):
    """A command type that is to be forbidden on many hosts."""

    selector: Selector = Field(examples=["role=db and zone=eu"])
    command_type: Name = Field(examples=["DEPLOY"])


class Lift(Model):
    """A command type that is to be allowed again on many hosts."""

    selector: Selector = Field(examples=["role=db and zone=eu"])
    command_type: Name = Field(examples=["DEPLOY"])


class Block(BaseModel):
    """A command type that somebody has forbidden on a host."""

    host_id: int
    host_name: str
    command_type: str
    reason: str
    owner: str
    created_at: datetime
    expires_at: datetime | None
    in_force: bool = Field(description="Whether it forbids anything now; not once it has expired.")


class BlockPage(BaseModel):
    """A page of blocks, in the order of their hosts."""

    items: list[Block]
    next_cursor: str | None


class Blocked(BaseModel):
    """On how many hosts a command type is forbidden now."""

    selector: str = Field(description="The selector, as it was understood.")
    command_type: str
    blocked: int


class Lifted(BaseModel):
    """From how many hosts a block was taken."""

    selector: str = Field(description="The selector, as it was understood.")
    command_type: str
    matched: int = Field(description="How many hosts the selector matches.")
    lifted: int = Field(description="How many of them had the block.")


@of_host.put(
    "/{host_id}/blocks/{command_type}",
    **HOST.on(needs(Permission.MANAGE, responses=UNKNOWN_HOST)),
)
async def block_host(
    host_id: Id,
    command_type: str,
    rule: Rule,
    seen: SeenHost,
    response: Response,
    by: Doing,
    services: Serving,
) -> Block:
    """Forbid a command type on a host, in place of any former block. What runs already goes on."""
    known = await _known_type(services, command_type)
    made = await store.block(
        services.pool,
        host_id,
        known,
        version=seen.version,
        reason=rule.reason,
        owner=rule.owner or by.name,
        expires_at=_expiry(rule),
        by=by,
    )
    if made.block is None or made.version is None:
        raise _refusal(made, seen)
    services.attendance.nudge()
    response.headers["ETag"] = conditional.etag(made.version)
    return _shown(made.block)


@of_host.delete(
    "/{host_id}/blocks/{command_type}",
    status_code=204,
    **HOST.on(needs(Permission.MANAGE, responses=_UNKNOWN)),
)
async def unblock_host(
    host_id: Id,
    command_type: str,
    seen: SeenHost,
    response: Response,
    by: Doing,
    services: Serving,
) -> None:
    """Allow a command type on a host again."""
    checked = type_name("command_type", command_type)
    lifted = await store.unblock(services.pool, host_id, checked, version=seen.version, by=by)
    if lifted.outcome is not HostOutcome.CHANGED or lifted.version is None:
        raise _refusal(lifted, seen)
    services.attendance.nudge()
    response.headers["ETag"] = conditional.etag(lifted.version)


@of_host.get("/{host_id}/blocks", **needs(Permission.READ, responses=UNKNOWN_HOST))
async def list_blocks_of_host(
    host_id: Id, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> BlockPage:
    """List what is forbidden on a host, and what was until it expired."""
    await host_of(services, host_id)
    kind = f"blocks of host {host_id}"
    _, after = _position(kind, cursor)
    found = await store.blocks_of(services.pool, host_id, after=after, limit=limit + 1)
    return _page(found, limit, kind=kind)


@blocks.get("", **needs(Permission.READ))
async def list_blocks(services: Serving, limit: Limit = 100, cursor: Cursor = None) -> BlockPage:
    """List all blocks, also those that have expired."""
    after = _position(_LIST, cursor)
    found = await store.blocks_page(services.pool, after=after, limit=limit + 1)
    return _page(found, limit, kind=_LIST)


@blocks.post("", **needs(Permission.MANAGE))
async def block_hosts(rules: Rules, by: Doing, services: Serving) -> Blocked:
    """Forbid a command type on every host that a selector matches, disabled ones too."""
    selector = parse(rules.selector)
    known = await _known_type(services, rules.command_type)
    chosen = await store.block_chosen(
        services.pool,
        selector,
        known,
        reason=rules.reason,
        owner=rules.owner or by.name,
        expires_at=_expiry(rules),
        by=by,
    )
    refuse_no_hosts(chosen.missing, chosen.hosts)
    services.attendance.nudge()
    return Blocked(selector=describe(selector), command_type=known, blocked=chosen.hosts)


@blocks.post("/lift", **needs(Permission.MANAGE))
async def lift_blocks(wanted: Lift, by: Doing, services: Serving) -> Lifted:
    """Allow a command type again on every host that a selector matches."""
    selector = parse(wanted.selector)
    checked = type_name("command_type", wanted.command_type)
    chosen = await store.lift_chosen(services.pool, selector, checked, by=by)
    refuse_no_hosts(chosen.missing, chosen.hosts)
    services.attendance.nudge()
    return Lifted(
        selector=describe(selector),
        command_type=checked,
        matched=chosen.hosts,
        lifted=chosen.lifted,
    )


def _refusal(ruled: Ruled, seen: Seen) -> Problem:
    """Say why nothing was forbidden on a host, or allowed again."""
    if ruled.version is None:
        return unknown_host()
    if ruled.outcome is HostOutcome.STALE:
        return seen.stale(ruled.version)
    return Problem(404, "unknown-block", "There is no such block on this host")


async def _known_type(services: Services, name: str) -> str:
    """Return the name of a type that there is: a block on a misspelt one would forbid nothing."""
    checked = type_name("command_type", name)
    if await store.get_type(services.pool, checked) is None:
        raise await unknown_type(services.pool, checked)
    return checked


def _expiry(rule: Rule) -> datetime | None:
    if rule.expires_at is None:
        return None
    return expiry("expires_at", rule.expires_at, now=datetime.now(UTC))


def _position(kind: str, cursor: str | None) -> tuple[int, str]:
    match paging.decode(kind, cursor):
        case None:
            return (0, "")
        case [int(host_id), str(command_type)]:
            return (host_id, command_type)
        case _:
            raise InvalidInput("cursor", "is not one that this list has given; begin without one")


def _page(found: Sequence[store.Block], limit: int, *, kind: str) -> BlockPage:
    page, more = found[:limit], len(found) > limit
    return BlockPage(
        items=[_shown(block) for block in page],
        next_cursor=(
            paging.encode(kind, [page[-1].host_id, page[-1].command_type]) if more else None
        ),
    )


def _shown(block: store.Block) -> Block:
    return Block.model_validate(block, from_attributes=True)
