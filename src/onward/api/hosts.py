"""Hosts: made, looked at, labelled, disabled, and deleted as long as they have no past."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, Field

from onward.api import conditional, paging
from onward.api.conditional import Guard, Seen
from onward.api.executions import ExecutionPage, StatusFilter, checked_statuses, execution_page
from onward.api.models import Model, Name
from onward.api.paging import Counting, Cursor, Id, Limit, id_of
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Doing, Services, Serving, services_of
from onward.core.selectors import parse
from onward.errors import InvalidInput
from onward.fleet.hosts import (
    ADDRESS_MAX,
    MAX_LABELS,
    Channel,
    checked_address,
    checked_labels,
    new_host,
)
from onward.store import browse, inputs
from onward.store import hosts as store
from onward.store.hosts import Changed, HostOutcome, HostState, NewHost
from onward.store.inputs import NAME_MAX

_LIST: Final = "hosts"

UNKNOWN_HOST: Final = {404: problem_response("There is no such host")}
_IN_USE: Final = problem_response(
    "Another request is changing it, or executions name it: disable it instead"
)

hosts = router("/hosts", "hosts")


async def _version(request: Request) -> int:
    return (await host_of(services_of(request), id_of(request, "host_id"))).version


HOST: Final = Guard(
    "host", current=_version, lock=lambda request: f"host:{id_of(request, 'host_id')}"
)
SeenHost = Annotated[Seen, Depends(HOST, scope="function")]


Labels = Annotated[
    dict[str, str],
    Field(
        max_length=MAX_LABELS,
        description="What selectors find it by. Everybody who may read hosts sees them.",
        examples=[{"role": "web", "zone": "eu"}],
    ),
]
Address = Annotated[
    str,
    Field(
        max_length=ADDRESS_MAX,
        description="Where its channel finds it, in the words of the channel.",
        examples=["10.0.0.7:22"],
    ),
]


class NewHostBody(Model):
    """A host to be made."""

    name: Name = Field(examples=["web-07.example.com"])
    labels: Labels = Field(default_factory=dict)
    channel: Channel = "simulated"
    address: Address = ""


class HostChange(Model):
    """What is to be changed of a host; what is not named stays. Labels are replaced as a whole."""

    # Nothing is taken from these defaults. They are made, so that the description shows none.
    labels: Labels = Field(default_factory=dict)
    channel: Channel = Field(default_factory=lambda: "simulated")
    address: Address = Field(default_factory=str)
    state: HostState = Field(
        default_factory=lambda: "ACTIVE", description="A disabled host is in no new job."
    )


class Host(BaseModel):
    """A host, as it is now."""

    host_id: int
    name: str
    labels: dict[str, str]
    channel: str
    address: str
    state: HostState
    version: int
    created_at: datetime
    updated_at: datetime


class HostPage(BaseModel):
    """A page of hosts, in the order in which they were made."""

    items: list[Host]
    next_cursor: str | None
    count: int = Field(default=0, description="On all pages; only with `count=true`.", examples=[2])


@hosts.post(
    "",
    status_code=201,
    **needs(
        Permission.MANAGE,
        responses={409: problem_response("Another host has this name; the answer says which")},
    ),
)
async def make_host(wanted: NewHostBody, response: Response, by: Doing, services: Serving) -> Host:
    """Make a host."""
    host = new_host(
        wanted.name, labels=wanted.labels, channel=wanted.channel, address=wanted.address
    )
    made = await store.create(services.pool, host, by=by)
    if made is None:
        raise await _taken(services, host)
    response.headers["Location"] = f"/hosts/{made.host_id}"
    return _answer(response, made)


@hosts.get("", response_model_exclude_unset=True, **needs(Permission.READ))
async def list_hosts(
    services: Serving,
    limit: Limit = 100,
    cursor: Cursor = None,
    selector: Annotated[
        str,
        Query(description="Only these: `all`, or an expression such as `role=web and zone!=eu`."),
    ] = "all",
    search: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=NAME_MAX,
            description="Only where this is in the name, in capitals or not.",
        ),
    ] = None,
    *,
    count: Counting = False,
) -> HostPage:
    """List hosts, disabled ones too."""
    chosen, part = parse(selector), None if search is None else inputs.text("search", search)
    position = paging.decode_ids(_LIST, cursor, length=1)
    found = await store.page(
        services.pool, chosen, part, after=position[0] if position else 0, limit=limit + 1
    )
    page = found[:limit]
    answer = HostPage(
        items=[_shown(host) for host in page],
        next_cursor=paging.encode(_LIST, [page[-1].host_id]) if len(found) > limit else None,
    )
    if count:
        answer.count = await store.count(services.pool, chosen, part)
    return answer


@hosts.get(
    "/{host_id}",
    response_model=Host,
    **needs(
        Permission.READ,
        responses={**UNKNOWN_HOST, 304: {"description": "The caller has this version"}},
    ),
)
async def get_host(
    host_id: Id, request: Request, response: Response, services: Serving
) -> Host | Response:
    """Return a host. Its ETag is the version that a change names."""
    host = await host_of(services, host_id)
    if conditional.none_match(request, host.version):
        return conditional.not_modified(host.version)
    return _answer(response, host)


@hosts.patch("/{host_id}", **HOST.on(needs(Permission.MANAGE, responses=UNKNOWN_HOST)))
async def change_host(
    host_id: Id,
    wanted: HostChange,
    seen: SeenHost,
    response: Response,
    by: Doing,
    services: Serving,
) -> Host:
    """Change the version of a host that was seen: its ETag goes in `If-Match`."""
    named = wanted.model_fields_set
    if not named:
        raise InvalidInput("body", "names nothing to change")
    changed = await store.change(
        services.pool,
        host_id,
        version=seen.version,
        labels=checked_labels("labels", wanted.labels) if "labels" in named else None,
        address=checked_address("address", wanted.address) if "address" in named else None,
        channel=wanted.channel if "channel" in named else None,
        state=wanted.state if "state" in named else None,
        by=by,
    )
    if changed.outcome is not HostOutcome.CHANGED or changed.host is None:
        raise _refusal(changed, seen)
    return _answer(response, changed.host)


@hosts.delete(
    "/{host_id}",
    status_code=204,
    **HOST.on(needs(Permission.MANAGE, responses={**UNKNOWN_HOST, 409: _IN_USE})),
)
async def delete_host(host_id: Id, seen: SeenHost, by: Doing, services: Serving) -> None:
    """Delete a host that nothing has ever been run on, and the blocks on it."""
    deleted = await store.delete(services.pool, host_id, version=seen.version, by=by)
    if deleted.outcome is not HostOutcome.DELETED:
        raise _refusal(deleted, seen)


@hosts.get("/{host_id}/executions", **needs(Permission.READ, responses=UNKNOWN_HOST))
async def list_executions_of_host(
    host_id: Id,
    services: Serving,
    limit: Limit = 100,
    cursor: Cursor = None,
    status: StatusFilter = None,
) -> ExecutionPage:
    """List what ran on a host, or is to run there, the newest first."""
    await host_of(services, host_id)
    kind = f"executions of host {host_id}"
    position = paging.decode_ids(kind, cursor, length=1)
    found = await browse.executions_of_host(
        services.pool,
        host_id,
        limit=limit + 1,
        statuses=checked_statuses(status),
        **({"before": position[0]} if position else {}),
    )
    return execution_page(found, limit, kind=kind, key="execution_id")


async def host_of(services: Services, host_id: int) -> store.Host:
    """Return a host as it is now, or say that there is none."""
    host = await store.get(services.pool, host_id)
    if host is None:
        raise unknown_host()
    return host


def unknown_host() -> Problem:
    """Make the answer to a question about a host that is not there."""
    return Problem(404, "unknown-host", "There is no such host")


async def _taken(services: Services, host: NewHost) -> Problem:
    # It may have been deleted since; then nobody has the name now, and trying again will do.
    other = await store.named(services.pool, host.name)
    return Problem(
        409,
        "name-taken",
        "Another host has this name",
        f"It is host {other.host_id}; change that one, or choose another name."
        if other
        else "It is gone by now; try again.",
        extra={"host_id": other.host_id if other else None},
    )


def _refusal(changed: Changed, seen: Seen) -> Problem:
    """Say why a host was neither changed nor deleted."""
    if changed.host is None:
        return unknown_host()
    if changed.outcome is HostOutcome.STALE:
        return seen.stale(changed.host.version)
    return Problem(
        409,
        "host-in-use",
        "The host has a past",
        "Executions name it, so it cannot be deleted; disable it instead: "
        'PATCH it with {"state": "DISABLED"}.',
        headers={"ETag": conditional.etag(changed.host.version)},
    )


def _answer(response: Response, host: store.Host) -> Host:
    response.headers["ETag"] = conditional.etag(host.version)
    return _shown(host)


def _shown(host: store.Host) -> Host:
    return Host.model_validate(host, from_attributes=True)
