"""What the demo is played on: the hosts, the service and the workers, each a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from onward.demo import script
from onward.demo.caller import Caller
from onward.demo.programs import Program, started
from onward.demo.script import Demo

# Quick to give up on a worker and to try again: a minute has to be enough for everything.
_PACE: Final[Mapping[str, str]] = {
    "ONWARD_WORKER_LOST_AFTER_S": str(script.LOST_AFTER_S),
    "ONWARD_BASE_BACKOFF_S": "0.2",
    "ONWARD_MAX_BACKOFF_S": "2",
}


@asynccontextmanager
async def staged(demo: Demo, database_url: str, folder: Path) -> AsyncIterator[Stage]:
    """Give a stage that is empty; no process of it is left when the block is."""
    async with AsyncExitStack() as stack:
        yield Stage(demo, database_url, folder, stack)


class Stage:
    """The processes of one demo."""

    def __init__(self, demo: Demo, database_url: str, folder: Path, stack: AsyncExitStack) -> None:
        self._demo = demo
        self._database_url = database_url
        self._folder = folder
        self._stack = stack
        self._socket = str(folder / "fleet")
        self._journal = folder / "journal"
        self.programs: list[Program] = []
        self.workers: list[Program] = []

    async def start(self) -> Caller:
        """Start everything at once, and return the admin whom the first start has made."""
        fleet = await self._program(
            "fleet",
            *("onward.channels.simulated", "--socket", self._socket, "--any-type"),
            *("--journal", str(self._journal), "--hosts", str(script.MOST_HOSTS)),
            *("--network", "bad", "--seed", str(self._demo.seed), "--speed", str(script.SPEED)),
        )
        # It joins the servers of the demo as any program does that opens their directory: if the
        # demo is killed, the service is the last to leave, and stops them.
        service = await self._program(
            "service",
            *("onward", "up", "--port", "0", "--fleet", self._socket),
            ONWARD_DATA_DIR=str(self._folder),
        )
        for _ in range(script.WORKERS):
            await self.add_worker()
        address = await service.says(r"address +(http://\S+)")
        for program in (fleet, *self.workers):
            await program.says("ready")
        key = await asyncio.to_thread((self._folder / "admin-key").read_text, "ascii")
        return Caller(address, key.strip())

    async def add_worker(self) -> None:
        """Start one more worker."""
        worker = await self._program(
            f"worker {len(self.workers) + 1}",
            *("onward.service.worker", "--fleet", self._socket),
            ONWARD_DATABASE_URL=self._database_url,
        )
        self.workers.append(worker)

    def check(self) -> None:
        """See that nobody has ended by themselves."""
        for program in self.programs:
            program.check()

    async def dismiss(self) -> None:
        """Ask everybody to leave, the hosts last, and wait until they have."""
        for program in reversed(self.programs):
            await program.leave()

    async def witnessed(self) -> list[str]:
        """Return the journal of the hosts, as far as it is written."""
        return (await asyncio.to_thread(self._journal.read_text, "utf-8")).splitlines()

    async def _program(self, name: str, *command: str, **settings: str) -> Program:
        paced = {**_PACE, "ONWARD_WORKER_CAPACITY": str(self._demo.capacity), **settings}
        program = await self._stack.enter_async_context(
            started(name, *command, folder=self._folder, settings=paced)
        )
        self.programs.append(program)
        return program
