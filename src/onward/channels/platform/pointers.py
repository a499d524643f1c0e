"""JSON pointers (RFC 6901): how a description says where in a platform's JSON something stands."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from onward.errors import InvalidInput

NOWHERE: Final = object()  # what a pointer finds that leads nowhere

_is_index = re.compile(r"0|[1-9][0-9]{0,8}").fullmatch
_has_bad_escape = re.compile(r"~(?![01])").search


class Pointer(NamedTuple):
    """The way to a value, one step a level."""

    steps: tuple[str, ...]

    def find(self, value: object) -> object:
        """Return what stands there, or `NOWHERE`."""
        for step in self.steps:
            if isinstance(value, dict):
                value = value.get(step, NOWHERE)
            elif isinstance(value, list) and _is_index(step) and int(step) < len(value):
                value = value[int(step)]
            else:
                return NOWHERE
        return value


def pointer(field: str, text: str) -> Pointer:
    """Read a pointer; the empty one is the whole."""
    if text and not text.startswith("/"):
        raise InvalidInput(field, f"{text!a:.80} is no JSON pointer: it begins with /, as /id does")
    if _has_bad_escape(text):
        raise InvalidInput(field, "has a ~ that is neither ~0 (a ~) nor ~1 (a /)")
    return Pointer(
        tuple(step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:])
    )
