"""Agents: a token for a host, its exchange for a key, taking the key back, and who is connected."""

from __future__ import annotations

import base64
import time
from datetime import datetime
from typing import Annotated, Final

from fastapi import Query, Request
from pydantic import BaseModel, Field

from onward.api import paging
from onward.api.hosts import UNKNOWN_HOST, unknown_host
from onward.api.models import Model
from onward.api.paging import ID_MAX, Cursor, Id, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Doing, Serving
from onward.api.tracing import request_id_of
from onward.api.tries import Tries
from onward.channels.agent.wire import Close
from onward.fleet import agents as fleet
from onward.fleet.agents import NONCE_MIN, TOKEN_MAX_S, TOKEN_S
from onward.store import agents as store
from onward.store import hosts

_LIST: Final = "agents"
_TEXT_MAX: Final = 255

agents = router("/agents", "agents")
of_host = router("/hosts", "agents")


class NewToken(Model):
    """For how long a token is good."""

    ttl_s: Annotated[float, Field(ge=1, le=TOKEN_MAX_S, examples=[TOKEN_S])] = TOKEN_S


class MadeToken(BaseModel):
    """A token that was made just now: the only answer with the token itself."""

    host_id: int
    token: str
    expires_at: datetime


class MadeNodeKey(BaseModel):
    """A key that was made just now: the only answer with the key itself."""

    host_id: int
    key: str = Field(description="32 bytes, hexadecimal, as the node is given them.")


class Exchange(Model):
    """A token that is to be exchanged for a key."""

    token: str = Field(
        min_length=1,
        max_length=_TEXT_MAX,
        description="What `POST /hosts/{host_id}/enrolment` has answered.",
        examples=["oat_an-example-of-a-token-that-nobody-has-made"],
    )
    nonce: str = Field(
        min_length=NONCE_MIN,
        max_length=_TEXT_MAX,
        description="Made up by the agent, and kept: with it, and only with it, the same token may "
        "be exchanged again while it lasts.",
        examples=["an-example-of-a-nonce"],
    )


class Enrolled(BaseModel):
    """The host that an agent speaks for now, and the key that it shows it with."""

    host_id: int
    host: str
    generation: int
    key: str = Field(description="32 bytes, in base64url.")
    server_time: float = Field(description="In unix seconds.")


class Agent(BaseModel):
    """An agent that has been connected at least once."""

    host_id: int
    host: str
    connected: bool
    since: datetime = Field(description="When it connected, or since when it is away.")
    version: str
    remote: str = Field(description="The address that it was last connected from.")


class AgentPage(BaseModel):
    """A page of agents, in the order of their hosts."""

    items: list[Agent]
    next_cursor: str | None


@agents.post(
    "/enrol",
    **needs(
        Permission.PUBLIC,
        responses={
            403: problem_response("The token is not good for a key"),
            429: problem_response("Too many tokens that are good for nothing came from there"),
        },
    ),
)
async def enrol_agent(wanted: Exchange, request: Request, services: Serving) -> Enrolled:
    """Exchange a token for the key of its host."""
    tries: Tries = request.app.state.tries
    where = request.client.host if request.client else ""
    enrolled = await fleet.enrol(
        services.pool,
        services.keyring,
        wanted.token,
        nonce=wanted.nonce,
        request_id=request_id_of(request),
    )
    if enrolled is None:
        # After the look: behind a proxy, those who guess and those who know have one address.
        tries.refuse(where, "tokens that are good for nothing")
        tries.failed(where)
        raise Problem(
            403,
            "token-refused",
            "This token is not good for a key",
            "It has ended, or somebody has used it, or it never was one: "
            "ask for another with POST /hosts/{host_id}/enrolment.",
        )
    # Whoever is connected with the former key goes.
    services.attendance.nudge()
    host_id, host, generation, key = enrolled
    return Enrolled(
        host_id=host_id,
        host=host,
        generation=generation,
        key=base64.urlsafe_b64encode(key).decode(),
        server_time=time.time(),
    )


@agents.get("", **needs(Permission.READ))
async def list_agents(
    services: Serving,
    limit: Limit = 100,
    cursor: Cursor = None,
    host_id: Annotated[int | None, Query(ge=1, le=ID_MAX, description="Only that of this.")] = None,
) -> AgentPage:
    """List the agents that have ever been connected, and whether they are."""
    position = paging.decode_ids(_LIST, cursor, length=1)
    after = position[0] if position else 0
    found = await store.page(
        services.pool,
        after=after if host_id is None else max(after, host_id - 1),
        limit=limit + 1 if host_id is None else 1,
        lost_after_s=services.settings.worker_lost_after_s,
    )
    if host_id is not None:
        found = [agent for agent in found if agent.host_id == host_id]
    page = found[:limit]
    return AgentPage(
        items=[Agent.model_validate(agent._asdict()) for agent in page],
        next_cursor=paging.encode(_LIST, [page[-1].host_id]) if len(found) > limit else None,
    )


@of_host.post(
    "/{host_id}/enrolment", status_code=201, **needs(Permission.ADMIN, responses=UNKNOWN_HOST)
)
async def make_enrolment(
    host_id: Id, by: Doing, services: Serving, wanted: NewToken | None = None
) -> MadeToken:
    """Make a token for the agent of a host, in place of any former one; it is shown only here."""
    made = await fleet.make_token(services.pool, host_id, by=by, ttl_s=(wanted or NewToken()).ttl_s)
    if made is None:
        raise unknown_host()
    return MadeToken(host_id=host_id, token=made.token, expires_at=made.expires_at)


@of_host.delete(
    "/{host_id}/key", status_code=204, **needs(Permission.ADMIN, responses=UNKNOWN_HOST)
)
async def take_key(host_id: Id, by: Doing, services: Serving) -> None:
    """Make the key of a host worthless, and its token too; whoever is connected with it goes."""
    if not await fleet.take_key(services.pool, host_id, by=by):
        raise unknown_host()
    services.hub.dismiss(host_id, Close.REVOKED, "the key of this host has been taken from it")


@of_host.post(
    "/{host_id}/key",
    status_code=201,
    **needs(
        Permission.ADMIN,
        responses={**UNKNOWN_HOST, 409: problem_response("The host is not reached over MQTT")},
    ),
)
async def make_node_key(host_id: Id, by: Doing, services: Serving) -> MadeNodeKey:
    """Make a key for the node of a host, in place of any former one; it is shown only here."""
    host = await hosts.get(services.pool, host_id)
    if host is None:
        raise unknown_host()
    if host.channel != "mqtt":
        raise Problem(
            409,
            "not-a-node",
            "The host is not reached over MQTT",
            "Only nodes are given a key; an agent exchanges a token for its own.",
        )
    key = await fleet.make_node_key(services.pool, services.keyring, host_id, by=by)
    if key is None:
        raise unknown_host()
    return MadeNodeKey(host_id=host_id, key=key.hex())
