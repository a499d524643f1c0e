"""What the bank runs on: processes of the service and a Valkey, each of which may be struck down.

PostgreSQL is the one server that nobody strikes down here: what it has confirmed is the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from onward.demo.programs import Program, started
from onward.errors import InvariantBroken
from onward.store.keys import new_key
from tests.cli.running import folder_for_servers, on_database
from tests.mortal_valkey import MortalValkey, mortal_valkey
from tests.trading.bank.lines import Door

BOUND_S: Final = 60.0


class Servers:
    """Processes of the service on one database and one Valkey, and the doors to them."""

    def __init__(
        self, stack: AsyncExitStack, folder: Path, database_url: str, *, valkey: MortalValkey
    ) -> None:
        self.admin_key = new_key()
        self.valkey = valkey
        self.doors: list[Door] = []
        self._stack = stack
        self._folder = folder
        self._programs: list[Program] = []
        self._settings = {
            **on_database(database_url),
            "ONWARD_REDIS_URL": valkey.url,
            "ONWARD_ADMIN_KEY": self.admin_key,
            "ONWARD_DATA_DIR": str(folder),
        }

    async def start(self, count: int) -> None:
        """Start some processes of the service."""
        for number in range(count):
            self._programs.append(await self._program(number))
            self.doors.append(Door())
        # They start at the same time, on the same schema.
        await asyncio.gather(*(self._answering(number) for number in range(count)))

    async def kill(self, number: int) -> None:
        """End a process where it stands."""
        self.doors[number].port = None
        await self._programs[number].kill()

    async def restart(self, number: int) -> None:
        """Start a process in the place of one that was killed.

        It gives up when there is no Valkey at this moment; whoever supervises it starts it again.
        """
        async with asyncio.timeout(BOUND_S):
            while self.doors[number].port is None:
                self._programs[number] = await self._program(number)
                with suppress(InvariantBroken):
                    await self._answering(number)

    def check(self) -> None:
        """See that no process has ended by itself."""
        for program in self._programs:
            program.check()

    async def _program(self, number: int) -> Program:
        command = ("onward", "up", "--port", "0")
        return await self._stack.enter_async_context(
            started(f"server {number}", *command, folder=self._folder, settings=self._settings)
        )

    async def _answering(self, number: int) -> None:
        said = await self._programs[number].says(r"address +http://127\.0\.0\.1:(\d+)")
        self.doors[number].port = int(said)


@asynccontextmanager
async def serving(database_url: str, *, count: int) -> AsyncIterator[Servers]:
    """Start the servers; whatever of them is left in the end is ended."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(folder_for_servers())
        valkey = stack.enter_context(mortal_valkey())
        servers = Servers(stack, folder, database_url, valkey=valkey)
        await servers.start(count)
        yield servers
