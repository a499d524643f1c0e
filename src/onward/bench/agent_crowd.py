"""A process with a thousand connections: agents as they are, or clients that return what they get.

python -m onward.bench.agent_crowd hub|echo PORT HOSTS
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Final

import uvloop
from websockets.asyncio.client import connect

from onward.agent.host import Host
from onward.agent.journal import Journal
from onward.agent.line import Line, ServerClock
from onward.agent.running import Limits, Place
from onward.agent.server import server_at
from onward.agent.state import Identity
from onward.channels.keyring import KeyRing
from onward.service import logs

_AT_ONCE: Final = 50  # handshakes


async def _agents(port: str, hosts: list[int]) -> None:
    keyring = KeyRing(bytes.fromhex(os.environ["ONWARD_BENCH_MASTER"]))
    server = server_at(f"http://127.0.0.1:{port}")
    async with asyncio.TaskGroup() as lines:
        for number, host_id in enumerate(hosts):
            clock = ServerClock()
            host = Host(Journal(":memory:"), limits=Limits(), place=Place(Path()), clock=clock)
            identity = Identity(host_id, str(host_id), 1, keyring.agent_key(host_id, 1))
            line = Line(server, identity, host, clock=clock, version="bench")
            lines.create_task(line.hold())
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0.05)


async def _echoes(port: str, hosts: list[int]) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as clients:
        for _ in hosts:
            clients.create_task(_echo(f"ws://127.0.0.1:{port}/echo", turns))


async def _echo(url: str, turns: asyncio.Semaphore) -> None:
    async with turns:
        socket = await connect(url, compression=None)
    async for frame in socket:
        await socket.send(frame)


def quiet() -> None:
    """Log what goes wrong, and not that a thousand agents have come."""
    logs.configure()
    logging.getLogger().setLevel(logging.WARNING)


def _main(kind: str, port: str, hosts: str) -> None:
    quiet()
    crowd = {"hub": _agents, "echo": _echoes}[kind]
    uvloop.run(crowd(port, json.loads(hosts)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
