"""What has changed since a position: nothing twice, nothing missed, and resumable at any time.

Numbers of a sequence would not do for a position: they are drawn before the commit, so somebody who
commits late would slip in behind a reader who has already gone by. But a transaction that is older
than all that are still open has told all that it will ever tell. So changes come in the order of
their transactions, and only those of transactions below that *horizon* are told. A transaction that
stays open holds the readers up until it ends; the changes after it come late, never wrong.

Within a transaction, the order is by kind and then by the sequence of that kind. It never changes,
so a reader may stop and go on between any two changes, also in the middle of a transaction.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from onward.store import queries
from onward.store.database import Pool, answering

SQL = queries.load("changes.sql")

KINDS: Final = ("job", "execution", "command")

# A change may be dated before a position that it comes after, by as long as its transaction took.
# No transaction lasts a day, so older months need not be looked at.
_DATED_BEFORE_S: Final = 86_400
_ALL: Final = 2**63 - 1
# How many transactions are looked at in one query: what lies further on cannot make it slow. The
# width follows what is found there, because transactions may tell nothing, or thousands of changes.
_FIRST_WIDTH: Final = 64
_WIDEST: Final = 2**40


class Position(NamedTuple):
    """Where a reader stands: everything up to here has been read, and nothing behind it."""

    tx: int
    kind: int  # from 1; 0 before everything that the transaction told
    seq: int
    at: int  # when that was, in seconds; no part of the order

    @property
    def key(self) -> tuple[int, int, int]:
        """What decides which of two positions comes first."""
        return self[:3]


class Change(NamedTuple):
    """Something that changed."""

    tx: int
    kind: int
    seq: int
    at: datetime
    job_id: int | None
    execution_id: int | None
    host_id: int | None
    cmd_id: UUID | None
    event: str
    status: str | None

    @property
    def key(self) -> tuple[int, int, int]:
        """Its place in the order of all changes."""
        return self[:3]

    @property
    def position(self) -> Position:
        """The position of whoever has read this change."""
        return Position(self.tx, self.kind, self.seq, int(self.at.timestamp()))


class Reader:
    """Reads on from a position, at most `limit` changes of each kind at a time."""

    def __init__(self, pool: Pool, position: Position, *, limit: int) -> None:
        self.position = position
        self.more = False  # whether the last reading stopped because of the limit
        self._pool = pool
        self._limit = limit
        self._width = _FIRST_WIDTH

    async def read(self) -> list[Change]:
        """Return what comes next, in order; nothing once everything has been read."""
        end = await horizon(self._pool)
        while self.position.tx < end.tx:
            if found := await self._look(end):
                return found
        self.more = False
        return []

    async def _look(self, end: Position) -> list[Change]:
        """Return what is told within the width, and go there."""
        upper = min(end.tx, self.position.tx + self._width)
        found = sorted(await self._between(upper))
        # A kind of which there were as many as allowed may have more; the others must wait for it.
        told = Counter(change.kind for change in found)
        last = {change.kind: change.key for change in found}
        cut = [key for kind, key in last.items() if told[kind] == self._limit]
        self.more = bool(cut)
        if cut:
            found = [change for change in found if change.key <= min(cut)]
            self._width = max(self._width // 2, 1)
            self.position = found[-1].position
        else:
            self._width = min(self._width * 2, _WIDEST)
            at = found[-1].position.at if found else self.position.at
            self.position = end if upper == end.tx else Position(upper, 0, 0, at)
        return found

    async def _between(self, upper: int) -> list[Change]:
        tx, read, seq, at = self.position
        # Of the transaction that was begun: all of the kinds before, some of this, none of those
        # after it.
        after = [_ALL if kind < read else seq if kind == read else 0 for kind in (1, 2, 3)]
        with answering():
            rows = await self._pool.fetch(
                SQL["since"], tx, upper, float(at - _DATED_BEFORE_S), *after, self._limit
            )
        return [Change(*row) for row in rows]


async def horizon(pool: Pool) -> Position:
    """Return the position of this moment: what comes after it has not been told yet."""
    with answering():
        row = await pool.fetchrow(SQL["horizon"])
    assert row is not None  # noqa: S101 - there is always a moment
    return Position(row["tx"], 0, 0, row["at"])


async def can_go_on(pool: Pool, position: Position) -> bool:
    """Say whether everything after a position is still there, and the position is one of ours."""
    now = await horizon(pool)
    with answering():
        oldest = await pool.fetchval(SQL["oldest"])
    return position.key <= now.key and oldest <= position.at <= now.at + _DATED_BEFORE_S
