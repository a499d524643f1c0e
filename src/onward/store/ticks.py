"""What is to be done once in a while by any of many: whoever comes first has done it for all."""

from __future__ import annotations

from onward.store.database import Pool, answering


async def claim(pool: Pool, name: str, *, every_s: float) -> bool:
    """Say whether it is time, and take it; of those who ask at the same moment, one may."""
    with answering():
        found = await pool.fetchval(
            "INSERT INTO ticks (name, at) VALUES ($1, now()) ON CONFLICT (name) DO UPDATE "
            "SET at = now() WHERE ticks.at <= now() - make_interval(secs => $2) RETURNING true",
            name,
            every_s,
        )
    return bool(found)
