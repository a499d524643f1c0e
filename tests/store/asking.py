"""What the tests of the store ask, and get as plain values."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from onward.commands import fetch, get_command

if TYPE_CHECKING:
    from onward.store.database import Connection
    from onward.store.transitions import Answer, CommandState

BOUND_S = 30.0


async def row_of(cmd_id: str) -> dict[str, Any]:
    """The row of a command that is there."""
    row = await get_command(cmd_id)
    assert row is not None
    return row


def state_of(answer: Answer) -> CommandState:
    """The state that an answer carries, because it carries one."""
    assert answer.record is not None
    return answer.record


async def rows(query: str, *args: object) -> list[tuple[Any, ...]]:
    """The rows of a query, as tuples."""
    return [tuple(row) for row in await fetch(query, *args)]


async def one(query: str, *args: object) -> Any:
    """The one value that a query returns."""
    ((value,),) = await rows(query, *args)
    return value


async def until_blocked(watcher: Connection, *, by: int, waiting: int = 1) -> None:
    """Return when `waiting` backends wait for a lock of the backend `by`; not for ever."""
    async with asyncio.timeout(BOUND_S):
        while True:
            # Within a transaction the view would stay what it was at the first look.
            await watcher.execute("SELECT pg_stat_clear_snapshot()")
            blocked = await watcher.fetchval(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND $1 = ANY (pg_blocking_pids(pid))",
                by,
            )
            if blocked >= waiting:
                return
            await asyncio.sleep(0.005)


async def kill_blocked(watcher: Connection, *, by: int) -> None:
    """End the one backend that waits for a lock of the backend `by`, when it does."""
    await until_blocked(watcher, by=by)
    killed = await watcher.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND $1 = ANY (pg_blocking_pids(pid))",
        by,
    )
    assert killed == 1
