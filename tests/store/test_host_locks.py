"""The first wall around a host, when the statement that takes it does not come back."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from onward.store.host_locks import HostLocks

BOUND_S = 30.0


async def until_taken(locks: HostLocks, host: int) -> None:
    """Wait until the server has noticed that whoever held a host is gone."""
    async with asyncio.timeout(BOUND_S):
        while not await locks.take([(host, False)]):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_locks_whose_answer_was_lost_are_held_by_nobody(database_url: str, monkeypatch):
    ours, theirs = HostLocks(database_url), HostLocks(database_url)
    try:
        assert await ours.take([(1, False)]) == {1}
        fetch = asyncpg.Connection.fetch

        async def unheard(*given: Any) -> None:
            await fetch(*given)
            raise asyncio.CancelledError

        with monkeypatch.context() as lost:
            lost.setattr(asyncpg.Connection, "fetch", unheard)
            with pytest.raises(asyncio.CancelledError):
                await ours.take([(2, False)])
        await until_taken(theirs, 2)
        # What was held before is held again, with the next connection.
        assert await ours.take([(3, False)]) == {3}
        assert await theirs.take([(1, False), (3, False)]) == set()
    finally:
        await ours.close()
        await theirs.close()
