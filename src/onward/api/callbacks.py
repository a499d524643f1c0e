"""What third-party platforms call back: thousands a second, late, twice and out of order.

Every callback that can be read is answered with its verdict, whatever it is. Single ones share the
look-up and the COMMIT with those that come at the same moment; many may come as lines of one body.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.responses import Response

from onward.api import problems, strict_json
from onward.api.body import JSON, LINES, StrictRequest
from onward.api.models import Model
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import DirectRoute, router
from onward.api.services import services_of
from onward.api.verdicts import Verdict, unknown_command, verdict_json
from onward.core.lifecycles import PLATFORM
from onward.fleet.commands import Callback, handle_callback, handle_callbacks
from onward.store.commands import Commands

_LINES_MAX: Final = 10_000

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


def _declared() -> dict[str, Any]:
    """Return what the route asks for and how it is described; FastAPI does not see its body."""
    declared = needs(
        Permission.REPORT,
        signed=True,
        responses={
            200: {
                "description": "The verdict, whatever it is; for a body of lines, one a line",
                "content": {LINES.name.decode(): {"schema": {"type": "string"}}},
            },
            404: problem_response("No command was made for this task of this device"),
            415: problem_response("It is neither JSON nor lines of JSON"),
        },
    )
    schema = PlatformCallback.model_json_schema()
    declared["openapi_extra"]["requestBody"] = {
        "required": True,
        "content": {
            JSON.name.decode(): {"schema": schema},
            LINES.name.decode(): {"schema": {"type": "string"}},
        },
    }
    return declared


@callbacks.post("/platform", response_model=Verdict, **_declared())
async def take_callback(request: StrictRequest) -> Response:
    """Take what a platform calls back. It may be signed.

    One callback is a JSON object. Many are lines of `application/x-ndjson`, one object each, and
    are answered line by line: a line that cannot be read is that line's problem, not the others'.
    """
    commands = services_of(request).commands
    if request.is_of(LINES):
        request.refuse_other_types(LINES)
        return await _take_lines(commands, await request.body())
    request.refuse_other_types()
    answer = await handle_callback(commands, *_read(await request.json()))
    if answer.record is None:
        raise unknown_command()
    return Response(verdict_json(answer), media_type="application/json")


async def _take_lines(commands: Commands, body: bytes) -> Response:
    read = [_read_line(line) for line in _lines(body)]
    taken = iter(
        await handle_callbacks(commands, [each for each in read if isinstance(each, Callback)])
    )
    told = [
        verdict_json(next(taken)) if isinstance(each, Callback) else _problem_json(each)
        for each in read
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


def _read_line(line: bytes) -> Callback | Problem:
    try:
        return _read(strict_json.parse(line))
    except Problem as problem:
        return problem
    except RequestValidationError as error:
        return problems.of_validation(error)


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


def _problem_json(problem: Problem) -> str:
    told = {
        "status": problem.status,
        "code": problem.code,
        "title": problem.title,
        "detail": problem.detail,
        **problem.extra,
    }
    return json.dumps({"verdict": None, "changed": False, "problem": told})
