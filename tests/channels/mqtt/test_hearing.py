"""The small parts of hearing: replays, keys, details that cannot be kept, addresses of brokers."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import pytest

from onward.channels.keyring import KeyRing
from onward.channels.mqtt import MqttWire, broker
from onward.channels.mqtt.keys import Keys
from onward.channels.mqtt.replays import Replays
from onward.channels.mqtt.said import RESULT_MAX, told
from onward.errors import InvalidInput
from onward.fleet import commands
from onward.settings import Settings

# What a node sends can be wrong in any detail.
STRANGE: tuple[object, ...] = (
    "\0", "x" * 300_000, 2**70, -1, 1.5, True, [], {"\0": 1}, {"output": "a\0b"}, "ok",
)  # fmt: skip


def test_a_number_is_taken_once_in_whatever_order_they_come():
    numbers = [*range(1_000, 1_200)] * 2
    random.Random(7).shuffle(numbers)
    replays = Replays()
    taken = [number for number in numbers if replays.take("n", b"k", number)]
    assert sorted(taken) == sorted(set(numbers))


def test_a_number_far_behind_may_have_been_taken():
    replays = Replays()
    assert replays.take("n", b"k", 10_000)
    assert not replays.take("n", b"k", 1)
    assert replays.take("n", b"k", 9_999)
    assert replays.take("n", b"k", 20_000)
    assert not replays.take("n", b"k", 10_000)


def test_nodes_and_keys_have_numbers_of_their_own():
    replays = Replays()
    assert replays.take("n", b"k", 5)
    assert replays.take("m", b"k", 5)
    assert replays.take("n", b"another", 1)
    assert not replays.take("n", b"another", 1)


class Book:
    """Where keys are looked up."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {"n": b"1"}
        self.asked: list[list[str]] = []
        self.now = 100.0

    async def ask(self, names: Collection[str]) -> Mapping[str, bytes]:
        self.asked.append(sorted(names))
        return {name: self.keys[name] for name in names if name in self.keys}


async def test_a_key_is_looked_up_once_and_forgotten_after_a_while():
    book = Book()
    keys = Keys(book.ask, lambda: book.now)
    for _ in range(3):
        assert await keys.of({"n", "stranger"}) == {"n": b"1"}
    assert book.asked == [["n", "stranger"]]
    book.keys["n"], book.now = b"2", 111.0
    assert await keys.of({"n"}) == {"n": b"2"}


async def test_a_key_that_does_not_fit_is_looked_up_again_but_not_for_every_message():
    book = Book()
    keys = Keys(book.ask, lambda: book.now)
    await keys.of({"n"})
    keys.doubt("n")
    assert await keys.of({"n"}) == {"n": b"1"}
    assert len(book.asked) == 1
    book.keys["n"], book.now = b"2", 101.0
    keys.doubt("n")
    assert await keys.of({"n"}) == {"n": b"2"}


async def test_names_that_somebody_made_up_do_not_fill_the_memory():
    book = Book()
    keys = Keys(book.ask, lambda: book.now)
    await keys.of({"n"})
    for part in range(30):
        await keys.of({f"stranger-{part}-{number}" for number in range(1_000)})
    assert len(keys._known) < 12_000
    assert await keys.of({"n"}) == {"n": b"1"}


def test_a_word_is_kept_whatever_comes_along_with_it():
    for name in ("result", "result_code", "error", "error_code", "duration_ms", "other"):
        for value in (*STRANGE, None):
            # Raises if it could not be stored.
            commands.event(
                Settings(), "018f6b0e-7c1a-7000-8000-000000000001", "done",
                epoch=1, source="mqtt", data=told({name: value}),
            )  # fmt: skip


def test_details_are_kept_under_the_names_of_a_command():
    said = {"result": {"t": 21.5}, "result_code": 3, "error": "jam", "duration_ms": 12, "seq": 1}
    assert told(said) == {
        "result": {"t": 21.5},
        "result_code": "3",
        "error_message": "jam",
        "duration_ms": 12,
    }


def test_a_result_that_is_too_long_is_cut_and_says_so():
    result = told({"result": {"output": "ü" * RESULT_MAX}})["result"]
    assert isinstance(result, dict)
    assert result["output"].endswith("ü\n(cut)")
    assert len(result["output"].encode()) <= RESULT_MAX + 10
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    assert told({"result": deep}) == {"result": {"output": "[" * 101 + "]" * 101}}


def test_the_address_of_a_broker_is_read():
    assert broker.parse("mqtt://broker.example") == broker.Broker("broker.example", 1883, False)
    found = broker.parse("mqtts://us%40er:p%3Aw@[::1]:9000/")
    assert (found.shown, found.encrypted) == ("[::1]:9000", True)
    assert found.credentials == ("us@er", "p:w")
    assert "p:w" not in repr(found)
    assert found.tls() is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://user:canary@host", "mqtt://", "mqtt://user:canary@", "mqtt://user:canary@h:port",
        "mqtt://user:canary@h/topic", "canary", "mqtt://user:canary@h?x=1", "mqtt://[::canary",
        "mqtt://user:canary@h:99999",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_refused_and_not_repeated(url: str):
    with pytest.raises(InvalidInput) as refusal:
        broker.parse(url)
    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize("prefix", ["", "/", "a/", "/a", "a/+", "#", "$SYS", "a\0b"])
async def test_a_prefix_that_is_no_beginning_of_a_topic_is_refused(prefix: str):
    with pytest.raises(InvalidInput, match="ONWARD_MQTT_PREFIX"):
        MqttWire("mqtt://localhost", prefix, keyring=KeyRing(b"k" * 32), keys=Book().ask)
