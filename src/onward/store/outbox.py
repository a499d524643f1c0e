"""The outbox: words for whoever drives the work, written where they arose.

A word is a hint. It is claimed for a while, handed on with no transaction open, and deleted when it
was taken. Whoever dies in between has lost nothing: after a while somebody else hands it on again,
and even if all words were lost, the reaper would find the same work in the tables.
"""

from __future__ import annotations

from typing import NamedTuple

from onward.store import queries
from onward.store.database import Pool, answering

SQL = queries.load("outbox.sql")


class Word(NamedTuple):
    """Something to be told."""

    id: int
    topic: str
    job_id: int
    trace: str  # JSON: which request it comes from


async def claim(pool: Pool, *, limit: int, lease_s: float) -> list[Word]:
    """Claim words for `lease_s`, the oldest first; nobody waits for what another has claimed."""
    with answering():
        return [Word(*row) for row in await pool.fetch(SQL["claim"], limit, lease_s)]


async def delete(pool: Pool, words: list[Word]) -> None:
    """Delete words that were handed on."""
    with answering():
        await pool.execute(SQL["delete"], [word.id for word in words])
