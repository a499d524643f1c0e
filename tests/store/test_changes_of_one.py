"""Two changes of one thing may be told the other way round, but never numbered so."""

from __future__ import annotations

import asyncio

from onward.commands import create_command, new_command_id
from onward.store import changes
from onward.store.changes import Reader
from onward.store.database import Pool
from onward.store.transitions import Event
from onward.wiring import Onward

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))"


async def until_somebody_waits_for(pool: Pool, pid: int) -> None:
    async with asyncio.timeout(30):
        while not await pool.fetchval(_WAITING, pid):
            pass  # The loop is given a turn by every query; there is nothing to sleep for.


async def test_the_number_says_which_of_two_changes_came_later(opened: Onward):
    """A batch has begun before the ACK of its last command, and comes to that command after it."""
    pool = opened.commands.pool
    first, held, last = sorted(new_command_id() for _ in range(3))
    for cmd_id in (first, held, last):
        await create_command(cmd_id=cmd_id)
    start = await changes.horizon(pool)

    async with pool.acquire() as holder:
        async with holder.transaction():
            await holder.execute("SELECT FROM commands WHERE cmd_id = $1 FOR UPDATE", held)
            done = [Event(cmd_id, "done") for cmd_id in (first, held, last)]
            batch = asyncio.create_task(opened.commands.record_all(done))
            await until_somebody_waits_for(pool, holder.get_server_pid())
            await opened.commands.record(Event(last, "ack"))
        await batch

    told = [change for change in await Reader(pool, start, limit=100).read() if change.cmd_id]
    of_last = [change for change in told if str(change.cmd_id) == last]
    assert [change.event for change in of_last] == ["done", "ack"]
    latest = max(of_last, key=lambda change: change.seq)
    row = await opened.commands.get(last)
    assert row is not None
    assert latest.status == row["status"]
