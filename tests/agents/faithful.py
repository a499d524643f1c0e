"""An agent that forgets nothing: it connects again, and says a result until it is receipted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from websockets.exceptions import InvalidHandshake, WebSocketException

from onward.channels.agent.messages import Accepted, Pieces, Receipt, Refused, Result, Run
from onward.channels.agent.wire import FrameRefused
from onward.channels.base import Stream
from tests.agents.ground import Agent

Attempt = tuple[str, int]


@dataclass
class Faithful:
    """Runs a command once, whatever the attempt, and remembers how it ended."""

    agent: Agent
    ran: list[str] = field(default_factory=list)
    highest: int = 0
    unreceipted: dict[Attempt, Result] = field(default_factory=dict)
    receipted: set[Attempt] = field(default_factory=set)
    connections: int = 0

    @asynccontextmanager
    async def staying(self) -> AsyncIterator[Faithful]:
        """Be there for as long as the block lasts, over every break of the connection."""
        living = asyncio.create_task(self._live())
        try:
            yield self
        finally:
            living.cancel()
            with suppress(asyncio.CancelledError):
                await living
            if self.agent.socket is not None:
                await self.agent.socket.close()

    async def _live(self) -> None:
        while True:
            with suppress(OSError, WebSocketException, InvalidHandshake, FrameRefused, EOFError):
                await self._connection()
            if self.agent.socket is not None:
                self.agent.socket.transport.abort()
            await asyncio.sleep(0.01)

    async def _connection(self) -> None:
        agent = self.agent
        async with asyncio.timeout(5):
            await agent.connect(seen=self.highest)
        self.connections += 1
        for result in list(self.unreceipted.values()):
            await self._tell(result)
        while True:
            assert agent.session is not None
            message = agent.session.open(await agent.receive(), agent.clock())
            match message:
                case Run():
                    await self._run(message)
                case Receipt():
                    self.receipted.add((message.cmd, message.epoch))
                    self.unreceipted.pop((message.cmd, message.epoch), None)

    async def _run(self, run: Run) -> None:
        if run.epoch < self.highest:
            await self.agent.say(Refused(run.cmd, run.epoch, busy=True, why="seen a newer one"))
            return
        self.highest = run.epoch
        await self.agent.say(Accepted(run.cmd, run.epoch))
        repeated = run.cmd in self.ran
        if not repeated:
            self.ran.append(run.cmd)
        result = Result(run.cmd, run.epoch, succeeded=True, exit_code=0, repeated=repeated)
        self.unreceipted[run.cmd, run.epoch] = result
        await self._tell(result)

    async def _tell(self, result: Result) -> None:
        words = ((Stream.STDOUT, "done\n"),)
        await self.agent.say(Pieces(result.cmd, result.epoch, 0, words))
        await self.agent.say(result)
