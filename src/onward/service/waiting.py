"""A start that outlasts a PostgreSQL which is away: it waits, says so once, and leaves if told to.

Programs on several machines are started in any order, and after a power cut all at once. One that
ended for want of its server would be started again and again, by somebody who waits longer each
time. What waiting does not mend (a wrong password, a server that is too old) is told at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import structlog

import onward
from onward.errors import ServerProblem
from onward.settings import Settings
from onward.store import database
from onward.wiring import Onward

_PAUSE_S: Final = 0.5

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.service")


@asynccontextmanager
async def opened(
    settings: Settings, stopping: asyncio.Event, *, valkey: bool = False
) -> AsyncIterator[Onward | None]:
    """Open Onward as soon as its PostgreSQL answers; nothing, if `stopping` is set before.

    An embedded server is started, not waited for. A Valkey that is away is done without.
    """
    async with AsyncExitStack() as stack:
        found = None
        while found is None and await _there(settings, stopping):
            try:
                opening = onward.open(settings, valkey=valkey, may_be_away=True)
                found = await stack.enter_async_context(opening)
            except ServerProblem as error:
                # It was there a moment ago.
                if settings.database_url is None or not database.is_away(error):
                    raise
        yield found


async def _there(settings: Settings, stopping: asyncio.Event) -> bool:
    """Wait until the server of the settings answers; false, if `stopping` is set before."""
    told = False
    while not stopping.is_set():
        try:
            if settings.database_url is None or await _answers(settings.database_url, stopping):
                return True
        except ServerProblem as error:
            if not database.is_away(error):
                raise
            if not told:
                log.warning("waiting_for_server", problem=str(error))
            told = True
            await _pause(stopping)
    return False


async def _answers(url: str, stopping: asyncio.Event) -> bool:
    """Say whether somebody answers there; false, if `stopping` is set before."""
    # Whoever is to leave need not wait for a server that takes its time to say nothing.
    connecting = asyncio.create_task(database.connect(url))
    asked = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({connecting, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            return False
        await (await connecting).close()
        return True
    finally:
        for task in (connecting, asked):
            task.cancel()
        await asyncio.wait({connecting, asked})


async def _pause(stopping: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), _PAUSE_S)
