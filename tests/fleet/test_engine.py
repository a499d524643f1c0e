"""The embedded engine on channels of a test's own, for whoever looks at one of its moments.

What every engine does is said in `tests/engines/`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from onward.channels.base import Channel
from onward.core.lifecycles import EXECUTION
from onward.core.retry import Backoff
from onward.core.verdicts import TransitionResult
from onward.engines.embedded import Engine, Pace
from onward.store.database import Pool
from onward.store.host_locks import HostLocks
from onward.wiring import Onward

BOUND_S = 120.0
QUICK = Pace(
    poll_s=0.01,
    reap_s=0.05,
    grace_s=0.2,
    capacity=200,
    backoff=Backoff(base_s=0.005, max_s=0.05),
)


@asynccontextmanager
async def working(opened: Onward, channel: Channel, pace: Pace) -> AsyncIterator[None]:
    locks, stopping = HostLocks(opened.database_url), asyncio.Event()
    engine = Engine(
        opened.commands.pool,
        locks,
        {"simulated": channel},
        chance=random.Random(1).random,
        pace=pace,
    )
    work = asyncio.create_task(engine.run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await work
        await locks.close()


async def until_settled(pool: Pool) -> None:
    terminal = [str(status) for status in EXECUTION.terminal]
    async with asyncio.timeout(BOUND_S):
        while await pool.fetchval(  # noqa: ASYNC110 - the tables have no event to wait for
            "SELECT count(*) FROM executions WHERE status <> ALL ($1::text[])", terminal
        ):
            await asyncio.sleep(0.01)


async def replayed(pool: Pool) -> int:
    """Replay every timeline through the core; returns how many events were replayed."""
    events = await pool.fetch(
        "SELECT execution_id, event, verdict, from_status, to_status FROM execution_timeline "
        "ORDER BY execution_id, seq"
    )
    status: dict[int, str] = {}
    for execution_id, event, verdict, seen, target in events:
        at = status.get(execution_id, EXECUTION.initial)
        assert seen == at
        if verdict != TransitionResult.STALE_EPOCH:
            assert EXECUTION.decide(at, event) == (TransitionResult(verdict), target)
        status[execution_id] = target
    rows = await pool.fetch("SELECT id, status FROM executions")
    assert {row["id"]: row["status"] for row in rows} == status
    return len(events)
