"""Conditional requests: the version of a resource as its ETag, and the guard before its change.

A change names the one version that its caller saw. `*` and lists would defeat that, and a weak tag
never matches strongly (RFC 9110, 8.8.3.2), so none of them changes anything.

The guard reads what was seen and takes the lock that sheds contention. It decides nothing: the
handler makes its change conditional on the version, in the UPDATE itself.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from onward.api import documents, problems
from onward.api.permissions import problem_response
from onward.api.problems import Problem
from onward.api.services import services_of
from onward.store.locks import Locks

_HEADER_MAX: Final = 200
_VERSION_MAX: Final = 2**63 - 1
_RETRY_AFTER_S: Final = 1
_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*").fullmatch
_EACH = re.compile(_TAG).findall
_DIGITS = re.compile(r"[1-9][0-9]{0,18}").fullmatch
_DIGEST = re.compile(r"[0-9a-f]{32}").fullmatch
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


class Tags(NamedTuple):
    """What the ETags of a kind of resource look like; another kind is another of these."""

    name: str  # what a tag of this kind is to people, and in the body of an answer
    ours: Callable[[str], bool]  # whether we can have given it: what is between the quotes
    told: Callable[[str], object]  # how the body of an answer has it
    example: str


def _is_version(value: str) -> bool:
    return _DIGITS(value) is not None and int(value) <= _VERSION_MAX


def _is_uuid(value: str) -> bool:
    return _UUID(value) is not None


def _is_digest(value: str) -> bool:
    return _DIGEST(value) is not None


VERSION: Final = Tags("version", ours=_is_version, told=int, example="1")
TOKEN: Final = Tags(
    "token", ours=_is_uuid, told=str, example="00000000-0000-0000-0000-000000000000"
)
# Of what has no column for a version: a digest of all that it is.
CONTENT: Final = Tags(
    "version", ours=_is_digest, told=str, example="9e107d9d372bb6826bd81d3542a419d6"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the caller has seen, and wants to change."""

    tag: str  # what is between the quotes
    tags: Tags = VERSION

    @property
    def version(self) -> int:
        """The version, of a resource whose tags are versions."""
        return int(self.tag)

    def stale(self, current: int | str) -> Problem:
        """Make the answer to a change that the UPDATE refused, because it has `current` now."""
        return stale(current, tags=self.tags)


class _Weak(Problem):
    """The tag is a weak one; a guard puts the present one into the answer."""

    def __init__(self) -> None:
        super().__init__(
            412,
            "stale",
            "The version is not the present one",
            "A weak ETag never matches; send the strong one as it was received.",
        )


class Guard:
    """What stands before a change: any FastAPI route can declare it.

        seen: Annotated[Seen, Depends(GUARD, scope="function")]

    With that scope the lock is free before the answer goes out; with the other one, the caller's
    next request could meet the lock of this one.
    """

    def __init__(
        self,
        what: str,
        *,
        current: Callable[[Request], Awaitable[int | str | None]],
        lock: Callable[[Request], str | None] | None = None,
        locks: Callable[[Request], Locks] | None = None,
        tags: Tags = VERSION,
    ) -> None:
        """Guard the changes of `what`, a word for people.

        `current` returns the present tag for whoever is refused for a weak one, or raises that
        there is no such thing. `lock` names the lock, or none; `locks` finds where it is taken.
        """
        self.what = what
        self.tags = tags
        self._current = current
        self._lock = lock
        self._locks = locks or _ours

    async def __call__(self, request: Request) -> AsyncIterator[Seen]:
        """Let the handler have what was seen, and hold the lock until it is done."""
        async with self.holding(request) as seen:
            yield seen

    @asynccontextmanager
    async def holding(self, request: Request) -> AsyncIterator[Seen]:
        """Do the same for a handler that is not called by FastAPI."""
        name = self._lock(request) if self._lock else None
        seen = await self._seen(request)
        if name is None:
            yield seen
            return
        locks = self._locks(request)
        lease = await locks.take(name)
        if lease is None:
            raise _locked(self.what)
        try:
            yield seen
        finally:
            await locks.free(lease)

    def on(self, said: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what a route decorator takes, with what the guard asks for and answers."""
        said = said or {}
        extra = said.get("openapi_extra") or {}
        asked = described(self.what, example=etag(self.tags.example))
        return {
            **said,
            "openapi_extra": {**extra, "parameters": [*extra.get("parameters", ()), asked]},
            "responses": {**_ANSWERS, **said.get("responses", {})},
        }

    async def _seen(self, request: Request) -> Seen:
        try:
            return if_match(request, what=self.what, tags=self.tags)
        except _Weak:
            current = await self._current(request)
            if current is None:
                raise
        raise stale(current, tags=self.tags)


_ANSWERS: Final = {
    400: problem_response("If-Match cannot be read"),
    409: problem_response("Another request is changing it; try again in a moment"),
    412: problem_response("It is no longer the version that was seen"),
    428: problem_response("If-Match is missing"),
}


def install(app: FastAPI) -> None:
    """Let an application that is not ours answer with the problems of its guards."""
    app.add_exception_handler(Problem, problems.on_problem)
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        described = describe()
        schemas = described.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("Problem", documents.SCHEMAS["Problem"])
        return described

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's own documentation does


def etag(value: int | str) -> str:
    """Write a version or a token as a strong entity tag."""
    return f'"{value}"'


def if_match(request: Request, *, what: str, tags: Tags = VERSION) -> Seen:
    """Return what of `what` the caller has seen and wants to change, or refuse."""
    given = request.headers.getlist("if-match")
    if not given:
        raise _required(f"Send If-Match with the ETag of the {what} that you have seen.")
    if len(given) > 1:
        raise _malformed("There are several If-Match headers; send one.")
    (value,) = given
    if value == "*":
        raise _required(f"If-Match: * fits any version; name the one of the {what} you have seen.")
    if len(value) > _HEADER_MAX or not _TAGS(value):
        raise _malformed(f"If-Match is one ETag in double quotes, such as {etag(tags.example)}.")
    if len(_EACH(value)) > 1:
        raise _malformed("If-Match names several versions; name the one that you have seen.")
    if value.startswith("W/"):
        raise _Weak
    if not tags.ours(value[1:-1]):
        raise _malformed(f"This is not an ETag of a {what}.")
    return Seen(value[1:-1], tags)


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


def stale(current: int | str, *, tags: Tags = VERSION) -> Problem:
    """Make the answer to a change of something that is no longer what was seen."""
    tag = etag(current)
    return Problem(
        412,
        "stale",
        f"The {tags.name} is not the present one",
        f"The present {tags.name} is {current}; look at it, and decide again.",
        extra={tags.name: tags.told(str(current)), "etag": tag},
        headers={"ETag": tag},
    )


def none_match(request: Request, value: int | str) -> bool:
    """Say whether the caller of a GET already has this version, so that 304 is the answer."""
    given = ", ".join(request.headers.getlist("if-none-match"))
    if given == "*":
        return True
    if not _TAGS(given):
        return False
    # The weak comparison: a proxy that compressed the answer has made its tag a weak one.
    return etag(value) in {tag.removeprefix("W/") for tag in _EACH(given)}


def not_modified(value: int | str) -> Response:
    """Make the answer to a caller who already has this version."""
    return Response(status_code=304, headers={"ETag": etag(value)})


def _ours(request: Request) -> Locks:
    return services_of(request).locks


def _locked(what: str) -> Problem:
    return Problem(
        409,
        "locked",
        "Another request is changing it",
        f"Try again in a moment; by then the {what} will have another version.",
        headers={"Retry-After": str(_RETRY_AFTER_S)},
    )


def _required(detail: str) -> Problem:
    return Problem(428, "if-match-required", "Say which version you mean", detail)


def _malformed(detail: str) -> Problem:
    return Problem(400, "if-match-malformed", "If-Match cannot be read", detail)
