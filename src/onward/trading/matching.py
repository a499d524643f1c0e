"""Matchers: each takes the orders that have arrived to the book, for as long as the process runs.

Any number of them may run, in any number of processes. None waits for another, and whatever one of
them leaves when it dies, the next one finds. What their deals have changed is added up beside them,
once a process.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from onward.errors import ServerProblem
from onward.store import ledger, orders
from onward.store.database import Pool

ARRIVALS_MAX: Final = 16  # in one transaction: more of them keep what they have locked for longer
_FOLDS_MAX: Final = 100
_POLL_S: Final = 0.2  # between looks for orders that other processes have placed
_AGAIN_S: Final = 0.02

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.matching")


async def match_until(stopping: asyncio.Event, pool: Pool, *, arrived: asyncio.Event) -> None:
    """Match what arrives until `stopping` is set; `arrived` says that it is worth a look."""
    while not stopping.is_set():
        pause_s = _POLL_S
        try:
            pause_s = await match_once(pool)
        except ServerProblem as error:
            log.warning("server_away", problem=str(error))
        if pause_s:
            await _pause(pause_s, arrived)
            arrived.clear()


async def match_once(pool: Pool) -> float:
    """Match some of what has arrived; returns the seconds until it is worth another look."""
    matched = await orders.match(pool, limit=ARRIVALS_MAX, again_s=_AGAIN_S)
    if matched.arrivals == ARRIVALS_MAX:
        return 0.0
    return _AGAIN_S if matched.again else _POLL_S


async def add_up_until(stopping: asyncio.Event, pool: Pool) -> None:
    """Add up what deals have changed until `stopping` is set, so that there is never much of it."""
    while not stopping.is_set():
        more = False
        try:
            more = await ledger.fold(pool, limit=_FOLDS_MAX) == _FOLDS_MAX
        except ServerProblem as error:
            log.warning("server_away", problem=str(error))
        if not more:
            await _pause(_POLL_S, stopping)


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await unless.wait()
