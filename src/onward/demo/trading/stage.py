"""What it is played on: the services, each a process of its own, with the matchers in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from onward.demo.programs import Program, started


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """Give a stage that is empty; no process of it is left when the block is."""
    async with AsyncExitStack() as stack:
        yield Stage(folder, stack)


class Stage:
    """The processes of one demo."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.doors: list[str] = []  # where each service answers, or did
        self.programs: list[Program] = []

    async def open(self) -> None:
        """Start one more service, and wait until it answers."""
        self.doors.append(await self._serve(f"service {len(self.doors) + 1}"))

    async def key(self) -> str:
        """Return the key of the admin whom the first start has made."""
        return (await asyncio.to_thread((self._folder / "admin-key").read_text, "ascii")).strip()

    async def kill(self) -> Program:
        """End the last service where it stands."""
        victim = self.programs[-1]
        await victim.kill()
        return victim

    async def reopen(self) -> None:
        """Start another in the place of the last one, with another address."""
        self.doors[-1] = await self._serve(f"service {len(self.doors) + 1}")

    def check(self) -> None:
        """See that nobody has ended by themselves."""
        for program in self.programs:
            program.check()

    async def dismiss(self) -> None:
        """Ask everybody to leave, and wait until they have."""
        await asyncio.gather(*(program.leave() for program in self.programs))

    async def _serve(self, name: str) -> str:
        # It joins the servers of the demo as any program does that opens their directory: if the
        # demo is killed, the services are the last to leave, and stop them.
        program = await self._stack.enter_async_context(
            started(
                name,
                *("onward", "up", "--port", "0"),
                folder=self._folder,
                settings={"ONWARD_DATA_DIR": str(self._folder)},
            )
        )
        self.programs.append(program)
        return await program.says(r"address +(http://\S+)")
