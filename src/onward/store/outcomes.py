"""How a job went, told in groups: who printed the same, and what went wrong for which cause."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from onward.store import browse, queries
from onward.store.browse import Row
from onward.store.database import Pool, answering

SQL = queries.load("outcomes.sql")

GROUPS_MAX: Final = 50
HOSTS_NAMED: Final = 5
LINES_SHOWN: Final = 20
LINE_SHOWN: Final = 1_000  # characters


class Outputs(NamedTuple):
    """What has ended of a job, by what it printed and how it ended."""

    ended: int = 0
    silent: int = 0  # of those, how many printed nothing
    unknown: int = 0  # and of how many nobody knows what they printed
    groups: int = 0
    largest: Sequence[Row] = ()


async def outputs(pool: Pool, job_id: int) -> Outputs:
    """Group what has ended of a job by what it printed and how it ended."""
    shown = (GROUPS_MAX, HOSTS_NAMED, LINES_SHOWN, LINE_SHOWN)
    with answering():
        rows = await pool.fetch(SQL["outputs"], job_id, *shown)
    if not rows:
        return Outputs()
    first = rows[0]
    largest = [{**row, "lines": json.loads(row["lines"])} for row in rows]
    return Outputs(
        ended=first["all_ended"],
        silent=first["all_silent"],
        unknown=first["all_unknown"],
        groups=first["all_groups"],
        largest=largest,
    )


async def causes(pool: Pool, job_id: int) -> list[Row]:
    """Group what went wrong of a job by its cause, the largest group first."""
    return await browse.rows(pool, SQL["causes"], job_id)
