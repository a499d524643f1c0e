"""The way to an agent breaks at any byte, or falls silent: all goes on without anybody's help."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.channels.base import Delivery, Report
from onward.errors import ChannelError, DeliveryUnknown, NotDelivered
from onward.wiring import Onward
from tests.agents.faithful import Faithful
from tests.agents.ground import BOUND_S, Server, delivery, serving, silent, until
from tests.channels.faults import Proxy, Way, faulty
from tests.proof_table import Tried

KEEPALIVE_S = 0.25


@pytest.fixture(scope="module")
async def quick(shared: Onward) -> AsyncIterator[Server]:
    """A server that notices soon who has fallen silent."""
    async with serving(shared, keepalive_s=KEEPALIVE_S, send_buffer=65_536) as found:
        yield found


@pytest.fixture
async def proxy(quick: Server) -> AsyncIterator[Proxy]:
    """A way that breaks when it is told to."""
    async with faulty(quick.port) as found:
        yield found


async def agent_behind(quick: Server, proxy: Proxy) -> Faithful:
    host_id = await quick.host()
    agent = quick.agent(host_id, url=f"ws://127.0.0.1:{proxy.port}")
    agent.keepalive_s = KEEPALIVE_S
    return Faithful(agent)


async def insisted(quick: Server, wanted: Delivery) -> Report:
    """Do as a worker does: another attempt for every one that has not come back with a report."""
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                report = await quick.services.hub.deliver(wanted, silent)
            except ChannelError:
                await asyncio.sleep(0.01)
                wanted = wanted._replace(epoch=wanted.epoch + 1)
                continue
            await quick.services.hub.receipt(wanted)
            return report


@pytest.mark.parametrize("way", Way)
async def test_a_reset_at_any_byte_loses_nothing_and_runs_nothing_twice(
    quick: Server, proxy: Proxy, tried: Tried, *, way: Way, proof: bool
):
    faithful = await agent_behind(quick, proxy)
    host_id = faithful.agent.host_id
    async with faithful.staying():
        await until(lambda: quick.services.hub.has(host_id))
        before = proxy.passed[way]
        await insisted(quick, delivery(host_id, epoch=1))
        await until(lambda: not faithful.unreceipted)
        exchange = proxy.passed[way] - before
        assert exchange > 200
        # Also while the next connection is made: what follows a cut is cut as well.
        cuts = range(1, exchange + 800, 7 if proof else 97)
        for number, at in enumerate(cuts):
            wanted = delivery(host_id, epoch=10 + 1_000 * (number + 1))
            proxy.cut_after(at, way)
            assert (await insisted(quick, wanted)).succeeded
            assert faithful.ran.count(wanted.command_id) == 1
            await proxy.restore()
            # What was said to nobody is said again, until somebody has written it down.
            await until(lambda: not faithful.unreceipted)
        assert faithful.connections > 1
    tried(f"resets {way.value}", len(cuts), "0 lost, 0 twice")


async def test_a_connection_that_has_fallen_silent_is_noticed_and_made_again(
    quick: Server, proxy: Proxy
):
    faithful = await agent_behind(quick, proxy)
    host_id = faithful.agent.host_id
    async with faithful.staying():
        await until(lambda: quick.services.hub.has(host_id))
        assert (await insisted(quick, delivery(host_id, epoch=1))).succeeded
        proxy.strand()
        with pytest.raises(DeliveryUnknown):
            await asyncio.wait_for(
                quick.services.hub.deliver(delivery(host_id, epoch=2), silent), BOUND_S
            )
        assert (await insisted(quick, delivery(host_id, epoch=3))).succeeded
        assert faithful.connections == 2


async def test_a_silent_connection_is_cut_off_also_with_much_unsaid(quick: Server, proxy: Proxy):
    """To be closed it would have to be written first, and nobody reads it."""
    faithful = await agent_behind(quick, proxy)
    faithful.agent.keepalive_s = None  # It is the server that has to notice.
    host_id = faithful.agent.host_id
    async with faithful.staying():
        await until(lambda: quick.services.hub.has(host_id))
        proxy.freeze()
        large = {"argv": ["true"], "stdin": "x" * 700_000}
        calls = [
            asyncio.create_task(
                quick.services.hub.deliver(delivery(host_id, epoch=n, params=large), silent)
            )
            for n in range(1, 11)
        ]
        errors = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), BOUND_S)
        # Some of it was written, and some never will be.
        assert {type(error) for error in errors} == {DeliveryUnknown, NotDelivered}
        await until(lambda: not quick.services.hub.has(host_id))
        await proxy.restore()
        assert (await insisted(quick, delivery(host_id, epoch=100))).succeeded
        assert len(faithful.ran) == len(set(faithful.ran))
