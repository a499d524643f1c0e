"""Whatever breaks on the way, the command runs once, and its answer arrives without a human."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from onward.channels.mqtt import MqttWire
from onward.channels.mqtt.memory import Memory
from onward.errors import ChannelError, DeliveryUnknown, NotDelivered
from tests.channels.conformance.ground import until
from tests.channels.faults import Proxy, Way, faulty
from tests.channels.mqtt.mosquitto import Mosquitto
from tests.channels.mqtt.world import Ears, insist, letter, listening, living
from tests.proof_table import Tried


@pytest.fixture
async def proxy(broker: Mosquitto) -> AsyncIterator[Proxy]:
    """The way from the server to the broker."""
    async with faulty(broker.port) as found:
        yield found


def url(proxy: Proxy) -> str:
    return f"mqtt://127.0.0.1:{proxy.port}"


async def test_a_reset_in_the_middle_of_any_message_loses_nothing(
    broker: Mosquitto, proxy: Proxy, tried: Tried, *, proof: bool
):
    """The connection is cut after any number of bytes that a greeting and a round trip take."""
    ears, number = Ears(), 1
    async with listening(url(proxy), ears) as wire, living("node-1", broker.url) as node:
        await insist(wire, letter("node-1", number), ears)
        for way, bytes_ in _cuts(900, proof=proof):
            number += 1
            # The greeting is cut as well: the connection is made anew.
            proxy.cut_after(bytes_, way)
            proxy.reset()
            await insist(wire, letter("node-1", number), ears)
            await proxy.restore()
    assert len(node.ran) == len(set(node.ran)) == number
    tried("MQTT connections cut in mid-message", number - 1, "each command ran once")


async def test_a_reset_between_broker_and_node_loses_nothing(
    broker: Mosquitto, tried: Tried, *, proof: bool
):
    ears, number = Ears(), 1
    async with (
        faulty(broker.port) as proxy,
        listening(broker.url, ears) as wire,
        living("node-2", url(proxy)) as node,
    ):
        await insist(wire, letter("node-2", number), ears)
        for way, bytes_ in _cuts(700, proof=proof):
            number += 1
            proxy.cut_after(bytes_, way)
            proxy.reset()
            await insist(wire, letter("node-2", number), ears)
            await proxy.restore()
    assert len(node.ran) == len(set(node.ran)) == number
    tried("MQTT connections of a node cut in mid-message", number - 1, "each command ran once")


async def test_a_break_before_the_acknowledgement_leaves_it_unknown(
    broker: Mosquitto, proxy: Proxy
):
    async with listening(url(proxy), Ears()) as wire, living("node-3", broker.url) as node:
        proxy.freeze()
        sending = asyncio.create_task(wire.send(letter("node-3", 1)))
        await asyncio.sleep(0)  # it is written now, and nobody has read it
        await asyncio.sleep(0)
        proxy.reset()
        with pytest.raises(DeliveryUnknown):
            await sending
    assert node.ran == []


async def test_without_a_connection_nothing_is_delivered(broker: Mosquitto, proxy: Proxy):
    ears = Ears()
    async with listening(url(proxy), ears) as wire, living("node-4", broker.url) as node:
        await proxy.refuse()
        with pytest.raises(NotDelivered):
            await _until(NotDelivered, wire)
        await proxy.restore()
        await insist(wire, letter("node-4", 2), ears)
    assert len(node.ran) == 1


async def test_a_half_open_connection_is_noticed_and_replaced(broker: Mosquitto, proxy: Proxy):
    ears = Ears()
    async with (
        listening(url(proxy), ears) as wire,
        living("node-5", broker.url) as node,
    ):
        await insist(wire, letter("node-5", 1), ears)
        before = proxy.accepted
        proxy.strand()
        with pytest.raises(DeliveryUnknown):
            await wire.send(letter("node-5", 2))
        await insist(wire, letter("node-5", 3), ears)
        assert proxy.accepted > before
    assert f"{letter('node-5', 2).cmd_id}/2" not in node.ran


async def test_a_broker_that_does_not_greet_is_given_up(broker: Mosquitto, proxy: Proxy):
    """It lets everybody connect, and says nothing: for the first connection and for the next."""
    ears = Ears()
    async with (
        listening(url(proxy), ears) as wire,
        living("node-6", broker.url),
    ):
        proxy.freeze()
        proxy.reset()
        with pytest.raises(NotDelivered):
            await _until(NotDelivered, wire)
        await proxy.restore()
        await insist(wire, letter("node-6", 1), ears)


async def test_a_broker_that_is_restarted_in_good_order_loses_nothing(own_broker: Mosquitto):
    ears = Ears()
    async with (
        listening(own_broker.url, ears) as wire,
        living("node-7", own_broker.url) as node,
    ):
        await insist(wire, letter("node-7", 1), ears)
        await own_broker.stop()
        with suppress(ChannelError):
            await wire.send(letter("node-7", 2))
        await own_broker.start()
        for number in (2, 3):
            await insist(wire, letter("node-7", number), ears)
    assert len(node.ran) == len(set(node.ran)) == 3


async def test_a_broker_that_is_killed_under_load_loses_nothing(
    own_broker: Mosquitto, tried: Tried, *, proof: bool
):
    """It forgets every session; the server sends again, and the node says again."""
    rounds, ears, number = (20 if proof else 3), Ears(), 0
    async with (
        listening(own_broker.url, ears) as wire,
        living("node-8", own_broker.url) as node,
    ):
        for _ in range(rounds):
            letters = [letter("node-8", number + each) for each in range(1, 11)]
            number += 10
            insisting = [asyncio.create_task(insist(wire, each, ears)) for each in letters]
            await until(lambda: len(node.ran) > number - 10)  # noqa: B023 - within the round
            await own_broker.kill()
            await own_broker.start()
            done, _ = await asyncio.wait(insisting, timeout=60)
            assert len(done) == len(letters)
    ended = [each for each in ears.heard if each.event != "ack"]
    assert len({each.cmd_id for each in ended}) == number
    assert len(node.ran) == len(set(node.ran))
    tried("MQTT brokers killed under load", rounds, "no command ran twice in one epoch")


async def test_a_node_that_dies_in_the_middle_says_so_when_it_is_back(
    broker: Mosquitto, tmp_path: Path
):
    async def for_ever(_: object) -> None:
        await asyncio.Event().wait()

    ears, sent = Ears(), letter("node-9", 1)
    path = tmp_path / "journal"
    async with listening(broker.url, ears) as wire:
        async with living("node-9", broker.url, memory=Memory(path), do=for_ever) as before:  # type: ignore[arg-type]  # it never returns
            while not before.ran:
                with suppress(NotDelivered):
                    await wire.send(sent)
                await asyncio.sleep(0.05)
        async with living("node-9", broker.url, memory=Memory(path)) as after:
            await until(lambda: ears.ended(sent))
            assert after.ran == []
    assert ears.heard[-1].data["error_code"] == "INTERRUPTED"


def _cuts(most: int, *, proof: bool) -> list[tuple[Way, int]]:
    every = [(way, bytes_) for way in Way for bytes_ in range(1, most)]
    return random.Random(6).sample(every, 150 if proof else 12)


async def _until(wanted: type[ChannelError], wire: MqttWire) -> None:
    """Send until it fails so: that a connection was reset may not have been noticed yet."""
    async with asyncio.timeout(30):
        while True:
            try:
                await wire.send(letter("node-4", 1))
            except ChannelError as error:
                if isinstance(error, wanted):
                    raise
            await asyncio.sleep(0.01)
