"""Who calls: the key in the `Authorization` header, and what its role lets it do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from starlette.types import Scope

from onward.api.permissions import GRANTS, Permission, Role
from onward.api.problems import Problem
from onward.store.keys import Keys, KnownKey

# Keys that we make are `onw_` and 43 characters; one from the environment may look otherwise.
_BEARER = re.compile(rb"bearer +([!-~]{32,255})", re.IGNORECASE).fullmatch
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="onward"'}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever made the request."""

    key_id: int | None  # none for a signed webhook
    name: str
    person: str
    role: Role

    def may(self, permission: Permission) -> bool:
        """Say whether the role of the caller grants a permission."""
        return permission in GRANTS[self.role]


async def caller_by_key(scope: Scope, keys: Keys) -> Caller:
    """Return whose key the request carries, or refuse it with 401."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if not given:
        raise unauthorized("key-missing", "Send your key as `Authorization: Bearer onw_...`.")
    # Of two headers, a proxy and we might believe different ones.
    found = _BEARER(given[0]) if len(given) == 1 else None
    if found is None:
        raise unauthorized("key-malformed", "This is not `Authorization: Bearer onw_...`.")
    key = await keys.find(found[1])
    if key is None:
        raise unauthorized("key-unknown", "This key is not known, or has been revoked.")
    return _caller(key)


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


def unauthorized(code: str, detail: str) -> Problem:
    """Make the refusal of somebody who has not shown who they are."""
    return Problem(401, code, "The caller is not known", detail, headers=_CHALLENGE)
