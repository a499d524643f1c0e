"""The outbox: words for whoever drives the work, written where they arose."""

from __future__ import annotations

from onward.store.database import Pool, answering

_TAKE = """
DELETE FROM outbox
 WHERE id IN (
        SELECT id FROM outbox WHERE topic = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING job_id
"""


async def take(pool: Pool, topic: str, *, limit: int) -> set[int]:
    """Take words off the outbox, and return the jobs that they are about.

    Whoever takes them and dies has lost nothing but time: a word is a hint, and the reaper finds
    the same work in the tables.
    """
    with answering():
        return {row["job_id"] for row in await pool.fetch(_TAKE, topic, limit)}
