"""Command types: what can be asked of a host, and how carefully.

Only an admin writes them: whoever could say that a type needs no approval could run anything alone.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Request, Response
from pydantic import BaseModel, Field

from onward.api import conditional, paging
from onward.api.conditional import etag
from onward.api.models import Model, Name
from onward.api.paging import Cursor, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Doing, Serving
from onward.channels.program import ARGUMENTS_MAX, check_masked, check_template
from onward.errors import InvalidInput
from onward.fleet.hosts import type_name
from onward.store import hosts as store
from onward.store import inputs

_LIST: Final = "command types"
_UNKNOWN = {404: problem_response("There is no such command type")}
_TIMEOUT_MAX_S: Final = 366 * 86_400
_ARGUMENT_MAX: Final = 4_096  # characters
_MASKED_MAX: Final = 64
_TAG = re.compile(r'(W/)?"([0-9a-f]{32})"').fullmatch
_NEVER: Final = ""  # the digest of no type
_EXAMPLE: Final = conditional.CONTENT.example

Argument = Annotated[str, Field(max_length=_ARGUMENT_MAX)]

command_types = router("/command-types", "hosts")


class CommandTypeBody(Model):
    """A command type, said whole: what is left out would otherwise be taken for a wish."""

    needs_approval: bool = Field(
        description="Whether its jobs wait until somebody else has approved them.", examples=[True]
    )
    read_only: bool = Field(
        description="Whether it may share a host with others that are read-only.", examples=[False]
    )
    timeout_s: float = Field(
        ge=0.1,
        le=_TIMEOUT_MAX_S,
        description="Seconds that an attempt may take.",
        examples=[60],
    )
    max_retries: int = Field(
        ge=0, le=1_000, description="How often a failed attempt is tried again.", examples=[3]
    )
    argv: list[Argument] | None = Field(
        default=None,
        max_length=ARGUMENTS_MAX,
        description="The program and its arguments, in which `{name}` stands for a parameter of a "
        "job. Without it, each job says itself what is run.",
        examples=[["systemctl", "restart", "{service}"]],
    )
    masked: list[Name] = Field(
        default_factory=list,
        max_length=_MASKED_MAX,
        description="Parameters that nobody is to see. The program finds each in its environment: "
        "`token` as `ONWARD_TOKEN`.",
        examples=[["token"]],
    )


class CommandType(BaseModel):
    """What can be asked of a host, and how carefully."""

    name: str
    needs_approval: bool
    read_only: bool
    timeout_s: float
    max_retries: int
    argv: list[str] | None
    masked: list[str]


class CommandTypePage(BaseModel):
    """A page of command types, by name."""

    items: list[CommandType]
    next_cursor: str | None


@command_types.get("", **needs(Permission.READ))
async def list_command_types(
    services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> CommandTypePage:
    """List command types by name."""
    found = await store.types(services.pool, after=_position(cursor), limit=limit + 1)
    page = found[:limit]
    return CommandTypePage(
        items=[_shown(each) for each in page],
        next_cursor=paging.encode(_LIST, [page[-1].name]) if len(found) > limit else None,
    )


@command_types.get(
    "/{name}",
    response_model=CommandType,
    **needs(
        Permission.READ,
        responses={**_UNKNOWN, 304: {"description": "The caller has this version"}},
    ),
)
async def get_command_type(
    name: str, request: Request, response: Response, services: Serving
) -> CommandType | Response:
    """Return one command type. Its ETag is what a change may name."""
    found = await store.get_type(services.pool, type_name("name", name))
    if found is None:
        raise _unknown()
    if conditional.none_match(request, found.digest):
        return conditional.not_modified(found.digest)
    return _answer(response, found)


_CHANGES = needs(
    Permission.ADMIN,
    responses={
        400: problem_response("If-Match cannot be read"),
        412: problem_response("It is no longer the version that was seen, or is gone"),
    },
)
_CHANGES["openapi_extra"]["parameters"] = [
    conditional.described("command type", example=etag(_EXAMPLE), required=False)
]


@command_types.put("/{name}", **_CHANGES)
async def put_command_type(
    name: str,
    wanted: CommandTypeBody,
    request: Request,
    response: Response,
    by: Doing,
    services: Serving,
) -> CommandType:
    """Make a command type, or change the one of this name. Jobs that are there stay as they are.

    With `If-Match`, only the version that was seen is changed, and nothing is made.
    """
    checked = type_name("name", name)
    if wanted.argv is not None:
        check_template(wanted.argv, wanted.masked)
        inputs.json_value("argv", wanted.argv, max_bytes=services.settings.payload_max_bytes)
    check_masked(wanted.masked)
    put = await store.put_type(
        services.pool, checked, **wanted.model_dump(), seen=_seen(request), by=by
    )
    if not put.done or put.type is None:
        raise _stale(put.type)
    return _answer(response, put.type)


@command_types.delete("/{name}", status_code=204, **needs(Permission.ADMIN, responses=_UNKNOWN))
async def delete_command_type(name: str, by: Doing, services: Serving) -> None:
    """Delete a command type. Its jobs run to their end, and blocks on its name stay."""
    if not await store.delete_type(services.pool, type_name("name", name), by=by):
        raise _unknown()


def _position(cursor: str | None) -> str:
    match paging.decode(_LIST, cursor):
        case None:
            return ""
        case [str(name)]:
            return name
        case _:
            raise InvalidInput("cursor", "is not one that this list has given; begin without one")


def _seen(request: Request) -> str | None:
    """Return the digest of the type that the caller has seen, if the caller says so."""
    given = request.headers.getlist("if-match")
    if not given:
        return None
    found = _TAG(given[0]) if len(given) == 1 else None
    if found is None:
        raise Problem(
            400,
            "if-match-malformed",
            "If-Match cannot be read",
            "Send the ETag of the command type as it was received, or no If-Match at all.",
        )
    # A weak tag never matches.
    return _NEVER if found[1] else found[2]


def _stale(present: store.CommandType | None) -> Problem:
    if present is not None:
        return conditional.stale(present.digest, tags=conditional.CONTENT)
    return Problem(
        412, "stale", "The version is not the present one", "There is no such command type any more"
    )


def _answer(response: Response, found: store.CommandType) -> CommandType:
    response.headers["ETag"] = etag(found.digest)
    return _shown(found)


def _shown(found: store.CommandType) -> CommandType:
    return CommandType.model_validate(found, from_attributes=True)


def _unknown() -> Problem:
    return Problem(404, "unknown-command-type", "There is no such command type")
