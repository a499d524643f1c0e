"""Who drives the work, and whether they still breathe."""

from __future__ import annotations

from onward.store.database import Pool, answering


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


async def leave(pool: Pool, worker_id: int) -> None:
    """Say that this worker is gone, so that nobody waits for its breath."""
    with answering():
        await pool.execute("UPDATE workers SET stopped_at = now() WHERE id = $1", worker_id)
