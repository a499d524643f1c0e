"""Who drives the work, and whether they still breathe."""

from __future__ import annotations

from typing import NamedTuple

import asyncpg

from onward.store.database import Connection, Pool, answering


class OfMachine(NamedTuple):
    """How many workers of one machine live, and how many of them get on."""

    breathing: int
    getting_on: int


async def register(pool: Pool, name: str) -> int:
    """Give a process that has just started an identity that nobody had before."""
    with answering():
        return int(await pool.fetchval("INSERT INTO workers (name) VALUES ($1) RETURNING id", name))


async def beat(pool: Pool, worker_id: int, *, still_s: float = 0.0) -> None:
    """Say that this worker lives, and for how long it has not got on with its work."""
    with answering():
        await pool.execute(
            "UPDATE workers SET beat_at = now(), progress_at = now() - make_interval(secs => $2) "
            "WHERE id = $1",
            worker_id,
            still_s,
        )


async def refused(pool: Pool, worker_id: int, number: int) -> None:
    """Add to what this worker has refused of what the broker brought."""
    with answering():
        await pool.execute(
            "UPDATE workers SET refused = refused + $2 WHERE id = $1", worker_id, number
        )


async def leave(pool: Pool, worker_id: int) -> None:
    """Say that this worker is gone, so that nobody waits for its breath."""
    with answering():
        await pool.execute("UPDATE workers SET stopped_at = now() WHERE id = $1", worker_id)


async def of_machine(
    connection: Connection, machine: str, *, lost_after_s: float, stuck_after_s: float
) -> OfMachine:
    """Count the workers of a machine; without our tables there are none."""
    try:
        with answering():
            row = await connection.fetchrow(
                "SELECT count(*), count(*) FILTER "
                "(WHERE progress_at >= now() - make_interval(secs => $3)) FROM workers "
                # A name is that of the machine and the number of the process.
                "WHERE starts_with(name, $1 || ':') AND stopped_at IS NULL "
                "AND beat_at >= now() - make_interval(secs => $2)",
                machine,
                lost_after_s,
                stuck_after_s,
            )
    except asyncpg.SyntaxOrAccessError:
        return OfMachine(0, 0)
    assert row is not None  # noqa: S101 - counting always answers with one row
    return OfMachine(*row)
