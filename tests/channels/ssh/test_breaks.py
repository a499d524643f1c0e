"""Whatever breaks on the way, what is said about a command is true, and the next one gets through.

A command that was said not to have been delivered must not have run: the host writes down what it
runs, and is believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from onward.channels.base import Delivery, Target
from onward.channels.ssh import SshChannel
from onward.errors import DeliveryUnknown, HostRefused, NotDelivered
from tests.channels.conformance.ground import Ear, until
from tests.channels.faults import Proxy, Way, faulty
from tests.channels.ssh.sshd import (
    USER,
    Server,
    begun,
    delivery,
    free_port,
    needs_sshd,
    prepared,
    sshd,
)
from tests.proof_table import Tried

pytestmark = needs_sshd
_numbers = count(1)


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with faulty(server.port) as found:
        yield found


def marked(port: int, effects: Path, then: str = "") -> Delivery:
    """A program that writes its number down first."""
    number = next(_numbers)
    params: dict[str, object] = {"argv": ["sh", "-c", f"echo {number} >> {effects}; {then}"]}
    target = Target(1, "web1", f"{USER}@127.0.0.1:{port}")
    return Delivery(str(number), number, target, "RUN", params, 20)


def ran(effects: Path) -> list[str]:
    return effects.read_text().split() if effects.exists() else []


# Resets


@pytest.mark.parametrize("way", Way)
async def test_a_reset_at_any_byte_leaves_a_true_word(
    server: Server, proxy: Proxy, tmp_path: Path, tried: Tried, *, way: Way, proof: bool
):
    effects = tmp_path / "effects"
    async with SshChannel(server.way()) as channel:
        await channel.deliver(marked(proxy.port, effects), Ear())
    total = proxy.passed[way]
    rounds = 500 if proof else 25
    outcomes: dict[str, str] = {}
    for each in range(rounds):
        asked = marked(proxy.port, effects, "echo done")
        proxy.cut_after(1 + total * each // rounds, way)
        async with SshChannel(server.way()) as channel:
            try:
                report = await channel.deliver(asked, Ear())
                outcomes[asked.command_id] = "ran" if report.succeeded else "failed"
            except DeliveryUnknown:
                outcomes[asked.command_id] = "unknown"
            except HostRefused:
                outcomes[asked.command_id] = "failed"
            except NotDelivered:
                outcomes[asked.command_id] = "not delivered"
    await proxy.restore()
    async with SshChannel(server.way()) as channel:
        await channel.deliver(marked(proxy.port, effects), Ear())
    found = ran(effects)
    assert len(found) == len(set(found)), "nothing is run twice"
    for command_id, outcome in outcomes.items():
        assert outcome != "failed"
        if outcome != "unknown":
            assert (command_id in found) == (outcome == "ran"), (command_id, outcome)
    assert {"unknown", "not delivered"} <= set(outcomes.values())
    tried(f"connections reset at a byte {way.value}", rounds, "the outcome true for all")


async def test_a_reset_between_the_request_and_its_answer_leaves_it_unknown(
    server: Server, proxy: Proxy, tmp_path: Path
):
    async with SshChannel(server.way()) as channel:
        asked = marked(proxy.port, tmp_path / "effects")
        running = asyncio.create_task(channel.deliver(asked, Ear()))
        while not any(each.asked for each in channel._attempts.values()):  # noqa: ASYNC110 - in the very next turn of the loop
            await asyncio.sleep(0)
        proxy.reset()
        with pytest.raises(DeliveryUnknown):
            await running


async def test_a_server_that_is_gone_and_back_is_found_again(tmp_path: Path):
    folder = prepared(tmp_path)
    effects = tmp_path / "effects"
    with sshd(folder) as server:
        port = server.port
        async with SshChannel(server.way()) as channel, faulty(port) as proxy:
            assert (await channel.deliver(marked(proxy.port, effects), Ear())).succeeded
            await proxy.refuse()
            with pytest.raises(NotDelivered, match="Connection refused"):
                await channel.deliver(marked(proxy.port, effects), Ear())
            await proxy.restore()
            assert (await channel.deliver(marked(proxy.port, effects), Ear())).succeeded
    assert len(ran(effects)) == 2


# Half-open


async def test_silence_in_the_middle_of_a_run_is_noticed(
    server: Server, proxy: Proxy, tmp_path: Path
):
    effects = tmp_path / "effects"
    async with SshChannel(server.way(keepalive_s=0.2, keepalives=2, idle_s=0.1)) as channel:
        asked = marked(proxy.port, effects, "sleep 30")
        running = asyncio.create_task(channel.deliver(asked, Ear()))
        await until(lambda: asked.command_id in ran(effects))
        proxy.freeze()
        with pytest.raises(DeliveryUnknown, match="it may have run"):
            await asyncio.wait_for(running, 10)
        await proxy.restore()
        assert (await channel.deliver(marked(proxy.port, effects), Ear())).succeeded


async def test_a_kept_connection_that_died_in_silence_is_replaced(
    server: Server, proxy: Proxy, tmp_path: Path
):
    """Nothing was asked over the dead one, so what is asked over the new one runs once."""
    effects = tmp_path / "effects"
    async with SshChannel(server.way(connect_timeout_s=1, keepalive_s=60)) as channel:
        await channel.deliver(marked(proxy.port, effects), Ear())
        proxy.strand()
        assert (await channel.deliver(marked(proxy.port, effects), Ear())).succeeded
        assert proxy.accepted == 2
    assert len(ran(effects)) == 2


async def test_a_host_that_says_nothing_was_sent_nothing(server: Server, proxy: Proxy):
    proxy.freeze()
    async with SshChannel(server.way(connect_timeout_s=0.5)) as channel:
        with pytest.raises(NotDelivered, match=r"has not answered for 0\.5 s"):
            await channel.deliver(marked(proxy.port, Path("/nowhere")), Ear())


async def test_what_is_no_sshd_is_no_host(server: Server):
    async def chat(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n" * 200)
        writer.close()

    async with await asyncio.start_server(chat, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with SshChannel(server.way(connect_timeout_s=2)) as channel:
            with pytest.raises(NotDelivered):
                await channel.deliver(marked(port, Path("/nowhere")), Ear())


@pytest.mark.parametrize("host", ["no-such-host.invalid", "127.0.0.1"])
async def test_an_address_where_nobody_is_was_sent_nothing(server: Server, host: str):
    async with SshChannel(server.way()) as channel:
        with pytest.raises(NotDelivered, match=r"cannot be reached: (its name|Connection refused)"):
            await channel.deliver(delivery(f"{host}:{free_port()}", "true"), Ear())


async def test_an_address_that_is_none_is_refused(server: Server):
    async with SshChannel(server.way()) as channel:
        with pytest.raises(HostRefused, match="no address for SSH: address: "):
            await channel.deliver(delivery("ssh://web1", "true"), Ear())


# Limits


async def test_a_connection_is_kept_and_shared(server: Server):
    async with SshChannel(server.way(sessions=4)) as channel:
        asked = [delivery(server.address, "true") for _ in range(12)]
        reports = await asyncio.gather(*(channel.deliver(each, Ear()) for each in asked))
        assert all(report.succeeded for report in reports)
        assert channel.connections == 1


async def test_a_connection_that_nobody_uses_is_closed(server: Server):
    async with SshChannel(server.way(idle_s=0.1)) as channel:
        await channel.deliver(delivery(server.address, "true"), Ear())
        await until(lambda: channel.connections == 0)
        assert channel._pool._lines == {}, "nothing is kept about hosts that are not connected"
        assert (await channel.deliver(delivery(server.address, "true"), Ear())).succeeded


async def test_a_host_that_allows_fewer_sessions_is_believed(tmp_path: Path):
    with sshd(prepared(tmp_path), "MaxSessions 2") as server:
        async with SshChannel(server.way(sessions=8)) as channel:
            asked = [delivery(server.address, "sleep", "0.2") for _ in range(9)]
            reports = await asyncio.gather(*(channel.deliver(each, Ear()) for each in asked))
            assert all(report.succeeded for report in reports)
            assert channel.connections == 1
            (line,) = channel._pool._lines.values()
            assert line.sessions_max < 8


async def test_a_run_is_stopped_though_the_host_allows_no_second_session(tmp_path: Path):
    with sshd(prepared(tmp_path), "MaxSessions 1") as server:
        async with SshChannel(server.way()) as channel:
            report = await channel.deliver(
                delivery(server.address, "sleep", "60", timeout_s=0.5), Ear()
            )
            assert report.exit_code == 124


async def test_a_host_that_allows_no_session_has_refused(tmp_path: Path):
    with sshd(prepared(tmp_path), "MaxSessions 0") as server:
        async with SshChannel(server.way()) as channel:
            with pytest.raises(HostRefused, match="lets nobody run anything"):
                await channel.deliver(delivery(server.address, "true"), Ear())


async def test_no_more_connections_are_open_than_there_may_be(tmp_path: Path):
    addresses = [f"127.0.0.{n}" for n in range(1, 9)]
    with sshd(prepared(tmp_path), addresses=addresses) as server:
        async with SshChannel(server.way(connections=3)) as channel:
            most = 0

            async def run(address: str) -> bool:
                nonlocal most
                asked = delivery(f"{USER}@{address}:{server.port}", "true")
                report = await channel.deliver(asked, Ear())
                most = max(most, channel.connections)
                return report.succeeded

            assert all(await asyncio.gather(*map(run, addresses * 3)))
            assert most <= 3
            # The one that was used least lately made room.
            for address in addresses:
                assert await run(address)
            assert channel.connections <= 3


async def test_whoever_waits_for_room_and_gives_up_takes_none(tmp_path: Path):
    with sshd(prepared(tmp_path), addresses=["127.0.0.1", "127.0.0.2"]) as server:
        async with SshChannel(server.way(connections=1)) as channel:
            stays = delivery(server.address, "sleep", "60")
            staying = asyncio.create_task(channel.deliver(stays, Ear()))
            await until(lambda: begun(channel) == 1)
            other = server.address.replace("127.0.0.1", "127.0.0.2")
            waiting = asyncio.create_task(channel.deliver(delivery(other, "true"), Ear()))
            await until(lambda: channel._pool._waiting == 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await channel.cancel(stays)
            await staying
            assert (await channel.deliver(delivery(other, "true"), Ear())).succeeded
            assert (await channel.deliver(delivery(server.address, "true"), Ear())).succeeded


async def test_whoever_finds_no_room_in_time_was_sent_nothing(tmp_path: Path):
    """Waiting for a connection is no part of what a host may take, and is no delivery."""
    with sshd(prepared(tmp_path), addresses=["127.0.0.1", "127.0.0.2"]) as server:
        async with SshChannel(server.way(connections=1)) as channel:
            stays = delivery(server.address, "sleep", "60", timeout_s=60)
            staying = asyncio.create_task(channel.deliver(stays, Ear()))
            await until(lambda: begun(channel) == 1)
            other = server.address.replace("127.0.0.1", "127.0.0.2")
            mark = tmp_path / "mark"
            with pytest.raises(NotDelivered, match="it was sent nothing"):
                await channel.deliver(delivery(other, "touch", str(mark), timeout_s=0.1), Ear())
            assert await channel.cancel(stays)
            await staying
            assert not mark.exists()


async def test_closing_ends_what_is_under_way(server: Server):
    channel = SshChannel(server.way())
    running = asyncio.create_task(channel.deliver(delivery(server.address, "sleep", "5"), Ear()))
    await until(lambda: begun(channel) == 1)
    await channel.aclose()
    with pytest.raises(DeliveryUnknown):
        await running
