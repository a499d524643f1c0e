"""Who calls, and what the role of their key lets them do.

The key is in the `Authorization` header, or was shown by the browser whose cookie came instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from starlette.types import Scope

from onward.api import cookies
from onward.api.permissions import GRANTS, Permission, Role
from onward.api.problems import Problem, unauthorized
from onward.store.keys import Keys, KnownKey
from onward.store.sessions import Session, Sessions

# Keys that we make are `onw_` and 43 characters; one from the environment may look otherwise.
_BEARER = re.compile(rb"bearer +([!-~]{32,255})", re.IGNORECASE).fullmatch

_BASIC = re.compile(rb"basic .*", re.IGNORECASE | re.DOTALL).fullmatch


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever made the request."""

    key_id: int | None  # none for a signed webhook
    name: str
    person: str
    role: Role
    session_until: datetime | None = None  # when the session ends, for a browser that has one

    def may(self, permission: Permission) -> bool:
        """Say whether the role of the caller grants a permission."""
        return permission is Permission.ANY or permission in GRANTS[self.role]


async def caller_of(scope: Scope, keys: Keys, sessions: Sessions) -> Caller:
    """Return who makes a request, or refuse it with 401. Of a key and a cookie, the key counts."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    # What a browser says to a proxy that asks for a password is not meant for us.
    if not given or (len(given) == 1 and _BASIC(given[0]) and cookies.is_there(scope)):
        return await _by_cookie(scope, sessions)
    # Of two headers, a proxy and we might believe different ones.
    found = _BEARER(given[0]) if len(given) == 1 else None
    if found is None:
        raise unauthorized("key-malformed", "This is not `Authorization: Bearer onw_...`.")
    key = await keys.find(found[1])
    if key is None:
        raise unauthorized("key-unknown", "This key is not known, or has been revoked.")
    return _caller(key)


async def _by_cookie(scope: Scope, sessions: Sessions) -> Caller:
    secret = cookies.secret_of(scope)
    if secret is None:
        raise unauthorized("key-missing", "Send your key as `Authorization: Bearer onw_...`.")
    session = await sessions.find(secret)
    if session is None:
        raise unauthorized(
            "session-unknown",
            "The session has ended, or its key has been revoked: log in again.",
        )
    return caller_in(session)


def caller_in(session: Session) -> Caller:
    """Return whose session it is."""
    return replace(_caller(session.key), session_until=session.expires_at)


@lru_cache(maxsize=1_024)
def _caller(key: KnownKey) -> Caller:
    return Caller(key.id, key.name, key.person, Role(key.role))


def require(caller: Caller, permission: Permission) -> None:
    """Refuse with 403 a caller whose role does not grant a permission."""
    if not caller.may(permission):
        raise Problem(
            403,
            "permission-missing",
            "This key may not do that",
            f"It takes the permission `{permission}`, which the role `{caller.role}` has not.",
            extra={"permission": permission.value, "role": caller.role.value},
        )
