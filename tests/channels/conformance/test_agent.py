"""The channel to agents: the program on the host is the real one, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

import onward
from onward.channels.agent.channel import AgentChannel
from onward.channels.base import Channel, Delivery, Target
from onward.errors import HostBusy
from onward.fleet.agents import make_token
from onward.fleet.whereabouts import Whereabouts
from tests.agents.ground import BOUND_S, Server, serving, until
from tests.channels.conformance.ground import Does, Ear, Effects, Nature
from tests.channels.conformance.suite import *  # noqa: F403 - the whole suite, under this channel
from tests.channels.faults import Proxy, faulty
from tests.conftest import settings_for
from tests.present import TESTER

_numbers = count(1)
_epochs = count(1)


@pytest.fixture(scope="module")
async def server(shared_url: str) -> AsyncIterator[Server]:
    """A server that agents connect to."""
    async with onward.open(settings_for(shared_url)) as opened, serving(opened) as found:
        yield found


@dataclass
class Inhabited:
    """A host with an agent, behind a way that can be cut."""

    server: Server
    proxy: Proxy
    host_id: int
    channel: Channel  # through the process that the agent is connected to


class AgentGround:
    """The same host for all tests, each with a file of its own for what the host does."""

    nature = Nature(remembers=True)

    def __init__(self, host: Inhabited, channel: Channel, effects: Effects) -> None:
        self.channel = channel
        self._host = host
        self._effects = effects

    def delivery(
        self,
        does: Does,
        *,
        command_id: str | None = None,
        epoch: int | None = None,
        timeout_s: float = 20.0,
        exclusive: bool = True,
    ) -> Delivery:
        command_id = command_id or str(next(_numbers))
        epoch = epoch or next(_epochs)
        argv = self._effects.argv(does, f"{command_id}/{epoch}")
        return Delivery(
            command_id=command_id,
            epoch=epoch,
            target=Target(self._host.host_id, "the host", "", 1),
            command_type="PROBE",
            # The job of somebody who has not said what to run.
            params={} if does.refused else {"argv": argv},
            timeout_s=timeout_s,
            exclusive=exclusive,
        )

    def effects(self) -> list[str]:
        return self._effects.lines()

    async def away(self) -> None:
        await self._host.proxy.refuse()
        await until(lambda: not self._there())

    async def back(self) -> None:
        await self._host.proxy.restore()
        await until(self._there)

    async def cut(self) -> None:
        self._host.proxy.reset()

    async def settled(self) -> None:
        """Wait until the host is there and does nothing more of an earlier test."""
        await self.back()
        async with asyncio.timeout(BOUND_S):
            while True:
                # Another attempt each time: one that was refused stays so.
                nothing = self.delivery(Does())._replace(params={"argv": ["true"]})
                try:
                    await self._host.channel.deliver(nothing, Ear())
                except HostBusy:
                    await asyncio.sleep(0.05)
                else:
                    return

    def _there(self) -> bool:
        return self._host.server.services.hub.has(self._host.host_id)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the suite also through another process when everything is proved."""
    ways = ["here"]
    if metafunc.config.getoption("--proof"):
        ways.append("through another process")
    metafunc.parametrize("ground", ways, indirect=True)


@asynccontextmanager
async def agent(server: Server, host_id: int, port: int, folder: Path) -> AsyncIterator[None]:
    """Have the real agent of a host, in a process of its own."""
    token = await make_token(server.services.pool, host_id, by=TESTER)
    assert token is not None
    # Root in a container is who runs the tests; the agent wants that to be said.
    as_root = ["--allow-root"] if os.geteuid() == 0 else []
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "onward", "agent"),
            *("--server", f"http://127.0.0.1:{port}"),
            *("--state", str(folder / "state"), "--grace-s", "0.5", *as_root),
            env={**os.environ, "ONWARD_AGENT_TOKEN": token.token},
            stdout=log,
            stderr=log,
        )
    try:
        await until(lambda: server.services.hub.has(host_id), within_s=60)
        yield
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture(scope="module")
async def inhabited(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inhabited]:
    """A host with an agent for the whole module: starting one takes longer than most tests."""
    host_id = await server.services.pool.fetchval(
        "INSERT INTO hosts (name, channel) VALUES ('probed', 'agent') RETURNING id"
    )
    folder = tmp_path_factory.mktemp("agent")
    async with faulty(server.port) as proxy, agent(server, host_id, proxy.port, folder):
        yield Inhabited(server, proxy, host_id, AgentChannel(server.services.hub))


@pytest.fixture
async def ground(
    inhabited: Inhabited, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[AgentGround]:
    """A host with an agent, which is connected to this process or, as it seems, to another one."""
    services = inhabited.server.services
    find = Whereabouts(services.pool, lost_after_s=5).find
    hub = services.hub if request.param == "here" else None
    async with AgentChannel(hub, find) as channel:
        found = AgentGround(inhabited, channel, Effects(tmp_path / "effects"))
        await found.settled()
        yield found
