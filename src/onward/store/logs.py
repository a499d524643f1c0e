"""What hosts printed, line by line, in the order of its numbers and not of its arrival."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from onward.store import queries
from onward.store.database import Connection, Pool, answering

SQL = queries.load("logs.sql")

# The execution, its epoch, the number of the line, its stream, its text.
NewLine = tuple[int, int, int, str, str]


class LogLine(NamedTuple):
    """A line of output as it was stored; no `text` of it can garble a terminal."""

    epoch: int
    line: int
    at: datetime
    stream: str
    text: str


async def write(where: Pool | Connection, lines: Sequence[NewLine]) -> None:
    """Store lines, in the caller's transaction if `where` is a connection that has one."""
    if lines:
        with answering():
            await where.execute(SQL["write"], *zip(*lines, strict=True))


async def page(
    pool: Pool, execution_id: int, *, after: tuple[int, int] = (-1, 0), limit: int
) -> list[LogLine]:
    """Return the lines that follow the one of this epoch and number."""
    with answering():
        rows = await pool.fetch(SQL["page"], execution_id, *after, limit)
    return [LogLine(*row) for row in rows]
