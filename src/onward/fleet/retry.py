"""Runs again what of a job went wrong, and only that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from onward.core.selectors import All
from onward.errors import InvalidInput
from onward.fleet.standing import live
from onward.fleet.submit import checked_external_id
from onward.store import browse, inputs, jobs
from onward.store.database import Pool
from onward.store.jobs import FAILED, RETRIED, NewJob, Submitted


class RetryOutcome(StrEnum):
    """What became of the wish to retry a job."""

    MADE = "MADE"
    UNKNOWN_JOB = "UNKNOWN_JOB"
    NOT_FINISHED = "NOT_FINISHED"  # more of it may fail; retry when it has
    NOTHING_TO_RETRY = "NOTHING_TO_RETRY"  # none ended so, or each was done after all


class Retried(NamedTuple):
    """The new job, if there is one."""

    outcome: RetryOutcome
    made: Submitted | None = None


async def retry_failed(
    pool: Pool,
    job_id: int,
    *,
    by: str,
    external_id: str | None = None,
    statuses: Sequence[str] = tuple(sorted(FAILED)),
    trace: Mapping[str, str] | None = None,
) -> Retried:
    """Make a new job of what ended in `statuses`, except where a late result says it was done.

    Asked twice without an external id of the caller's own, it finds the job that it made before.
    The new job needs an approval of its own if its type does.
    """
    if other := sorted(set(statuses) - RETRIED):
        known = ", ".join(sorted(RETRIED))
        raise InvalidInput("statuses", f"{inputs.shown(other[0])} is not one of {known}")
    name = checked_external_id(external_id or f"retry-of-{job_id}")
    row = await browse.job(pool, job_id)
    if row is None:
        return Retried(RetryOutcome.UNKNOWN_JOB)
    if live(row):
        return Retried(RetryOutcome.NOT_FINISHED)
    again = _again(row, by, name)._replace(trace=json.dumps(dict(trace or {})))
    made = await jobs.retry(pool, again, of=job_id, statuses=sorted(set(statuses)))
    return Retried(RetryOutcome.MADE if made else RetryOutcome.NOTHING_TO_RETRY, made)


def _again(row: Mapping[str, object], by: str, external_id: str) -> NewJob:
    limit = row["max_concurrency"]
    return NewJob(
        external_id=external_id,
        command_type=str(row["command_type"]),
        params=json.dumps(row["params"], ensure_ascii=False),
        selector=All(),  # the store chooses from the former job instead
        max_concurrency=limit if isinstance(limit, int) else None,
        requested_by=by,
    )
