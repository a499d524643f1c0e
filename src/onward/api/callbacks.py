"""What third-party platforms call back: thousands a second, late, twice and out of order.

Every callback that can be read is answered with its verdict, whatever it is. Single ones share the
look-up and the COMMIT with those that come at the same moment; many may come as lines of one body.
A platform that has a description calls back in its own shape and its own words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

from onward.api import problems, strict_json
from onward.api.body import JSON, LINES, StrictRequest
from onward.api.models import Model
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import DirectRoute, router
from onward.api.services import services_of
from onward.api.verdicts import Verdict, unknown_command, verdict_json
from onward.channels.platform.description import Platform
from onward.core.lifecycles import PLATFORM
from onward.errors import InvalidInput
from onward.fleet.callbacks import Callback, callback_of, handle_callback, handle_callbacks
from onward.store.commands import Commands
from onward.store.inputs import shown
from onward.store.transitions import Answer

_LINES_MAX: Final = 10_000
_PLATFORM: Final = {
    "name": "platform",
    "in": "path",
    "required": True,
    "description": "The name of the platform in the file of platforms.",
    "schema": {"type": "string", "examples": ["aep"]},
}
_KEPT: Final = (
    "The platform has not told us yet which command it calls so: "
    "this is kept, and judged when it has."
)

Reader = Callable[[object], Callback]

callbacks = router("/callbacks", "commands", route_class=DirectRoute)


class PlatformCallback(Model):
    """What a platform says: this task of this device is now in this status.

    Nothing is refused for what it says. A name that no command was made under is unknown, and a
    word that is no status fits none.
    """

    task_id: Any = Field(
        description="The platform's own name of the command: text, or a whole number.",
        examples=["64"],
    )
    device_id: Any = Field(
        description="The `node` that the command was made for.", examples=["sensor-1"]
    )
    status: Any = Field(
        description="The platform's word for the status, or its code.",
        examples=[str(PLATFORM.moves["deliver"].target)],
    )


class KeptCallback(BaseModel):
    """The answer to a callback that came before the platform had told us what it calls the task."""

    verdict: None = Field(description="There is none yet; the timeline of the command will say.")
    changed: bool = Field(examples=[False])
    meaning: str = Field(examples=[_KEPT])


def _declared(schema: Mapping[str, Any], unknown: str, *, named: bool = False) -> dict[str, Any]:
    """Return what a route asks for and how it is described; FastAPI does not see its body."""
    declared = needs(
        Permission.REPORT,
        signed=True,
        responses={
            200: {
                "description": "The verdict, whatever it is; for a body of lines, one a line",
                "content": {LINES.name.decode(): {"schema": {"type": "string"}}},
            },
            202: {
                "description": "Kept until the task has its name",
                "model": KeptCallback,
            },
            404: problem_response(unknown),
            415: problem_response("It is neither JSON nor lines of JSON"),
        },
    )
    if named:
        declared["openapi_extra"]["parameters"] = [_PLATFORM]
    declared["openapi_extra"]["requestBody"] = {
        "required": True,
        "content": {
            JSON.name.decode(): {"schema": schema},
            LINES.name.decode(): {"schema": {"type": "string"}},
        },
    }
    return declared


@callbacks.post(
    "/platform",
    response_model=Verdict,
    **_declared(
        PlatformCallback.model_json_schema(), "No command was made for this task of this device"
    ),
)
async def take_callback(request: StrictRequest) -> Response:
    """Take what a platform calls back. It may be signed.

    One callback is a JSON object. Many are lines of `application/x-ndjson`, one object each, and
    are answered line by line: a line that cannot be read is that line's problem, not the others'.
    """
    return await _taken(request, _read)


@callbacks.post(
    "/platform/{platform}",
    response_model=Verdict,
    **_declared(
        {
            "type": "object",
            "description": "Whatever the platform sends; its description says where things stand.",
            "examples": [{"task_id": "64", "device_id": "sensor-1", "status": "done"}],
        },
        "No platform is called so, or no command was made for this task of this device",
        named=True,
    ),
)
async def take_platforms_callback(request: StrictRequest) -> Response:
    """Take what a platform of the file of platforms calls back, as it says it. It may be signed.

    What stands where, and what its words mean, is in its description. A word that the description
    does not have fits no status.
    """
    services = services_of(request)
    name = request.path_params["platform"]
    platform = services.platforms.get(name)
    if platform is None:
        raise Problem(
            404,
            "unknown-platform",
            "There is no such platform",
            f"The file of platforms (ONWARD_PLATFORMS) describes no {shown(name)}.",
        )
    read = partial(_read_own, platform=platform, max_bytes=services.settings.payload_max_bytes)
    return await _taken(request, read)


async def _taken(request: StrictRequest, read: Reader) -> Response:
    commands = services_of(request).commands
    if request.is_of(LINES):
        request.refuse_other_types(LINES)
        return await _take_lines(commands, await request.body(), read)
    request.refuse_other_types()
    answer = await handle_callback(commands, read(await request.json()))
    if answer is None:
        return Response(_KEPT_JSON, 202, media_type="application/json")
    if answer.record is None:
        raise unknown_command()
    return Response(verdict_json(answer), media_type="application/json")


async def _take_lines(commands: Commands, body: bytes, read: Reader) -> Response:
    found = [_read_line(line, read) for line in _lines(body)]
    taken = iter(
        await handle_callbacks(commands, [each for each in found if isinstance(each, Callback)])
    )
    told = [
        _told(next(taken)) if isinstance(each, Callback) else _problem_json(each) for each in found
    ]
    return Response("".join(f"{line}\n" for line in told), media_type=LINES.name.decode())


def _lines(body: bytes) -> Sequence[bytes]:
    """Cut a body into its lines, the last of which need not be ended."""
    lines = body.removesuffix(b"\n").split(b"\n", _LINES_MAX)
    if len(lines) > _LINES_MAX:
        raise Problem(
            413,
            "too-many-lines",
            "There are too many lines",
            f"Send at most {_LINES_MAX} callbacks at once.",
            extra={"max_lines": _LINES_MAX},
        )
    return lines


def _read_line(line: bytes, read: Reader) -> Callback | Problem:
    try:
        return read(strict_json.parse(line))
    except Problem as problem:
        return problem
    except RequestValidationError as error:
        return problems.of_validation(error)
    except InvalidInput as error:
        return problems.of_error(error)


def _read(value: object) -> Callback:
    """Return a callback with all its fields and no others."""
    # The model says what is wrong; what is right does not have to pay for it.
    if isinstance(value, dict) and value.keys() == PlatformCallback.model_fields.keys():
        return Callback(**value)
    try:
        PlatformCallback.model_validate(value)
    except ValidationError as error:
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(found) from None
    raise AssertionError("the model takes what the handler does not")


def _read_own(value: object, *, platform: Platform, max_bytes: int) -> Callback:
    """Return a callback that has the shape of its platform."""
    if not isinstance(value, dict):
        raise InvalidInput("body", "expected an object")
    return callback_of(platform, platform.read(value), max_bytes=max_bytes)


def _told(answer: Answer | None) -> str:
    return _KEPT_JSON if answer is None else verdict_json(answer)


_KEPT_JSON: Final = json.dumps({"verdict": None, "changed": False, "meaning": _KEPT})


def _problem_json(problem: Problem) -> str:
    told = {
        "status": problem.status,
        "code": problem.code,
        "title": problem.title,
        "detail": problem.detail,
        **problem.extra,
    }
    return json.dumps({"verdict": None, "changed": False, "problem": told})
