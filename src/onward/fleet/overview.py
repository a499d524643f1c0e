"""Looks at how things stand as a whole, once for everybody.

Every page that somebody leaves open asks for it every few seconds. So all callers of one process
get the same answer for a second, and what hardly ever changes is counted more seldom still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from onward.fleet.attention import Attention, attention
from onward.fleet.shared import Shared
from onward.settings import Settings
from onward.store import browse
from onward.store import overview as store
from onward.store.browse import Row
from onward.store.database import Pool
from onward.store.overview import Fleet, Limits, Standing

_KEEP_S: Final = 1.0
_FLEET_S: Final = 10.0  # to count all hosts takes longer than all else
_JOBS: Final = 20


class Found(NamedTuple):
    """How things stand."""

    standing: Standing
    hosts: Mapping[str, int]  # by state
    blocks: int
    workers: Sequence[Row]
    open: Sequence[Row]  # the newest jobs that have not finished
    waiting: Sequence[Row]  # the oldest that wait for approval
    attention: Sequence[Attention]
    activity: Mapping[str, Sequence[int]]  # by status, how many ended in each minute


class Overview:
    """Says how things stand; whoever asks within a second gets the same answer."""

    def __init__(self, pool: Pool, settings: Settings, limits: Limits | None = None) -> None:
        self._pool = pool
        self._lost_after_s = settings.worker_lost_after_s
        self._limits = limits or Limits()
        self._told = Shared[bytes](keep_s=_KEEP_S)
        self._fleet = Shared[Fleet](keep_s=_FLEET_S)

    async def told(self, write: Callable[[Found], bytes]) -> bytes:
        """Return how things stand, as `write` writes it down."""

        async def look() -> bytes:
            return write(await self.look())

        return await self._told.get(look)

    async def look(self) -> Found:
        """Look at how things stand now, whoever else has just looked."""
        pool = self._pool
        standing = await store.standing(pool, self._limits)
        workers = await store.workers(pool, lost_after_s=self._lost_after_s)
        hosts, blocks = await self._fleet.get(lambda: store.fleet(pool))
        return Found(
            standing,
            hosts,
            blocks,
            workers,
            open=await browse.jobs(pool, is_open=True, limit=_JOBS),
            waiting=await browse.waiting_jobs(pool, limit=_JOBS),
            attention=attention(standing, workers),
            activity=await store.activity(pool),
        )
