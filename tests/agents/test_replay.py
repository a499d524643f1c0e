"""Whatever was said once cannot be said again: not here, not elsewhere, not in another's name.

A run is recorded, every frame of it in both directions, and each is sent again.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from secrets import token_bytes
from time import time

import pytest
from websockets.exceptions import ConnectionClosed

from onward.channels.agent.messages import Pieces, Ready, Result
from onward.channels.agent.wire import (
    FrameRefused,
    Hello,
    Welcome,
    agent_session,
    read_welcome,
    say_hello,
)
from onward.channels.base import Stream
from tests.agents.ground import Agent, Server, delivery, silent, until
from tests.proof_table import Tried


async def recorded(server: Server, host_id: int) -> Agent:
    """An agent that has run something, with output, a stop and a receipt, and stays connected."""
    agent = server.agent(host_id)
    await agent.connect()
    listening = asyncio.create_task(agent.listen())
    await until(lambda: server.services.hub.has(host_id))
    wanted = delivery(host_id)
    await server.services.hub.deliver(wanted, silent)
    await server.services.hub.cancel(wanted)
    await server.services.hub.receipt(wanted)
    await agent.say(Pieces(wanted.command_id, wanted.epoch, 0, ((Stream.STDOUT, "late"),)))
    await until(lambda: len(agent.frames_down) == 5)
    listening.cancel()
    await asyncio.wait([listening])
    assert len(agent.frames_up) == 6
    return agent


def _gone(server: Server, host_id: int) -> bool:
    return not server.services.hub.has(host_id)


async def ended(agent: Agent) -> int:
    """The code with which the server ends a connection."""
    assert agent.socket is not None
    await asyncio.wait_for(agent.socket.wait_closed(), 10)
    assert agent.socket.close_code is not None
    return agent.socket.close_code


async def test_frames_that_are_sent_again_to_the_same_session_end_it(server: Server, tried: Tried):
    again = 0
    for place in range(6):
        host_id = await server.host()
        agent = await recorded(server, host_id)
        await agent.send(agent.frames_up[place])
        # A hello is signed with another key than what follows it.
        assert await ended(agent) == (4401 if place == 0 else 4412)
        await until(partial(_gone, server, host_id))
        again += 1
    tried("frames sent again to the same session", again)


async def test_frames_of_another_session_are_worth_nothing(server: Server, tried: Tried):
    host_id = await server.host()
    agent = await recorded(server, host_id)
    assert agent.socket is not None
    await agent.socket.close()
    again = 0
    for frame in (*agent.frames_up, *agent.frames_down):
        # In place of the first word, and after both sides have shown who they are.
        for begun in (False, True):
            other = server.agent(host_id)
            await other.connect() if begun else await opened(other)
            await other.send(frame)
            hello = frame is agent.frames_up[0] and not begun
            if hello:
                # It is welcomed, but whoever has only recorded it cannot go on.
                assert other.socket is not None
                await other.receive()
                await other.send(agent.frames_up[1])
            assert await ended(other) in {4400, 4401}
            again += 1
    assert not server.services.hub.has(host_id)
    tried("frames of another session", again)


async def test_frames_of_another_host_are_worth_nothing(server: Server, tried: Tried):
    mine, theirs = await server.host(), await server.host()
    agent = await recorded(server, mine)
    again = 0
    for frame in (*agent.frames_up[1:], *agent.frames_down):
        other = server.agent(theirs)
        await other.connect()
        await other.send(frame)
        assert await ended(other) == 4401
        again += 1
    assert agent.socket is not None
    await agent.socket.close()
    tried("frames of another host", again)


async def opened(agent: Agent) -> None:
    """Connect, and say nothing."""
    from websockets.asyncio.client import connect  # noqa: PLC0415 - only here

    agent.socket = await connect(f"{agent.url}/agent", compression=None, proxy=None)


async def test_what_a_server_said_is_refused_by_the_same_and_any_other_agent(
    server: Server, tried: Tried
):
    host_id = await server.host()
    agent = await recorded(server, host_id)
    again = 0
    assert agent.session is not None
    for frame in agent.frames_down:
        with pytest.raises(FrameRefused):
            agent.session.open(frame, time())
        again += 1
    # To a new connection of the same host, and to another host.
    for key in (agent.key, server.services.keyring.agent_key(host_id + 1, 1)):
        hello = Hello(host_id, 1, token_bytes(32))
        session = agent_session(key, hello, Welcome(token_bytes(32), time()))
        for frame in agent.frames_down:
            with pytest.raises(FrameRefused):
                read_welcome(frame, key, hello)
            with pytest.raises(FrameRefused):
                session.open(frame, time())
            again += 2
    assert agent.socket is not None
    await agent.socket.close()
    tried("frames of the server, sent again", again)


async def test_a_hello_is_good_for_a_moment_only(server: Server):
    host_id = await server.host()
    agent = server.agent(host_id)
    await opened(agent)
    await agent.send(say_hello(agent.key, Hello(host_id, 1, token_bytes(32)), now=time() - 3_600))
    assert await ended(agent) == 4408


@pytest.mark.parametrize("place", ["first", "middle", "last"])
async def test_a_frame_that_was_changed_on_the_way_does_nothing(server: Server, place: str):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        agent.answers = False
        wanted = delivery(host_id)
        running = asyncio.create_task(server.services.hub.deliver(wanted, silent))
        await until(agent.runs)
        assert agent.session is not None
        frame = bytearray(
            agent.session.seal(Result(wanted.command_id, wanted.epoch, succeeded=True), time())
        )
        at = {"first": 0, "middle": len(frame) // 2, "last": len(frame) - 1}[place]
        frame[at] ^= 1
        await agent.send(bytes(frame))
        assert agent.closed is not None
        assert await asyncio.wait_for(agent.closed, 10) == 4401
        with pytest.raises(Exception, match="lost"):
            await running


async def test_a_frame_for_another_host_under_the_right_key_is_refused(server: Server):
    host_id = await server.host()
    agent = server.agent(host_id)
    await agent.meet()
    # Another host's name in a session of our own.
    assert agent.session is not None
    agent.session._host = host_id + 1  # as a broken agent might have it
    await agent.say(Ready(0, "x"))
    assert await ended(agent) == 4403


async def test_keys_of_another_generation_or_of_nobody_open_nothing(server: Server):
    host_id = await server.host()
    cases = {
        "a former key": (server.agent(host_id, generation=2), 4404),
        "no key yet": (server.agent(host_id, generation=0), 4404),
        "a host that is not there": (server.agent(2**62), 4404),
        "somebody else's key": (replace(server.agent(host_id), key=token_bytes(32)), 4401),
        "another host's key": (replace(server.agent(host_id), host_id=host_id - 1), 4401),
    }
    for case, (agent, code) in cases.items():
        with pytest.raises(ConnectionClosed) as closed:
            await agent.meet()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code, case
