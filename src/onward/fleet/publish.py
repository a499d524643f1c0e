"""Hands on what the outbox holds, to whoever drives the work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from onward.store import outbox
from onward.store.database import Pool

PLAN_JOB: Final = "plan_job"

_BATCH: Final = 100
_LEASE_S: Final = 30.0

# Takes the jobs that are to be planned, each with its trace. Told twice, or after the fact, it does
# no harm.
Publish = Callable[[Mapping[int, str]], Awaitable[None]]


async def publish_outbox(pool: Pool, publish: Publish) -> int:
    """Claim words, hand them on, delete them; returns how many there were.

    Any number of publishers may run. If `publish` raises, the words are told again after a while.
    """
    words = await outbox.claim(pool, limit=_BATCH, lease_s=_LEASE_S)
    if words:
        await publish({word.job_id: word.trace for word in words if word.topic == PLAN_JOB})
        await outbox.delete(pool, words)
    return len(words)
