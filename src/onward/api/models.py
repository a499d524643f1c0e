"""The bodies of requests: strict, and nothing in them that we do not know."""

from __future__ import annotations

from functools import partial
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from onward.store import inputs

T = TypeVar("T")


class Model(BaseModel):
    """A body, or a part of one: no field is guessed from another type, and none is ignored.

    FastAPI validates what the JSON means, not its text. There, strict pydantic would want an
    instance of an enum: such a field is declared as `Lenient[...]`.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


Lenient = Annotated[T, Field(strict=False)]

# A short text for people: anything that PostgreSQL can store.
Text = Annotated[str, Field(max_length=inputs.NAME_MAX), AfterValidator(partial(inputs.text, ""))]
# A name: printable, on one line, and not empty.
Name = Annotated[
    str,
    Field(min_length=1, max_length=inputs.NAME_MAX),
    AfterValidator(partial(inputs.name, "")),
]
