"""What is done to the servers on the way: driven by how far the clients have come, not by time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from onward.store.database import Pool
from tests.trading.bank.servers import Servers

AWAY: Final = 60  # operations that are asked for while something is away


@dataclass(slots=True)
class Progress:
    """How many operations have been answered, for whoever waits until it is enough."""

    wanted: int
    begun: int = 0
    done: int = 0
    over: bool = False
    _waiting: list[tuple[int, asyncio.Event]] = field(default_factory=list)

    def begin(self) -> bool:
        """Say whether there is another operation to be asked for."""
        self.begun += 1
        return self.begun <= self.wanted

    def count(self) -> None:
        """One more has been answered."""
        self.done += 1
        self._release()

    def end(self) -> None:
        """Nobody asks for anything any more: whoever waits need not."""
        self.over = True
        self._release()

    async def reaches(self, done: int) -> None:
        """Wait until so many have been answered, or there is nothing to wait for."""
        event = asyncio.Event()
        self._waiting.append((done, event))
        self._release()
        await event.wait()

    def _release(self) -> None:
        if not self._waiting:
            return
        for done, event in self._waiting:
            if self.over or self.done >= done:
                event.set()
        self._waiting = [each for each in self._waiting if not each[1].is_set()]


class Chaos:
    """Strikes at the servers, one deed after the other, evenly spread over the operations."""

    def __init__(self, servers: Servers, pool: Pool, progress: Progress):
        self._servers = servers
        self._pool = pool
        self._progress = progress
        self._killed = 0
        self._restarting: asyncio.Task[None] | None = None
        self.done: list[str] = []

    async def run(self, rounds: int) -> None:
        """Do each deed once a round, while the first four fifths of the operations are answered."""
        deeds = [deed for _ in range(rounds) for deed in self.deeds()]
        for number, deed in enumerate(deeds, start=1):
            await self._progress.reaches(number * self._progress.wanted * 4 // (5 * len(deeds)))
            assert not self._progress.over, f"everything was answered before {deed.__name__}"
            await deed()
            self.done.append(deed.__name__)
        await self._restarted()

    def deeds(self) -> list[Callable[[], Awaitable[None]]]:
        """What can be done. A process that was killed leaves locks behind, until Valkey forgets."""
        return [
            self.server_killed,
            self.valkey_emptied,
            self.connections_cut,
            self.valkey_killed,
            self.valkey_paused,
            self.both_killed,
        ]

    async def valkey_emptied(self) -> None:
        """Empty it under whoever holds a lock."""
        await asyncio.to_thread(self._servers.valkey.empty)

    async def valkey_killed(self) -> None:
        """Strike it down, and leave it so for a while."""
        self._servers.valkey.strike_down()
        await self._while_away()
        await asyncio.to_thread(self._servers.valkey.raise_up)

    async def valkey_paused(self) -> None:
        """Let it be silent for a while; then it hears everything that was said meanwhile."""
        self._servers.valkey.stop()
        try:
            await self._while_away()
        finally:
            self._servers.valkey.go_on()

    async def server_killed(self) -> None:
        """Strike down a process, another one each time; it is started again beside what follows."""
        await self._restarted()
        self._killed += 1
        number = self._killed % len(self._servers.doors)
        await self._servers.kill(number)
        self._restarting = asyncio.create_task(self._servers.restart(number))

    async def both_killed(self) -> None:
        """Strike down Valkey, and then a process which has learned to do without it."""
        await self._restarted()
        self._servers.valkey.strike_down()
        await self._while_away()
        await self.server_killed()
        await asyncio.to_thread(self._servers.valkey.raise_up)

    async def connections_cut(self) -> None:
        """Cut every connection of every process to PostgreSQL, in the middle of what it does."""
        await self._pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'onward'"
        )

    async def _while_away(self) -> None:
        await self._progress.reaches(self._progress.done + AWAY)

    async def _restarted(self) -> None:
        """Wait for the process that was killed before: one of them is to be there at any time."""
        if self._restarting is not None:
            await self._restarting
