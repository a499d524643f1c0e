"""Somebody who looks into the tables past the service, and passes over a server that is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import asyncpg

from tests.cli.running import TERMINAL

BOUND_S = 120.0

_SETTLED = """
SELECT coalesce(sum(n), 0)::bigint
  FROM onward.job_counts
 WHERE job_id = $1 AND status = ANY ($2)
"""
_STATUSES = "SELECT status, count(*) FROM onward.executions WHERE job_id = $1 GROUP BY status"
_WORKERS = """
SELECT id, name, extract(epoch FROM now() - beat_at), extract(epoch FROM now() - progress_at)
  FROM onward.workers
 WHERE stopped_at IS NULL AND beat_at > now() - interval '10 s'
"""


@dataclass(slots=True)
class Observer:
    """Looks again and again, and calls `meanwhile` each time."""

    url: str
    meanwhile: Callable[[], None]
    connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.connection is not None:
            self.connection.terminate()

    async def statuses(self, job: int) -> dict[str, int] | None:
        """How many executions of a job are where; none if nobody answers just now."""
        found = await self._ask(_STATUSES, job)
        return None if found is None else dict(found)

    async def until_settled(self, job: int, wanted: int) -> None:
        """Wait until so many have ended; if that takes too long, say where the others are."""
        deadline = time.monotonic() + BOUND_S
        while await self._settled(job) < wanted:
            assert time.monotonic() < deadline, await self._where(job)
            self.meanwhile()
            await asyncio.sleep(0.02)

    async def _settled(self, job: int) -> int:
        found = await self._ask(_SETTLED, job, TERMINAL)
        return found[0][0] if found else -1

    async def _where(self, job: int) -> str:
        return f"stuck: {await self.statuses(job)}, workers {await self._ask(_WORKERS)}"

    async def _ask(self, question: str, *given: object) -> list[tuple[Any, ...]] | None:
        try:
            if self.connection is None or self.connection.is_closed():
                self.connection = await asyncpg.connect(self.url)
            return [tuple(row) for row in await self.connection.fetch(question, *given)]
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return None
