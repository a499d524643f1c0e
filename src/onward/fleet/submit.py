"""Takes a job as somebody asks for it: every field checked, or refused by its name.

Whether its parameters fill the arguments of its type is known only when the type has been read. So
that this costs no question of its own, a job is sent with what its type said last, and made only if
the type still says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onward.channels.program import program_of
from onward.core.selectors import parse
from onward.errors import InvalidInput
from onward.fleet.masking import SHOWN
from onward.store import inputs, jobs
from onward.store.database import Pool
from onward.store.jobs import NewJob, Submitted
from onward.store.plans import Template

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


class Counter:
    """Takes jobs, and remembers what their types make of parameters."""

    def __init__(self) -> None:
        self._known: dict[str, Template] = {}

    async def submit(self, pool: Pool, job: NewJob) -> Submitted:
        """Make a job whose parameters suit its type, or refuse them by their names."""
        if known := self._known.get(job.command_type):
            job = _expecting(job, known)
        return await jobs.submit(pool, job, suits=self._suits)

    def _suits(self, job: NewJob) -> None:
        self._known[job.command_type] = job.template
        check_suits(json.loads(job.params), job.template)


def _expecting(job: NewJob, known: Template) -> NewJob:
    """Return a job that expects its type to be as it was, if that would suit its parameters.

    Otherwise they may suit the type as it is by now, and are not refused for what it was.
    """
    try:
        check_suits(json.loads(job.params), known)
    except InvalidInput:
        return job
    return job._replace(template=known)


def check_suits(params: Mapping[str, object], template: Template) -> None:
    """Refuse parameters that do not fill the arguments of their type."""
    for name in template.masked:
        if params.get(name) == SHOWN:
            raise InvalidInput(
                f"params.{name}", f"is masked: {SHOWN} is what is shown of it, send what it is"
            )
    if template.argv is not None:
        program_of(params, argv=json.loads(template.argv), masked=template.masked)


def edited_params(job: Mapping[str, Any], wanted: Mapping[str, object]) -> dict[str, object]:
    """Return the new parameters of a job; what is masked stays if it comes back as it was shown."""
    there, masked = job["params"], tuple(job["masked"])
    kept = {name: there[name] for name in masked if name in there and wanted.get(name) == SHOWN}
    params = {**wanted, **kept}
    argv = None if job["argv"] is None else json.dumps(job["argv"])
    check_suits(params, Template(argv, masked))
    return params


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
