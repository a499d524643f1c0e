"""A thousand sessions at once on real sshd, each with its own program and its own answer."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from onward.channels.base import Stream
from onward.channels.ssh import SshChannel
from onward.errors import DeliveryUnknown
from tests.channels.conformance.ground import until
from tests.channels.ssh.sshd import USER, Server, begun, delivery, needs_sshd, prepared, sshd
from tests.proof_table import Tried

pytestmark = needs_sshd

_ADDRESSES = [f"127.0.0.{n}" for n in range(1, 11)]  # an sshd listens at 16 at most


def servers(stack: ExitStack, folder: Path, how_many: int) -> list[Server]:
    return [stack.enter_context(sshd(folder, addresses=_ADDRESSES)) for _ in range(how_many)]


@pytest.mark.timeout(900)
async def test_many_sessions_are_open_at_once(tmp_path: Path, tried: Tried, *, proof: bool):
    """Each waits until all have begun, so they are all there at the same moment."""
    sessions, hosts = (1_000, 100) if proof else (100, 20)
    go = tmp_path / "go"
    os.mkfifo(go)
    begun = 0
    said: dict[int, str] = {}

    with ExitStack() as stack:
        found = servers(stack, prepared(tmp_path), hosts // len(_ADDRESSES))
        places = [f"{USER}@{each}:{server.port}" for server in found for each in _ADDRESSES]
        way = found[0].way(sessions=sessions // hosts, connect_timeout_s=120)
        async with SshChannel(way) as channel:

            async def run(number: int) -> bool:
                def hear(_stream: Stream, text: str) -> None:
                    nonlocal begun
                    begun += text == "here\n"
                    said[number] = said.get(number, "") + text

                script = f"echo here; read x < {go} || true; echo {number}"
                asked = delivery(places[number % hosts], "sh", "-c", script, timeout_s=600)
                return (await channel.deliver(asked, hear)).succeeded

            running = asyncio.gather(*map(run, range(sessions)))
            await until(lambda: begun == sessions, within_s=600)
            assert channel.connections == hosts
            while not running.done():
                open_and_close(go)
                await asyncio.sleep(0.05)
            assert all(await running)
    assert said == {number: f"here\n{number}\n" for number in range(sessions)}
    tried("sessions at once on real sshd", sessions, "each with its own answer")


def open_and_close(path: Path) -> None:
    """Let go those who wait for a writer; without them there is nothing to be opened."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


async def test_when_a_host_dies_only_its_own_are_unknown(tmp_path: Path):
    with ExitStack() as stack:
        folder = prepared(tmp_path)
        survivor = stack.enter_context(sshd(folder))
        with sshd(folder) as victim:
            async with SshChannel(survivor.way()) as channel:
                asked = [
                    delivery(each.address, "sleep", "1")
                    for each in (survivor, victim, survivor, victim)
                ]
                running = [asyncio.create_task(channel.deliver(each, _ignore)) for each in asked]
                await until(lambda: begun(channel) == 4)
                for line in channel._pool._lines.values():
                    if line.address.target.port == victim.port and line.connection is not None:
                        line.connection.abort()
                ended = await asyncio.gather(*running, return_exceptions=True)
    assert [isinstance(each, DeliveryUnknown) for each in ended] == [False, True, False, True]


def _ignore(_stream: Stream, _text: str) -> None:
    pass
