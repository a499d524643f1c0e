"""Keeps a program running: started again whenever it ends, until this process is told to leave."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from onward.engines.celery.process import broker_url
from onward.engines.equipment import pace
from onward.errors import InvalidInput
from onward.service import leaving, waiting
from onward.settings import Settings

_PROGRAM: Final = "onward.service.celery_program"
_PAUSE_S: Final = 1.0

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.service")


def work(settings: Settings, *, processes: int) -> None:
    """Run Celery workers until told to leave; what runs may end first."""
    leaving.run(partial(_prepared, settings, ("worker", f"--concurrency={processes}")))


def beat(settings: Settings) -> None:
    """Run Celery's Beat until told to leave. More than one do no harm."""
    # What it has asked for is of no use after a restart, so it keeps nothing.
    scheduler = ("--scheduler=celery.beat:Scheduler", "--pidfile=")
    leaving.run(partial(_prepared, settings, ("beat", *scheduler)))


async def _prepared(settings: Settings, arguments: Sequence[str], stopping: asyncio.Event) -> None:
    """Say what is wrong with the settings and the database before anything is started."""
    broker_url(settings)
    pace(settings)
    if settings.database_url is None:
        raise InvalidInput(
            "ONWARD_DATABASE_URL", "is not set; processes on several machines share a PostgreSQL"
        )
    async with waiting.opened(settings, stopping):
        pass
    await _keep(arguments, stopping)


async def _keep(arguments: Sequence[str], stopping: asyncio.Event) -> None:
    asked = asyncio.create_task(stopping.wait())
    while not stopping.is_set():
        # A session of its own: signals from the terminal come to us alone, and we hand them on.
        # Its input ends when we do, and then it leaves.
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _PROGRAM, *arguments), stdin=PIPE, start_new_session=True
        )
        try:
            ended = asyncio.create_task(child.wait())
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _ended(child)
        if not stopping.is_set():
            log.warning("started_again", program=arguments[0], code=child.returncode)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asked), _PAUSE_S)


async def _ended(child: asyncio.subprocess.Process) -> None:
    """Ask a program to leave, and wait until it has; hurried, end it."""
    if child.returncode is not None:
        return
    child.terminate()
    try:
        await child.wait()
    except asyncio.CancelledError:
        child.kill()
        raise
