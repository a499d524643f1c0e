"""What somebody may cost the server: little, and nobody else anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from time import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from onward.channels.agent.hub import Hub
from onward.channels.agent.line import Limits, Quota
from onward.channels.agent.messages import Accepted
from onward.channels.agent.wire import FRAME_MAX, Hello, say_hello
from onward.errors import DeliveryUnknown, HostOffline, NotDelivered
from onward.service.serving import services as services_for
from onward.wiring import Onward
from tests.agents.ground import BOUND_S, Server, delivery, serving, silent, until

STRICT = Limits(
    hello_s=0.3, strangers=8, messages_a_second=1_000, burst=100, unwritten_bytes=3_000_000
)


@pytest.fixture(scope="module")
async def strict(shared: Onward) -> AsyncIterator[Server]:
    """A server with little patience."""
    services = services_for(shared)
    services = replace(services, hub=Hub(services.attendance, limits=STRICT))
    async with serving(shared, services=services) as found:
        yield found


@pytest.mark.parametrize("path", ["agent", "relay"])
async def test_pages_of_browsers_are_refused(strict: Server, path: str):
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"{strict.url}/{path}", origin="http://127.0.0.1", proxy=None)  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403


async def test_there_is_no_other_websocket(strict: Server):
    for path in ("", "/", "/agents", "/agent/", "/hosts", "/agent/x"):
        with pytest.raises(InvalidStatus):
            await connect(f"{strict.url}{path}", proxy=None)


async def test_who_does_not_say_who_they_are_is_hung_up_on(strict: Server):
    host_id = await strict.host()
    key = strict.services.keyring.agent_key(host_id, 1)
    said = {
        "nothing": [],
        "a hello and no more": [say_hello(key, Hello(host_id, 1, bytes(32)), now=time())],
    }
    for case, frames in said.items():
        async with connect(f"{strict.url}/agent", proxy=None) as socket:
            for frame in frames:
                await socket.send(frame)
            await asyncio.wait_for(socket.wait_closed(), BOUND_S)
            assert socket.close_code == 4408, case


async def test_only_so_many_may_be_about_to_say_who_they_are(strict: Server):
    sockets = [await connect(f"{strict.url}/agent", proxy=None) for _ in range(30)]
    codes = []
    for socket in sockets:
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), BOUND_S)
        assert closed.value.rcvd is not None
        codes.append(closed.value.rcvd.code)
    assert codes.count(1013) >= 30 - STRICT.strangers - 10
    assert set(codes) == {1013, 4408}
    host_id = await strict.host()
    async with strict.connected(host_id):
        assert (await strict.services.hub.deliver(delivery(host_id), silent)).succeeded


@pytest.mark.parametrize(
    "frame",
    [b"", "text", b"x", b"x" * 31, b"x" * 33, b"\0" * 32 + b"{}", b"\0" * 32 + b"[" * 100_000],
    ids=["nothing", "text", "one byte", "31 bytes", "33 bytes", "an empty body", "a deep body"],
)
async def test_nonsense_is_answered_with_a_code(strict: Server, frame: bytes | str):
    async with connect(f"{strict.url}/agent", proxy=None) as socket:
        await socket.send(frame)
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), BOUND_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4400


@pytest.mark.parametrize("path", ["agent", "relay"])
async def test_a_frame_that_is_too_large_is_not_even_read(strict: Server, path: str):
    async with connect(f"{strict.url}/{path}", proxy=None, compression=None) as socket:
        # It may be noticed while it is still being sent.
        with suppress(ConnectionClosed):
            await socket.send(b"x" * (FRAME_MAX + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), BOUND_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_who_sends_too_much_is_read_more_slowly():
    quota = Quota(Limits(messages_a_second=10, burst=3), 0.0)
    assert [quota.wait_s(10, 0.0) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    assert quota.wait_s(10, 10.0) == 0.0
    assert quota.wait_s(4_096 * 12, 10.0) == 1.1
    # Waiting gives no credit beyond the burst.
    assert [quota.wait_s(10, 99.0) for _ in range(4)] == [0, 0, 0, 0.1]


async def test_an_agent_that_talks_without_end_keeps_nobody_waiting(strict: Server):
    noisy, quiet = await strict.host(), await strict.host()
    async with strict.connected(noisy) as agent, strict.connected(quiet):

        async def talk() -> None:
            while True:
                await agent.say(Accepted("c", 1))

        talking = asyncio.create_task(talk())
        await until(lambda: len(agent.frames_up) > 500)
        for _ in range(50):
            assert (await strict.services.hub.deliver(delivery(quiet), silent)).succeeded
        talking.cancel()


async def test_an_agent_that_does_not_read_is_cut_off(strict: Server):
    host_id = await strict.host()
    agent = strict.agent(host_id)
    await agent.connect()
    hub = strict.services.hub
    await until(lambda: hub.has(host_id))
    assert agent.socket is not None
    agent.socket.transport.pause_reading()
    large = {"argv": ["true"], "stdin": "x" * 500_000}
    calls: list[asyncio.Task[object]] = []

    def cut_off() -> bool:
        """Send more and more, until nobody is there any more."""
        if hub.has(host_id):
            calls.append(asyncio.create_task(hub.deliver(delivery(host_id, params=large), silent)))
        return not hub.has(host_id)

    await until(cut_off)
    agent.socket.transport.abort()
    errors = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), BOUND_S)
    # What was written may have arrived; what was not is known not to have run.
    assert {type(error) for error in errors} >= {DeliveryUnknown, NotDelivered}
    assert {type(error) for error in errors} <= {DeliveryUnknown, NotDelivered, HostOffline}
