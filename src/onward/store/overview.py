"""What is open, who works on it, and how much has ended lately: never a look at all there ever was.

Every page that somebody leaves open asks for it every few seconds. So it costs as much as there is
open, however many jobs have finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from onward.store import browse, queries
from onward.store.browse import Row
from onward.store.database import Connection, Pool, answering

SQL = queries.load("overview.sql")

MINUTES: Final = 60  # of which is told how many executions ended in each
DUE_MAX: Final = 10_000  # commands that are counted

_NAMED: Final = 10  # jobs of each kind that need somebody's attention
_WORKERS: Final = 50


class Limits(NamedTuple):
    """From when on something needs somebody's attention."""

    wrong: int = 10  # executions of a job that went wrong
    wrong_share: float = 0.1  # of those that ended
    paused_s: float = 600.0
    overdue_s: float = 5.0  # after the deadline; until then the reaper may be on its way


class Standing(NamedTuple):
    """How things stand with what is open."""

    at: datetime
    executions: Mapping[str, int]  # by status; those that have not ended
    jobs: Mapping[str, int]  # open, waiting, paused
    failing: Sequence[Row]  # job_id, wrong, ended
    paused: Sequence[Row]  # job_id, for_s, open
    overdue: Sequence[Row]  # job_id, n
    outbox: Mapping[str, float]  # n, oldest_s
    commands_due: int


class Fleet(NamedTuple):
    """How many hosts there are, and how much is forbidden on them."""

    hosts: Mapping[str, int]  # by state
    blocks: int  # in force


async def standing(pool: Pool, limits: Limits) -> Standing:
    """Return how things stand with what is open."""
    with answering():
        row = await pool.fetchrow(SQL["standing"], *limits, _NAMED, DUE_MAX)
    assert row is not None  # noqa: S101 - counting always answers with one row
    return Standing(*(json.loads(cell) if isinstance(cell, str) else cell for cell in row))


async def workers(pool: Pool, *, lost_after_s: float) -> list[Row]:
    """Return who works, and who was lost in the last hour."""
    return await browse.rows(pool, SQL["workers"], lost_after_s, _WORKERS)


async def fleet(pool: Pool) -> Fleet:
    """Return how many hosts and blocks there are. It looks at all of them."""
    with answering():
        row = await pool.fetchrow(SQL["fleet"])
    assert row is not None  # noqa: S101 - as above
    return Fleet(json.loads(row["hosts"]), row["blocks"])


async def activity(where: Pool | Connection) -> dict[str, list[int]]:
    """Return how many executions ended in each of the last minutes, by how they did."""
    found: dict[str, list[int]] = {}
    with answering():
        rows = await where.fetch(SQL["activity"], MINUTES)
    for status, place, n in rows:
        found.setdefault(status, [0] * MINUTES)[place] = n
    return found


async def sum_activity(pool: Pool, *, above: int) -> None:
    """Sum up what ended in minutes that are over or have more than `above` changes; forget old."""
    with answering():
        await pool.execute(SQL["sum_activity"], above)
