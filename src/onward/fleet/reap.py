"""Puts right, from the tables alone, what nobody was told about.

Any number of reapers may run: each step is a guarded move that one of them wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onward.core.retry import Backoff, Cause
from onward.fleet.report import Attempt, failed
from onward.store import commands, executions, jobs, overview
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS

_BATCH: Final = 1_000
_JOBS: Final = 100
_CHANGES: Final = 50  # of a job's counters, or in a minute, before they are summed up


async def reap(
    pool: Pool, *, lost_after_s: float, backoff: Backoff, chance: Callable[[], float]
) -> list[int]:
    """Rescue, time out and cancel what is due for it; returns jobs that are to be planned."""
    await executions.rescue(pool, lost_after_s=lost_after_s, limit=_BATCH)
    late = [
        failed(
            Attempt(*overdue),
            Cause.TIMED_OUT,
            backoff,
            chance(),
            error="nothing was heard before the deadline",
        )
        for overdue in await executions.overdue(pool, limit=_BATCH)
    ]
    if late:
        await EXECUTIONS.record_all(pool, late, batch_max=_BATCH)
    # Commands that travel by themselves have a deadline, too, and nobody else who looks at it.
    await commands.expire_some(pool)
    await jobs.finish_cancelling(pool, limit=_JOBS)
    await jobs.finish(pool, limit=_BATCH)
    await jobs.sum_counts(pool, above=_CHANGES)
    await overview.sum_activity(pool, above=_CHANGES)
    return await executions.unplanned(pool, limit=_JOBS)
