"""Takes a job as somebody asks for it: every field checked, or refused by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping

from onward.core.selectors import parse
from onward.errors import InvalidInput
from onward.store import inputs
from onward.store.jobs import NewJob

_LIMIT_MAX = 1_000_000


def new_job(
    *,
    external_id: object,
    command_type: object,
    params: Mapping[str, object],
    selector: object,
    max_concurrency: int | None,
    requested_by: str,
    params_max_bytes: int,
    digest: str | None = None,
    trace: Mapping[str, str] | None = None,
) -> NewJob:
    """Check what was asked for, and return it as the store takes it."""
    return NewJob(
        external_id=checked_external_id(external_id),
        command_type=inputs.name("command_type", command_type),
        params=inputs.json_object("params", params, max_bytes=params_max_bytes),
        selector=parse(selector),
        max_concurrency=checked_limit(max_concurrency),
        requested_by=inputs.name("requested_by", requested_by),
        digest=digest,
        trace=json.dumps(dict(trace or {})),
    )


def checked_external_id(value: object) -> str:
    """Return an id of somebody else's, in which no two that look alike differ."""
    name = inputs.name("external_id", value)
    if not name.isascii() or name != name.strip():
        raise InvalidInput(
            "external_id", "takes printable ASCII characters, with no space at either end"
        )
    return name


def checked_limit(value: int | None) -> int | None:
    """Return how many executions of a job may be under way at once."""
    if value is None:
        return None
    limit = inputs.integer("max_concurrency", value, minimum=1)
    if limit > _LIMIT_MAX:
        raise InvalidInput("max_concurrency", f"{limit} is more than {_LIMIT_MAX}")
    return limit
