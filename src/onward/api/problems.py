"""Whatever goes wrong, as `application/problem+json` (RFC 9457).

A problem says what kind it is (`code`, and `type` for machines that want a URI), and which request
it belongs to. It never repeats what the caller sent, except through `inputs.shown`, and never what
an exception of the program says about the program.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from onward import errors
from onward.api.closing import ClosingResponse
from onward.store.inputs import shown

MEDIA_TYPE: Final = "application/problem+json"
REQUEST_ID: Final = "onward.request_id"  # where the edge keeps the id in the scope of a request
RETRY_AFTER_S: Final = 2
_ERRORS_MAX: Final = 50
_SEGMENT_MAX: Final = 80
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="onward"'}
_TURNED_AWAY: Final = frozenset({401, 403})  # what somebody may want to read about later

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.api")


class Problem(Exception):
    """An answer that is not what the caller hoped for; raised by handlers."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str = "",
        *,
        extra: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        closing: bool = False,
    ) -> None:
        super().__init__(f"{status} {code}: {detail or title}")
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})
        # Whoever sends more than we will read is told so, and the connection is closed.
        self.closing = closing


def unauthorized(code: str, detail: str) -> Problem:
    """Make the refusal of somebody who has not shown who they are."""
    return Problem(401, code, "The caller is not known", detail, headers=_CHALLENGE)


class Kind(NamedTuple):
    """How a class of errors is told."""

    status: int
    code: str
    title: str
    told: bool = True  # whether its message is meant for callers
    again: bool = False  # whether the same request may do better in a moment


_BUG: Final = "Something is wrong with the program"
_BROKEN: Final = Kind(500, "internal", _BUG, told=False)
_DOWN: Final = Kind(
    503, "unavailable", "The service cannot answer at the moment", told=False, again=True
)

# By class, and no class inherits it: whoever adds an error decides here.
PROBLEMS: Final[Mapping[type[errors.OnwardError], Kind]] = MappingProxyType(
    {
        errors.OnwardError: _BROKEN,
        errors.InvalidInput: Kind(422, "invalid", "A field cannot be taken"),
        errors.InvalidLifecycle: Kind(422, "invalid-lifecycle", "The lifecycle contradicts itself"),
        errors.UnknownLifecycle: Kind(422, "unknown-lifecycle", "There is no such lifecycle"),
        errors.JobConflict: Kind(422, "job-conflict", "The external id stands for another job"),
        errors.PlanChanged: Kind(412, "plan-changed", "The fleet has changed since the plan"),
        errors.NotOpen: _DOWN,
        errors.ServerProblem: _DOWN,
        errors.ServerUnreachable: _DOWN,
        errors.ServerTooOld: _DOWN,
        errors.ServerNotDurable: _DOWN,
        errors.SchemaMismatch: _DOWN,
        errors.ChannelError: Kind(502, "channel-failed", "The host could not be asked", told=False),
        errors.NotDelivered: Kind(502, "not-delivered", "The host has not got it", told=False),
        errors.HostOffline: Kind(
            502, "host-offline", "The host is not connected", told=False, again=True
        ),
        errors.HostRefused: Kind(502, "host-refused", "The host said no", told=False),
        errors.HostBusy: Kind(409, "host-busy", "The host is busy", told=False, again=True),
        errors.DeliveryUnknown: Kind(
            504, "delivery-unknown", "The host may or may not have got it", told=False
        ),
        errors.InvariantBroken: _BROKEN,
        errors.GuardDrift: _BROKEN,
    }
)

# What goes wrong before a handler is reached, in the words of HTTP.
_BY_STATUS: Final[Mapping[int, tuple[str, str]]] = MappingProxyType(
    {
        400: ("malformed", "The request cannot be read"),
        404: ("not-found", "There is nothing at this address"),
        405: ("method-not-allowed", "This address does not take this method"),
    }
)


def of_error(error: errors.OnwardError) -> Problem:
    """Tell an error of ours as a problem."""
    kind = PROBLEMS.get(type(error), PROBLEMS[errors.OnwardError])
    extra: dict[str, object] = {}
    headers: dict[str, str] = {}
    if isinstance(error, errors.InvalidInput):
        extra["errors"] = [{"pointer": _field_pointer(error.field), "detail": error.problem}]
    if kind.again:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    detail = str(error) if kind.told else ""
    return Problem(kind.status, kind.code, kind.title, detail, extra=extra, headers=headers)


def of_validation(error: RequestValidationError) -> Problem:
    """Tell what FastAPI found wrong with the fields of a request."""
    found = error.errors()
    told = [{**_place(each["loc"]), "detail": _message(each)} for each in found[:_ERRORS_MAX]]
    more = f" The first {_ERRORS_MAX} of {len(found)} are listed." * (len(found) > _ERRORS_MAX)
    return Problem(
        422,
        "invalid",
        "A field cannot be taken",
        f"See `errors` for what is wrong with which field.{more}",
        extra={"errors": told},
    )


def of_http(error: HTTPException) -> Problem:
    """Tell what Starlette refuses by itself: no such address, no such method."""
    code, title = _BY_STATUS.get(
        error.status_code, ("refused", HTTPStatus(error.status_code).phrase)
    )
    return Problem(error.status_code, code, title, headers=error.headers)


def internal(scope: Scope, error: Exception) -> Problem:
    """Write a bug down, and tell it without a word of what it was."""
    log.error(
        "internal error",
        request_id=scope.get(REQUEST_ID),
        method=scope["method"],
        path=shown(scope["path"]),
        # As text: whoever renders an exception may show local variables, and keys among them.
        traceback="".join(traceback.format_exception(error)),
    )
    return Problem(
        500,
        "internal",
        _BUG,
        "It has been written down; give the request id to whoever runs the service.",
    )


def answer(request: Request, problem: Problem) -> Response:
    """Write a problem as the answer to a request."""
    request_id = request.scope.get(REQUEST_ID, "")
    body = {
        "type": f"urn:onward:problem:{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail or problem.title,
        "instance": f"urn:onward:request:{request_id}",
        "code": problem.code,
        "request_id": request_id,
        **problem.extra,
    }
    kind = ClosingResponse if problem.closing else Response
    return kind(
        # ASCII: whatever ends up in a terminal by way of this text is harmless there.
        json.dumps(body, default=str).encode(),
        status_code=problem.status,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


async def on_problem(request: Request, error: Exception) -> Response:
    """Answer with a problem that a handler raised."""
    assert isinstance(error, Problem)  # noqa: S101 - registered for this class
    if error.status in _TURNED_AWAY:
        log.info("turned away", code=error.code, request_id=request.scope.get(REQUEST_ID))
    return answer(request, error)


async def on_error(request: Request, error: Exception) -> Response:
    """Answer with an error of ours; what the caller is not told goes to the log."""
    assert isinstance(error, errors.OnwardError)  # noqa: S101 - registered for this class
    problem = of_error(error)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        problem = internal(request.scope, error)
    elif not problem.detail:
        log.warning(problem.code, request_id=request.scope.get(REQUEST_ID), reason=str(error))
    return answer(request, problem)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Answer with what is wrong with the fields of a request."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    return answer(request, of_validation(error))


def _message(found: Mapping[str, object]) -> str:
    """Say what pydantic found, in words that do not repeat what was sent."""
    context = found.get("ctx")
    if isinstance(context, Mapping):
        cause = context.get("error")
        if isinstance(cause, errors.InvalidInput):
            return cause.problem
    return str(found["msg"]).removeprefix("Value error, ")


def _place(path: Sequence[object]) -> dict[str, object]:
    """Write where a field is: in what part of the request, and the JSON pointer to it there."""
    where, *rest = path or ("body",)
    return {"in": str(where), "pointer": "".join(f"/{_segment(part)}" for part in rest)}


def _field_pointer(field: str) -> str:
    """Write the path that a check of the store gives, such as `params.a[0]`, as a JSON pointer."""
    parts = field.replace("]", "").replace("[", ".").split(".")
    return "".join(f"/{_segment(part)}" for part in parts)


def _segment(part: object) -> str:
    """Write one step of a path; a key that the caller made up is shown, not repeated."""
    text = str(part)
    if len(text) > _SEGMENT_MAX or not (text.isascii() and text.isprintable()):
        text = shown(text)
    return text.replace("~", "~0").replace("/", "~1")
