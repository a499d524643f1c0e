"""What has changed since a position: nothing twice, nothing missed, and resumable at any time.

A position is the number of a transaction. Whatever was told by transactions below it has been read.
Numbers of a sequence would not do: they are drawn before the commit, so somebody who commits late
would slip in behind a reader who has already gone by. A transaction that stays open holds the
readers up until it ends; the changes after it come late, never wrong.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from onward.store import queries
from onward.store.database import Pool, answering

SQL = queries.load("changes.sql")

_KINDS = ("jobs", "executions", "commands")
_ALL = 2**31 - 1


class Change(NamedTuple):
    """Something that changed."""

    tx: int
    seq: int
    kind: str  # job, execution, command
    at: datetime
    job_id: int | None
    execution_id: int | None
    host_id: int | None
    command_id: UUID | None
    event: str
    status: str | None


class Changes(NamedTuple):
    """What has changed, in order, and the position from which to go on."""

    items: list[Change]
    position: int


async def horizon(pool: Pool) -> int:
    """Return the position of this moment: what comes after it has not been told yet."""
    with answering():
        return int(await pool.fetchval(SQL["horizon"]))


async def since(pool: Pool, position: int, *, limit: int) -> Changes:
    """Return what has changed since a position, about `limit` of each kind, whole transactions."""
    upper = await horizon(pool)
    if upper <= position:
        return Changes([], position)
    found = await _between(pool, position, upper, limit)
    # A kind that was cut short may have more of the transaction at which it was cut: that one is
    # for the next time. If it is the first one, it is larger than the limit and read as a whole.
    cut = [changes[-1].tx for changes in found if len(changes) == limit]
    if cut and (upper := min(cut)) == position:
        upper = position + 1
        found = await _between(pool, position, upper, _ALL)
    items = [change for changes in found for change in changes if change.tx < upper]
    items.sort(key=lambda change: (change.tx, change.at, change.seq))
    return Changes(items, upper)


async def _between(pool: Pool, position: int, upper: int, limit: int) -> list[list[Change]]:
    with answering():
        return [
            [Change(*row) for row in await pool.fetch(SQL[kind], position, upper, limit)]
            for kind in _KINDS
        ]
