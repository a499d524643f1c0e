"""Keys of the API: made once, listed without their secret, revoked for good; and who I am."""

from __future__ import annotations

from datetime import datetime
from typing import Final, assert_never

from fastapi import Request, Response
from pydantic import BaseModel, Field

from onward.api import paging
from onward.api.auth import Caller
from onward.api.first_key import FROM_ENVIRONMENT
from onward.api.models import Lenient, Model, Name
from onward.api.paging import Cursor, Id, Limit
from onward.api.permissions import GRANTS, Permission, Role, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Calling, Doing, Serving
from onward.errors import InvalidInput
from onward.store.keys import Revocation

_LIST: Final = "keys"

keys = router("/keys", "keys")
me = router("/me", "keys")


class NewKey(Model):
    """A key to be made."""

    name: Name = Field(description="What it is for.", examples=["deployments"])
    person: Name = Field(description="Whose it is: nobody approves their own.", examples=["ann"])
    role: Lenient[Role] = Field(examples=[Role.operator])


class ShownKey(BaseModel):
    """A key as it is listed."""

    id: int
    name: str
    person: str
    role: Role
    created_at: datetime
    created_by: str
    revoked_at: datetime | None
    revoked_by: str | None


class MadeKey(ShownKey):
    """A key that was made just now: the only answer with the key itself."""

    key: str


class KeyPage(BaseModel):
    """A page of keys."""

    items: list[ShownKey]
    next_cursor: str | None


class MySession(BaseModel):
    """The session of a browser."""

    expires_at: datetime


class Me(BaseModel):
    """Who is calling, and what they may do."""

    key_id: int | None
    name: str
    person: str
    role: Role
    permissions: list[Permission]
    session: MySession | None = Field(description="None for whoever has sent the key itself.")


@keys.post("", status_code=201, **needs(Permission.ADMIN))
async def make_key(
    wanted: NewKey, request: Request, response: Response, by: Doing, services: Serving
) -> MadeKey:
    """Make a key. It is shown in this answer and never again."""
    if wanted.name == FROM_ENVIRONMENT:
        raise InvalidInput("name", f"{FROM_ENVIRONMENT} is the name of the environment's own key")
    made, key = await services.keys.make(wanted.name, person=wanted.person, role=wanted.role, by=by)
    response.headers["Location"] = f"{request.url.path}/{made.id}"
    return MadeKey.model_validate({**made._asdict(), "key": key})


@keys.get("", **needs(Permission.ADMIN))
async def list_keys(services: Serving, limit: Limit = 100, cursor: Cursor = None) -> KeyPage:
    """List keys in the order of their making, revoked ones too."""
    position = paging.decode_ids(_LIST, cursor, length=1)
    found = await services.keys.list(after=position[0] if position else 0, limit=limit + 1)
    page, more = found[:limit], len(found) > limit
    return KeyPage(
        items=[ShownKey.model_validate(key._asdict()) for key in page],
        next_cursor=paging.encode(_LIST, [page[-1].id]) if more else None,
    )


@keys.delete(
    "/{key_id}",
    status_code=204,
    **needs(
        Permission.ADMIN,
        responses={
            404: problem_response("There is no such key"),
            409: problem_response("It is the last key of an admin"),
        },
    ),
)
async def revoke_key(key_id: Id, by: Doing, services: Serving) -> None:
    """Revoke a key. Revoking it again changes nothing."""
    match found := await services.keys.revoke(key_id, by=by):
        case Revocation.REVOKED | Revocation.REVOKED_BEFORE:
            return
        case Revocation.UNKNOWN:
            raise Problem(404, "unknown-key", "There is no such key")
        case Revocation.LAST_ADMIN:
            raise Problem(
                409,
                "last-admin",
                "This is the last key of an admin",
                "Without it nobody could make another one; make another one first.",
            )
        case _:
            assert_never(found)


@me.get("", **needs(Permission.ANY))
async def who_am_i(caller: Calling) -> Me:
    """Say whose key this is, and what it may do."""
    return shown_to(caller)


def shown_to(caller: Caller) -> Me:
    """Tell somebody who they are."""
    until = caller.session_until
    granted = [permission for permission in Permission if permission in GRANTS[caller.role]]
    return Me(
        key_id=caller.key_id,
        name=caller.name,
        person=caller.person,
        role=caller.role,
        permissions=granted,
        session=None if until is None else MySession(expires_at=until),
    )
