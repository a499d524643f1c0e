"""What may be done, who may do it, and how a route says what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

_PROBLEM: Final = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_REFUSALS: Final = MappingProxyType(
    {
        401: "No key and no session, or none that is known",
        403: "The role of this key does not allow it",
    }
)


class Permission(StrEnum):
    """What a route asks of its caller."""

    READ = "read"
    RUN = "run"
    APPROVE = "approve"
    MANAGE = "manage"
    REPORT = "report"
    TRADE = "trade"
    ADMIN = "admin"
    ANY = "any"  # a key, of whatever role
    PUBLIC = "public"  # nobody is asked for a key


class Role(StrEnum):
    """What a key is for; the database knows the same ones."""

    viewer = "viewer"
    operator = "operator"
    approver = "approver"
    trader = "trader"
    admin = "admin"


GRANTS: Final[Mapping[Role, frozenset[Permission]]] = MappingProxyType(
    {
        Role.viewer: frozenset({Permission.READ}),
        Role.operator: frozenset(
            {Permission.READ, Permission.RUN, Permission.MANAGE, Permission.REPORT}
        ),
        # Whoever approves does not run: four eyes would be two if one key could do both.
        Role.approver: frozenset({Permission.READ, Permission.APPROVE}),
        # Whoever trades need not see the fleet, nor whoever runs it somebody's account.
        Role.trader: frozenset({Permission.TRADE}),
        Role.admin: frozenset(Permission) - {Permission.ANY, Permission.PUBLIC},
    }
)


def needs(
    permission: Permission,
    *,
    signed: bool = False,
    responses: Mapping[int, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return what a route decorator takes to ask for a permission, and to say so in the docs.

    With `signed`, a signed webhook is let in as well. `responses` are documented besides the
    common ones.
    """
    public = permission is Permission.PUBLIC
    security: list[dict[str, list[str]]] = [] if public else [{"key": []}, {"session": []}]
    extra: dict[str, Any] = {"x-permission": permission.value, "security": security}
    if signed:
        security.append({"webhook": []})
        extra["x-signed"] = True
    refusals = {} if public else _REFUSALS
    return {
        "openapi_extra": extra,
        "responses": {
            **{status: problem_response(told) for status, told in refusals.items()},
            422: problem_response("A field is missing, unknown or wrong"),
            "default": problem_response("Anything else that went wrong"),
            **(responses or {}),
        },
    }


def problem_response(description: str) -> dict[str, Any]:
    """Document an answer that is a problem."""
    return {"description": description, "content": _PROBLEM}
