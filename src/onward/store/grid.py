"""Every execution of a job at a glance: a character each, in the order of the hosts.

PostgreSQL writes the characters and finds the runs, so that a job of a million executions costs a
process that answers no more than the copying of a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from onward.core.lifecycles import EXECUTION
from onward.store import queries
from onward.store.database import Pool, answering

ORDER: Final = tuple(map(str, EXECUTION.states))

_CELLS: Final = " ".join(f"WHEN '{status}' THEN '{place}'" for place, status in enumerate(ORDER))
SQL = {
    name: text.replace("{cell}", f"CASE e.status {_CELLS} END")
    for name, text in queries.load("grid.sql").items()
}

Run = tuple[int, int]  # the first of numbers that follow on each other, and how many there are


class Grid(NamedTuple):
    """The executions of a job in the order of their hosts."""

    statuses: str  # of each the place of its status in ORDER
    hosts: Sequence[Run]
    executions: Sequence[Run]
    late: Sequence[int]  # the places of those whose hosts said something when it was too late


async def of_job(pool: Pool, job_id: int) -> Grid | None:
    """Return the grid of a job; `None` when there is no such job."""
    with answering():
        row = await pool.fetchrow(SQL["grid"], job_id)
    if row is None or row["statuses"] is None:
        return None
    statuses = row["statuses"]
    hosts, executions = (list(_runs(row[name], len(statuses))) for name in ("hosts", "executions"))
    return Grid(statuses, hosts, executions, row["late"])


def _runs(starts: Sequence[tuple[int, int]], end: int) -> Iterator[Run]:
    """Turn the places at which numbers begin anew into runs of them."""
    for (place, first), (following, _) in pairwise((*starts, (end, 0))):
        yield first, following - place
