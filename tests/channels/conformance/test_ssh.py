"""SSH keeps what every channel promises: with OpenSSH's server, and with asyncssh's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from onward.channels.base import Delivery, Target
from onward.channels.ssh import SshChannel
from tests.channels.conformance.ground import Does, Effects, Nature
from tests.channels.conformance.suite import *  # noqa: F403 - the tests
from tests.channels.faults import Proxy, faulty
from tests.channels.ssh.sshd import USER, Server, asyncssh_server, installed, prepared, sshd

_numbers = count(1)


class SshGround:
    """A server behind a way that breaks on command."""

    nature = Nature()

    def __init__(self, channel: SshChannel, proxy: Proxy, effects: Effects) -> None:
        self.channel = channel
        self._proxy = proxy
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
        number = next(_numbers)
        command_id, epoch = command_id or f"command {number}", epoch or number
        params: dict[str, object] = {"argv": self._effects.argv(does, f"{command_id}/{epoch}")}
        if does.refused:
            params["cwd"] = "/nowhere"
        target = Target(1, "web1", f"{USER}@127.0.0.1:{self._proxy.port}")
        return Delivery(command_id, epoch, target, "RUN", params, timeout_s, exclusive)

    def effects(self) -> list[str]:
        return self._effects.lines()

    async def away(self) -> None:
        await self._proxy.refuse()

    async def back(self) -> None:
        await self._proxy.restore()

    async def cut(self) -> None:
        self._proxy.reset()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """What is there to log in to."""
    folder = prepared(tmp_path_factory.mktemp("ssh"))
    with asyncssh_server(folder) as own:
        if not installed:
            yield {"asyncssh": own}
            return
        with sshd(folder) as server:
            yield {"asyncssh": own, "sshd": server}


@pytest.fixture(params=["sshd", "asyncssh"])
async def ground(
    request: pytest.FixtureRequest, servers: dict[str, Server], tmp_path: Path
) -> AsyncIterator[SshGround]:
    """A host of each kind."""
    server = servers.get(request.param)
    if server is None:
        pytest.skip("not run: needs sshd (openssh-server)")
    async with faulty(server.port) as proxy, SshChannel(server.way()) as channel:
        yield SshGround(channel, proxy, Effects(tmp_path / "effects"))
