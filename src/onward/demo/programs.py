"""The processes of the demo: each with a log, and all of them gone in the end."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onward.errors import InvariantBroken

_START_S: Final = 60.0
_STOP_S: Final = 20.0


@dataclass(slots=True)
class Program:
    """A program that runs, until it is asked to leave or killed."""

    name: str
    process: Process
    log: Path
    dismissed: bool = False

    @property
    def pid(self) -> int:
        """The process that it is."""
        return self.process.pid

    async def says(self, pattern: str) -> str:
        """Wait for a line, and return the part of it that is asked for."""
        assert self.process.stdout is not None  # noqa: S101 - for mypy
        async with self._within(_START_S, "start"):
            while line := (await self.process.stdout.readline()).decode():
                if found := re.search(pattern, line):
                    return found[found.lastindex or 0]
            await self.process.wait()
        raise self._gave_up()

    def check(self) -> None:
        """See that it has not ended by itself."""
        if self.process.returncode is not None and not self.dismissed:
            raise self._gave_up()

    async def kill(self) -> None:
        """End it where it stands."""
        self.dismissed = True
        self.process.kill()
        await self.process.wait()

    async def leave(self) -> None:
        """Ask it to leave, and wait until it has."""
        self.dismissed = True
        if self.process.returncode is None:
            self.process.terminate()
            async with self._within(_STOP_S, "leave"):
                await self.process.wait()

    @asynccontextmanager
    async def _within(self, seconds: float, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise InvariantBroken(
                f"The {self.name} of the demo did not {what} within {seconds:.0f} s."
            ) from None

    def _gave_up(self) -> InvariantBroken:
        *_, reason = ["it said nothing", *self.log.read_text(encoding="utf-8").splitlines()]
        return InvariantBroken(f"The {self.name} of the demo gave up: {reason[:500]}")


@asynccontextmanager
async def started(
    name: str, *command: str, folder: Path, settings: Mapping[str, str]
) -> AsyncIterator[Program]:
    """Start a module of ours as a program; it is gone when the block is left, whatever happened."""
    log = folder / f"{name.replace(' ', '-')}.log"
    # The settings of the machine are meant for its own service.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ONWARD_")}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "onward.demo.child", *command),
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            env={**kept, **settings},
            # Ctrl-C is for the conductor, who then ends its programs.
            start_new_session=True,
        )
    try:
        yield Program(name, process, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
