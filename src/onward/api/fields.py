"""The few fields of a request about money: each is checked by itself, and all faults are told.

Pydantic would do, but not in our words: what a caller has to hear about an amount is what they have
sent instead of one. And these are the requests that have to be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError

from onward.api.body import JSON, StrictRequest
from onward.api.models import Model
from onward.errors import InvalidInput
from onward.store.inputs import shown

Check = Callable[[str, object], Any]


async def fields(
    request: StrictRequest,
    required: Mapping[str, Check],
    optional: Mapping[str, Check] | None = None,
) -> dict[str, Any]:
    """Return the checked fields of a body, or refuse it with everything that is wrong with it."""
    for name in request.query_params if request.scope["query_string"] else ():
        # Whoever names a currency there would move money of another.
        raise InvalidInput(shown(name)[:80], "is no parameter of this address")
    request.refuse_other_types()
    given = await request.json()
    if not isinstance(given, dict):
        raise RequestValidationError([_fault("Input should be a JSON object")])
    return _checked(given, required, {**required, **(optional or {})})


def described(body: type[Model]) -> dict[str, Any]:
    """Describe a body for the documents of a route whose handler reads it by itself."""
    content = {JSON.name.decode(): {"schema": body.model_json_schema()}}
    return {"required": True, "content": content}


def _checked(
    given: Mapping[str, object], required: Mapping[str, Check], known: Mapping[str, Check]
) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    faults = [_fault("Field required", name) for name in required if name not in given]
    for name, value in given.items():
        try:
            if check := known.get(name):
                checked[name] = check(name, value)
            else:
                faults.append(_fault("Extra inputs are not permitted", name))
        except InvalidInput as error:
            faults.append(_fault(error.problem, name))
    if faults:
        raise RequestValidationError(faults)
    return checked


def _fault(told: str, *place: str) -> dict[str, object]:
    return {"loc": ("body", *place), "msg": told}
