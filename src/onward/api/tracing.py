"""Where a request comes from: its id, and the trace that it is part of (W3C Trace Context)."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

from onward.api.problems import REQUEST_ID

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
).fullmatch


def request_id_of(request: Request) -> str | None:
    """Return the id of a request."""
    found = request.scope.get(REQUEST_ID)
    return None if found is None else str(found)


def trace_of(request: Request) -> dict[str, str]:
    """Return what goes along with whatever comes of a request."""
    trace = {"request_id": request_id_of(request) or ""}
    given = request.headers.getlist("traceparent")
    # One that cannot be read is none: tracing must not keep anybody from their work.
    if len(given) == 1 and _TRACEPARENT(given[0]):
        trace["traceparent"] = given[0]
    return trace
