"""The Celery engine in processes of its own, as `onward worker` and `onward beat` start it.

The hosts are simulated in the processes of the worker, so that nothing but Onward takes time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from onward.errors import InvariantBroken

_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.05
_COMPLAINT_MAX: Final = 2_000
_READY: Final = "ready."  # what Celery says once it takes messages


@asynccontextmanager
async def scaled(database_url: str, redis_url: str, *, processes: int) -> AsyncIterator[None]:
    """Let a worker with so many processes and a Beat work, from when they are ready."""
    settings = {
        "ONWARD_DATABASE_URL": database_url,
        "ONWARD_BROKER_URL": redis_url,
        "ONWARD_SIMULATED_NETWORK": "perfect",
    }
    # The settings of the machine are meant for its own service.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONWARD_")}
    with TemporaryDirectory(prefix="onward-bench-") as folder:
        log = Path(folder, "worker.log")
        worker = ("worker", "--processes", str(processes))
        async with (
            _program(*worker, log=log, settings=kept | settings) as working,
            _program("beat", log=Path(folder, "beat.log"), settings=kept | settings),
        ):
            await _until_ready(working, log)
            yield


@asynccontextmanager
async def _program(
    *arguments: str, log: Path, settings: Mapping[str, str]
) -> AsyncIterator[Process]:
    with log.open("wb") as told:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "onward", *arguments),
            stdin=DEVNULL,
            stdout=told,
            stderr=told,
            env=settings,
        )
    try:
        yield program
    finally:
        await _left(program)


async def _left(program: Process) -> None:
    """Ask a program to leave; it takes along what it has started."""
    if program.returncode is None:
        program.terminate()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await program.wait()
    finally:
        if program.returncode is None:
            program.kill()


async def _until_ready(worker: Process, log: Path) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while _READY not in (told := await asyncio.to_thread(log.read_text, "utf-8")):
            if worker.returncode is not None:
                raise InvariantBroken(f"the worker did not start: {told[-_COMPLAINT_MAX:]}")
            await asyncio.sleep(_LOOK_S)
