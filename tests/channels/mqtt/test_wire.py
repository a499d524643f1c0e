"""The wire and real nodes around a real broker that does nothing wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import aiomqtt
import pytest

from onward.channels.base import Heard, Letter
from onward.channels.mqtt import MqttWire, envelope
from onward.channels.mqtt.conduct import Outcome
from onward.channels.mqtt.envelope import CANCELLED, WORD, Command
from onward.errors import HostRefused, NotDelivered
from tests.channels.conformance.ground import until
from tests.channels.mqtt.mosquitto import Mosquitto, mosquitto, needs_mosquitto
from tests.channels.mqtt.world import (
    PREFIX,
    RING,
    Ears,
    ended,
    insist,
    key_of,
    keys_of,
    letter,
    listening,
    living,
)


@pytest.fixture
async def stranger(broker: Mosquitto) -> AsyncIterator[aiomqtt.Client]:
    """Somebody at the broker who has no key."""
    async with aiomqtt.Client("127.0.0.1", broker.port) as found:
        yield found


async def test_a_command_goes_out_and_its_answers_come_back(broker: Mosquitto):
    async def do(command: Command) -> Outcome:
        return Outcome(said={"result": dict(command.params), "result_code": 0})

    ears, sent = Ears(), letter("node-1", 1, "mix", what="指令\n\"'", n=[1, 2.5])
    async with listening(broker.url, ears) as wire, living("node-1", broker.url, do=do) as node:
        await insist(wire, sent, ears)
    assert node.ran == [f"{sent.cmd_id}/1"]
    assert ears.of(sent)[0] == "ack"
    done = next(each for each in ears.heard if each.event == "done")
    assert done.epoch == 1
    assert done.data["result"] == sent.params
    assert done.data["result_code"] == "0"


async def test_where_nobody_has_subscribed_nothing_is_delivered(broker: Mosquitto):
    async with listening(broker.url, Ears()) as wire:
        with pytest.raises(NotDelivered, match="node-404"):
            await wire.send(letter("node-404", 1))


async def test_a_node_without_a_key_is_refused(broker: Mosquitto):
    sent = letter("node-1", 1)
    async with listening(broker.url, Ears()) as wire:
        with pytest.raises(HostRefused, match="no key"):
            await wire.send(sent._replace(target=sent.target._replace(key_generation=0)))


@pytest.mark.parametrize("value", [float("nan"), "\ud800"])
async def test_parameters_that_json_has_no_word_for_are_refused(broker: Mosquitto, value: object):
    async with listening(broker.url, Ears()) as wire:
        with pytest.raises(HostRefused):
            await wire.send(letter("node-1", 1, x=value))


async def test_a_node_that_is_away_gets_it_when_it_comes_back(broker: Mosquitto):
    ears, sent = Ears(), letter("node-2", 2)
    async with listening(broker.url, ears) as wire:
        async with living("node-2", broker.url) as before:
            await insist(wire, letter("node-2", 1), ears)
        assert len(before.ran) == 1
        # The broker keeps the session of a node, so this is acknowledged.
        await wire.send(sent)
        async with living("node-2", broker.url, memory=before.node.memory) as after:
            await until(lambda: ears.ended(sent))
    assert after.ran == [f"{sent.cmd_id}/2"]


async def test_many_at_once_are_heard_in_batches(broker: Mosquitto):
    ears = Ears()
    letters = [letter("node-3", number) for number in range(2, 202)]
    async with listening(broker.url, ears) as wire, living("node-3", broker.url) as node:
        await insist(wire, letter("node-3", 1), ears)
        await asyncio.gather(*(wire.send(each) for each in letters))
        await until(lambda: all(ears.ended(each) for each in letters))
    assert len(node.ran) == 201
    assert max(ears.batches) > 1


async def test_a_run_is_stopped_on_request(broker: Mosquitto):
    async def do(_: Command) -> Outcome:
        await asyncio.Event().wait()
        return Outcome()

    ears, sent = Ears(), letter("node-4", 1)
    async with listening(broker.url, ears) as wire, living("node-4", broker.url, do=do):
        while not ears.of(sent):
            await insist_once(wire, sent)
        assert await wire.cancel(sent)
        await until(lambda: ears.ended(sent))
    assert ears.heard[-1].event == "fail"
    assert ears.heard[-1].data["result_code"] == CANCELLED


async def test_what_is_forged_replayed_or_nonsense_is_dropped_and_counted(
    broker: Mosquitto, stranger: aiomqtt.Client
):
    ears, sent = Ears(), letter("node-5", 1)
    await stranger.subscribe(f"{PREFIX}/+/+", qos=1)
    async with listening(broker.url, ears) as wire, living("node-5", broker.url):
        await insist(wire, sent, ears)
        topic = f"{PREFIX}/node-5/status"
        recorded = await _recorded(stranger, topic)
        before = len(ears.heard)
        other: envelope.Message = {**json.loads(recorded), "seq": 2**62}
        other.pop("sig")
        for payload in (
            recorded,  # again, to the same server
            recorded.replace(b'"epoch":1', b'"epoch":2'),
            envelope.seal(other, "node-5", b"another key"),
            envelope.seal(other, "node-6", key_of("node-5")),
            b"\xff",
            b"",
        ):
            await stranger.publish(topic, payload, qos=1)
        # As if it came from another node, and from one that nobody knows.
        await stranger.publish(f"{PREFIX}/node-6/status", recorded, qos=1)
        await stranger.publish(f"{PREFIX}/nobody/status", recorded, qos=1)
        await until(lambda: wire.dropped.total() >= 8)
    assert len(ears.heard) == before
    assert wire.dropped == {
        "replay": 1, "foreign signature": 4, "unreadable": 2, "unknown node": 1,
    }  # fmt: skip


async def test_every_message_of_a_run_sent_again_changes_nothing(
    broker: Mosquitto, stranger: aiomqtt.Client
):
    """To the same node, to another, to the server, and each as each of the others."""
    ears, sent = Ears(), letter("node-7", 1)
    await stranger.subscribe(f"{PREFIX}/node-7/+", qos=1)
    async with (
        listening(broker.url, ears) as wire,
        living("node-7", broker.url) as node,
        living("node-8", broker.url) as other,
    ):
        await insist(wire, sent, ears)
        recorded = await _all_recorded(stranger, f"{PREFIX}/node-7/receipt")
        told, events = list(node.ran), set(ears.of(sent))
        kinds = ("cmd", "status", "receipt")
        for payload in recorded:
            for topic in (
                f"{PREFIX}/{name}/{kind}" for name in ("node-7", "node-8") for kind in kinds
            ):
                await stranger.publish(topic, payload, qos=1)
        # What comes behind all of that on the same ways has been taken: so has that.
        for name, number in (("node-7", 2), ("node-8", 3)):
            await insist(wire, letter(name, number), ears)
    assert node.ran == [*told, f"{letter('node-7', 2).cmd_id}/2"]
    assert other.ran == [f"{letter('node-8', 3).cmd_id}/3"]
    assert set(ears.of(sent)) == events


async def test_of_two_processes_each_hears_its_share(own_broker: Mosquitto):
    one, two = Ears(), Ears()
    letters = [letter("node-9", number) for number in range(1, 101)]
    async with (
        listening(own_broker.url, one, client_id="one") as wire,
        listening(own_broker.url, two, client_id="two"),
        living("node-9", own_broker.url),
    ):
        while not one.heard + two.heard:
            await insist_once(wire, letters[0])
        for each in letters[1:]:
            await wire.send(each)
        await until(lambda: all(one.ended(each) or two.ended(each) for each in letters))
    assert one.heard
    assert two.heard
    assert all(one.of(each).count("done") + two.of(each).count("done") == 1 for each in letters[1:])


async def test_what_was_heard_and_is_not_on_disk_is_heard_again(own_broker: Mosquitto):
    """The process ends between the arrival of a result and its COMMIT."""
    arrived = asyncio.Event()

    async def never_on_disk(_: Sequence[Heard]) -> None:
        arrived.set()
        await asyncio.Event().wait()

    ears, sent = Ears(), letter("node-10", 1)
    async with living("node-10", own_broker.url) as node:
        async with listening(own_broker.url, never_on_disk, client_id="worker") as wire:
            while not arrived.is_set():
                await insist_once(wire, sent)
            await until(lambda: node.ran)
        assert node.node.memory.unreceipted()
        async with listening(own_broker.url, ears, client_id="worker"):
            await until(lambda: ears.ended(sent))
            await until(lambda: not node.node.memory.unreceipted())
    assert node.ran == [f"{sent.cmd_id}/1"]


async def test_a_node_that_never_repeats_itself_is_heard_as_well(own_broker: Mosquitto):
    """The broker has the only copy of what it said when the process ends before the COMMIT."""
    arrived = asyncio.Event()

    async def never_on_disk(_: Sequence[Heard]) -> None:
        arrived.set()
        await asyncio.Event().wait()

    ears, meant = Ears(), letter("node-1", 1)
    said: envelope.Message = {"cmd_id": meant.cmd_id, "epoch": 1, "seq": 1, "status": WORD["done"]}
    async with listening(own_broker.url, never_on_disk, client_id="worker"):
        async with aiomqtt.Client("127.0.0.1", own_broker.port) as node:
            sealed = envelope.seal(said, "node-1", key_of("node-1"))
            await node.publish(f"{PREFIX}/node-1/status", sealed, qos=1)
        await arrived.wait()
    async with listening(own_broker.url, ears, client_id="worker"):
        await until(lambda: ears.ended(meant))


async def test_a_result_is_receipted_when_it_is_on_disk_and_not_before(broker: Mosquitto):
    on_disk = asyncio.Event()
    ears, sent = Ears(), letter("node-11", 1)

    async def slowly(said: Sequence[Heard]) -> None:
        await on_disk.wait()
        await ears(said)

    async with listening(broker.url, slowly) as wire, living("node-11", broker.url) as node:
        while not node.ran:
            await insist_once(wire, sent)
        await until(node.node.memory.unreceipted)
        # Whatever follows on the same way is behind a receipt, if there is one.
        await wire.send(letter("node-11", 2))
        await until(lambda: len(node.ran) == 2)
        assert len(node.node.memory.unreceipted()) == 2
        on_disk.set()
        await until(lambda: not node.node.memory.unreceipted())
    assert ears.ended(sent)


@needs_mosquitto
async def test_a_password_is_needed_and_shown_to_nobody(capfd: pytest.CaptureFixture[str]):
    async with mosquitto("plant:canary-in-the-shaft") as secured:
        good = secured.url.replace("//", "//plant:canary-in-the-shaft@")
        bad = secured.url.replace("//", "//plant:canary-that-is-wrong@")
        ears, sent = Ears(), letter("node-12", 1)
        async with listening(good, ears) as wire, living("node-12", good):
            await insist(wire, sent, ears)
            assert "canary" not in repr(wire)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3), listening(bad, ears) as wire:
                raise AssertionError("it was let in")
    assert "canary" not in "".join(capfd.readouterr())


@needs_mosquitto
async def test_who_is_not_let_in_is_told_why():
    async with mosquitto("plant:secret") as secured:
        wire = MqttWire(secured.url, PREFIX, keyring=RING, keys=keys_of)
        task = asyncio.create_task(wire.listen(Ears()))
        with pytest.raises(NotDelivered, match=r"not authorized|bad user name"):
            await wire.send(letter("node-1", 1))
        await ended(task)


async def insist_once(wire: MqttWire, sent: Letter) -> None:
    """Send, whether or not the node is there yet, and wait a moment for what comes of it."""
    with suppress(NotDelivered):
        await wire.send(sent)
    await asyncio.sleep(0.05)


async def _recorded(stranger: aiomqtt.Client, topic: str) -> bytes:
    async for message in stranger.messages:
        if message.topic.value == topic and b'"ack"' not in message.payload:
            return message.payload
    raise AssertionError


async def _all_recorded(stranger: aiomqtt.Client, last: str) -> list[bytes]:
    found = []
    async for message in stranger.messages:
        found.append(message.payload)
        if message.topic.value == last:
            return found
    raise AssertionError
