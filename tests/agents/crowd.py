"""Many agents in a process of their own, which answer whatever they are asked.

    python -m tests.agents.crowd URL FIRST_HOST COUNT    the master key comes over standard input

Says `connected N` when all of them are, and again each time that they had to connect anew; leaves
when standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from onward.channels.keyring import KeyRing
from tests.agents.faithful import Faithful
from tests.agents.ground import Agent

AT_ONCE = 100  # that are connecting


class Crowd:
    """Agents that stay, however often they have to come again."""

    def __init__(self, url: str, keyring: KeyRing) -> None:
        self._url = url
        self._keyring = keyring
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def run(self, hosts: range) -> None:
        async with asyncio.TaskGroup() as group:
            members = [self._member(host_id) for host_id in hosts]
            for member in members:
                group.create_task(self._stay(member))
            said = 0
            while True:
                await asyncio.sleep(0.05)
                connections = sum(member.connections for member in members)
                there = sum(member.agent.socket is not None for member in members)
                if there == len(members) and connections >= len(members) and connections != said:
                    said = connections
                    print("connected", connections, flush=True)

    def _member(self, host_id: int) -> Faithful:
        return Faithful(Agent(self._url, host_id, self._keyring.agent_key(host_id, 1), 1))

    async def _stay(self, member: Faithful) -> None:
        connect = member.agent.connect

        async def in_turn(*, seen: int = 0) -> None:
            async with self._turn:
                await connect(seen=seen)
            member.agent.frames_up.clear()
            member.agent.frames_down.clear()

        member.agent.connect = in_turn  # type: ignore[method-assign]  # thousands must not come at once
        async with member.staying():
            await asyncio.get_running_loop().create_future()


async def main(url: str, first: int, number: int) -> None:
    master = bytes.fromhex(sys.stdin.readline().strip())
    crowd = asyncio.create_task(Crowd(url, KeyRing(master)).run(range(first, first + number)))
    leaving = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait([crowd, leaving], return_when=asyncio.FIRST_COMPLETED)
    if crowd.done():
        crowd.result()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
