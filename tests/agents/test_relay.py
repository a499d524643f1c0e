"""A worker in one process, the agent connected to another: what one asks reaches the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from secrets import token_bytes
from time import time

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from onward.channels.agent.channel import AgentChannel
from onward.channels.agent.messages import Pieces, Refused, Result
from onward.channels.agent.relay import Place, Seals
from onward.channels.agent.wire import Hello, read_welcome, say_hello
from onward.channels.base import Delivery, Receipting, Stream
from onward.channels.frames import delivery_out
from onward.errors import ChannelError, DeliveryUnknown, HostBusy, HostOffline, HostRefused
from onward.fleet.whereabouts import Whereabouts
from tests.agents.ground import BOUND_S, Agent, Server, delivery, silent, until
from tests.channels.faults import faulty


@pytest.fixture
async def far(server: Server) -> AsyncIterator[AgentChannel]:
    """A channel of a process that no agent is connected to."""
    find = Whereabouts(server.services.pool, lost_after_s=5).find
    async with AgentChannel(None, find) as channel:
        yield channel


async def test_a_command_goes_through_the_process_that_has_the_agent(
    server: Server, far: AgentChannel
):
    assert isinstance(far, Receipting)
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        wanted = delivery(
            host_id,
            params={"word": "hush \ud800 指令"},
            argv=["echo", "\ud800"],
            masked=["word"],
            exclusive=False,
            trace={"request_id": "r"},
        )
        report = await far.deliver(wanted, silent)
        assert (report.succeeded, report.exit_code) == (True, 0)
        (run,) = agent.runs()
        assert run.program is not None
        assert run.program.argv == ("echo", "\ud800")
        assert dict(run.program.secrets) == {"ONWARD_WORD": "hush \ud800 指令"}
        assert (run.exclusive, dict(run.trace)) == (False, {"request_id": "r"})
        assert await far.cancel(wanted)
        await far.receipt(wanted)
        await until(lambda: agent.receipts() == [(wanted.command_id, wanted.epoch)])


async def test_output_comes_through_in_order_and_before_the_end(server: Server, far: AgentChannel):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        agent.answers = False
        wanted = delivery(host_id)
        heard: list[str] = []
        running = asyncio.create_task(
            far.deliver(wanted, lambda stream, text: heard.append(f"{stream}:{text}"))
        )
        await until(agent.runs)
        attempt = (wanted.command_id, wanted.epoch)
        await agent.say(Pieces(*attempt, 0, ((Stream.STDOUT, "a"), (Stream.STDERR, "b"))))
        await until(lambda: heard == ["stdout:a", "stderr:b"])
        at = 2
        for _ in range(40):
            await agent.say(Pieces(*attempt, at, ((Stream.STDOUT, "\x01" * 30_000),)))
            at += 30_000
        await agent.say(Result(*attempt, succeeded=True, repeated=True))
        assert (await running).repeated
        assert sum(text.count("\x01") for text in heard) == 40 * 30_000


async def test_what_goes_wrong_comes_through_as_what_it_is(server: Server, far: AgentChannel):
    host_id = await server.host()
    with pytest.raises(HostOffline):
        await far.deliver(delivery(host_id), silent)
    async with server.connected(host_id) as agent:
        with pytest.raises(HostRefused, match="not what to run"):
            await far.deliver(delivery(host_id, params={}), silent)
        with pytest.raises(HostRefused, match="bytes"):
            await far.deliver(delivery(host_id, params={"argv": ["x" * 2**21]}), silent)
        agent.answers = False
        for busy, kind in ((True, HostBusy), (False, HostRefused)):
            wanted = delivery(host_id)
            running = asyncio.create_task(far.deliver(wanted, silent))
            await until(partial(_told, agent, wanted))
            await agent.say(Refused(wanted.command_id, wanted.epoch, busy, "no"))
            with pytest.raises(kind):
                await running
        running = asyncio.create_task(far.deliver(delivery(host_id), silent))
        await until(lambda: len(agent.runs()) == 3)
    with pytest.raises(DeliveryUnknown):
        await running


async def test_who_gives_up_waiting_is_waited_for_no_more(server: Server, far: AgentChannel):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        agent.answers = False
        wanted = delivery(host_id)
        running = asyncio.create_task(far.deliver(wanted, silent))
        await until(agent.runs)
        running.cancel()
        line = server.services.hub._lines[host_id]
        await until(lambda: not line.calls)
        # Its result is one that nobody waits for, and is receipted as such.
        await agent.say(Result(wanted.command_id, wanted.epoch, succeeded=True))
        await until(agent.receipts)


async def test_a_way_that_breaks_leaves_it_unknown_and_is_made_again(server: Server):
    host_id = await server.host()
    async with faulty(server.port) as proxy, server.connected(host_id) as agent:
        place = await server.services.attendance.registered()
        there = Place(place.hub_id, f"http://127.0.0.1:{proxy.port}", place.secret)

        async def find(_host_id: int) -> Place:
            return there

        async with AgentChannel(None, find) as channel:
            assert (await channel.deliver(delivery(host_id), silent)).succeeded
            agent.answers = False
            running = asyncio.create_task(channel.deliver(delivery(host_id), silent))
            await until(lambda: len(agent.runs()) == 2)
            proxy.reset()
            with pytest.raises(DeliveryUnknown):
                await asyncio.wait_for(running, BOUND_S)
            agent.answers = True
            assert (await channel.deliver(delivery(host_id), silent)).succeeded
            assert proxy.accepted == 2
            await proxy.refuse()
            # Until it is noticed that nobody is there, it may seem to be sent.
            with pytest.raises(ChannelError):
                await channel.deliver(delivery(host_id), silent)
            with pytest.raises(HostOffline, match="ONWARD_HUB_URL"):
                await channel.deliver(delivery(host_id), silent)
            await proxy.restore()
            assert (await channel.deliver(delivery(host_id), silent)).succeeded


async def test_one_connection_carries_many_calls(server: Server, far: AgentChannel):
    host_ids = [await server.host() for _ in range(20)]
    async with asyncio.TaskGroup() as group:
        agents = [server.agent(host_id) for host_id in host_ids]
        for agent in agents:
            await agent.connect()
            group.create_task(agent.listen())
        await until(lambda: all(server.services.hub.has(host_id) for host_id in host_ids))
        wanted = [delivery(host_id) for host_id in host_ids for _ in range(10)]
        reports = await asyncio.gather(*(far.deliver(each, silent) for each in wanted))
        assert all(report.succeeded for report in reports)
        assert len(far._links) == 1
        for agent in agents:
            assert agent.socket is not None
            await agent.socket.close()


async def test_only_who_knows_the_secret_gets_in(server: Server):
    place = await server.services.attendance.registered()
    cases = {
        "another secret": (place.hub_id, token_bytes(32), 4401),
        "another process": (place.hub_id + 1, place.secret, 4404),
        "the key of an agent": (place.hub_id, server.services.keyring.agent_key(1, 1), 4401),
    }
    for case, (hub_id, secret, code) in cases.items():
        async with connect(f"{server.url}/relay", proxy=None) as socket:
            await socket.send(say_hello(secret, Hello(hub_id, 0, token_bytes(32)), now=time()))
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == code, case


async def test_what_was_said_to_a_hub_cannot_be_said_again(server: Server):
    host_id = await server.host()
    place = await server.services.attendance.registered()
    hello = Hello(place.hub_id, 0, token_bytes(32))
    async with server.connected(host_id) as agent:
        async with connect(f"{server.url}/relay", proxy=None) as socket:
            said = say_hello(place.secret, hello, now=time())
            await socket.send(said)
            welcome = read_welcome(await socket.recv(decode=False), place.secret, hello)
            seals = Seals(place.secret, hello, welcome, calling=True)
            frame = seals.seal({"id": 1, "deliver": delivery_out(delivery(host_id))})
            await socket.send(frame)
            answer = await socket.recv(decode=False)
            assert seals.open(answer)["report"]["succeeded"]
            await socket.send(frame)
            assert await _code(socket) == 4412
        for again in (frame, answer):
            async with connect(f"{server.url}/relay", proxy=None) as socket:
                await socket.send(said)
                await socket.recv()
                await socket.send(again)
                assert await _code(socket) == 4401
        assert len(agent.runs()) == 1


async def test_a_process_that_is_another_one_is_not_trusted_with_commands():
    """Somebody else may listen at the address by now: they get nothing but a greeting."""
    heard: list[bytes] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65_536))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    pretender = await asyncio.start_server(pretend, "127.0.0.1", 0)
    port = pretender.sockets[0].getsockname()[1]

    async def find(_host_id: int) -> Place:
        return Place(1, f"http://127.0.0.1:{port}", b"secret of the hub")

    async with pretender, AgentChannel(None, find) as channel:
        with pytest.raises(HostOffline):
            await channel.deliver(delivery(1, params={"argv": ["canary"]}), silent)
    assert heard
    assert b"canary" not in b"".join(heard)
    assert b"secret of the hub" not in b"".join(heard)


async def _code(socket: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        await socket.recv()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def _told(agent: Agent, wanted: Delivery) -> bool:
    return any(run.cmd == wanted.command_id for run in agent.runs())
