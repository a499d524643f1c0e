"""`Idempotency-Key`: a name that the caller gives to a request, so that a repeat changes nothing.

A key is a user's own. Whoever says the same again under it gets the first answer; whoever says
something else is told what it stands for. A refusal is not kept, so that it can be mended.
"""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.requests import Request

from onward.api.permissions import problem_response
from onward.api.problems import Problem
from onward.store.ledger import Outcome

KEY_MAX: Final = 255
REPLAYED: Final = {"Idempotency-Replayed": "true"}
_RETRY_AFTER_S: Final = 1

_PLAIN = re.compile(rf'(?!")[!-~]{{1,{KEY_MAX}}}').fullmatch
# A string of a structured field (RFC 9651, 3.3.3), without the spaces that it could have.
_QUOTED = re.compile(rf'"((?:[!#-\[\]-~]|\\["\\]){{1,{KEY_MAX}}})"').fullmatch

DESCRIBED: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": f"A name of the request, of 1 to {KEY_MAX} visible ASCII characters, which may "
    "stand in double quotes. A repeat under the same one gets the first answer.",
    "schema": {"type": "string"},
    "example": "pay-2026-11-16-01",
}
ANSWERS: Final = {
    400: problem_response("If-Match or Idempotency-Key cannot be read"),
    409: problem_response("Another request is changing it, or has the same key"),
}


def key_of(request: Request) -> str | None:
    """Return the caller's own name of a request, if it has one."""
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    if len(given) > 1:
        raise _malformed("There are several Idempotency-Key headers; send one.")
    if _PLAIN(given[0]):
        return given[0]
    if quoted := _QUOTED(given[0]):
        return re.sub(r"\\(.)", r"\1", quoted[1])
    raise _malformed(
        f"A key has 1 to {KEY_MAX} visible ASCII characters, and may stand in double quotes."
    )


def refuse(outcome: Outcome, stands_for: str | None) -> None:
    """Refuse what cannot be done under its key: it stands for something else, or is under way."""
    if outcome is Outcome.KEY_REUSED:
        raise Problem(
            422,
            "idempotency-key-reused",
            "The key stands for another request",
            f"It stands for `{stands_for}`, which was done; take another key for another request.",
            extra={"stands_for": stands_for},
        )
    if outcome is Outcome.RUNNING:
        raise Problem(
            409,
            "idempotency-key-running",
            "A request with this key is under way",
            "Say the same again in a moment, to get its answer.",
            headers={"Retry-After": str(_RETRY_AFTER_S)},
        )


def _malformed(detail: str) -> Problem:
    return Problem(400, "idempotency-key-malformed", "Idempotency-Key cannot be read", detail)
