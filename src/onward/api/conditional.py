"""Conditional requests: the version of a resource as its ETag, and what `If-Match` may say.

A change names the one version that its caller saw. `*` and lists would defeat that, and a weak tag
never matches strongly (RFC 9110, 8.8.3.2), so none of them changes anything.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from onward.api.problems import Problem

_HEADER_MAX: Final = 200
_VERSION_MAX: Final = 2**63 - 1
_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*").fullmatch
_EACH = re.compile(_TAG).findall
_OURS = re.compile(r'"([1-9][0-9]{0,18})"').fullmatch


def etag(version: int) -> str:
    """Write a version as a strong entity tag."""
    return f'"{version}"'


def if_match(request: Request, *, what: str) -> int:
    """Return the one version of `what` that the caller wants to change, or refuse."""
    given = request.headers.getlist("if-match")
    if not given:
        raise _required(f"Send If-Match with the ETag of the {what} that you have seen.")
    if len(given) > 1:
        raise _malformed("There are several If-Match headers; send one.")
    (value,) = given
    if value == "*":
        raise _required(f"If-Match: * fits any version; name the one of the {what} you have seen.")
    if len(value) > _HEADER_MAX or not _TAGS(value):
        raise _malformed('If-Match is one ETag in double quotes, such as "3".')
    tags = _EACH(value)
    if len(tags) > 1:
        raise _malformed("If-Match names several versions; name the one that you have seen.")
    if value.startswith("W/"):
        raise Problem(
            412,
            "stale",
            "The version is not the present one",
            "A weak ETag never matches; send the strong one as it was received.",
        )
    found = _OURS(value)
    if found is None or int(found[1]) > _VERSION_MAX:
        raise _malformed(f"This is not an ETag of a {what}.")
    return int(found[1])


def described(what: str, *, example: str = '"1"', required: bool = True) -> dict[str, object]:
    """Describe `If-Match` for the documents of a route: FastAPI does not know that it is read."""
    return {
        "name": "If-Match",
        "in": "header",
        "required": required,
        "description": f"The ETag of the {what} that was seen.",
        "schema": {"type": "string"},
        "example": example,
    }


def stale(current: int) -> Problem:
    """Make the answer to a change of a version that is no longer the present one."""
    return Problem(
        412,
        "stale",
        "The version is not the present one",
        f"The present version is {current}; look at it, and decide again.",
        extra={"version": current, "etag": etag(current)},
        headers={"ETag": etag(current)},
    )


def none_match(request: Request, version: int) -> bool:
    """Say whether the caller of a GET already has this version, so that 304 is the answer."""
    given = ", ".join(request.headers.getlist("if-none-match"))
    if given == "*":
        return True
    if not _TAGS(given):
        return False
    # The weak comparison: a proxy that compressed the answer has made its tag a weak one.
    return etag(version) in {tag.removeprefix("W/") for tag in _EACH(given)}


def not_modified(version: int) -> Response:
    """Make the answer to a caller who already has this version."""
    return Response(status_code=304, headers={"ETag": etag(version)})


def _required(detail: str) -> Problem:
    return Problem(428, "if-match-required", "Say which version you mean", detail)


def _malformed(detail: str) -> Problem:
    return Problem(400, "if-match-malformed", "If-Match cannot be read", detail)
