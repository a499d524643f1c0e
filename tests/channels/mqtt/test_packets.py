"""MQTT as it is on the wire: what arrives in any pieces is read alike, and nonsense is refused."""

from __future__ import annotations

import pytest

from onward.channels.mqtt import packets
from onward.channels.mqtt.packets import Connack, MalformedPacket

MOST = 1_000_000


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 70_000])
def test_a_packet_of_any_size_is_read_as_it_was_written(size: int):
    body = b"x" * size
    assert packets.split(packets.packet(0x30, body), MOST) == ([(0x30, body)], b"")


def test_packets_are_the_same_wherever_the_stream_is_torn():
    stream = (
        packets.publish(packets.text("a/b"), b"p" * 200, 7, 20)
        + packets.puback(513)
        + packets.publish_once(packets.text("ü"), b"")
    )
    whole, rest = packets.split(stream, MOST)
    assert (len(whole), rest) == (3, b"")
    for cut in range(len(stream)):
        first, rest = packets.split(stream[:cut], MOST)
        second, rest = packets.split(rest + stream[cut:], MOST)
        assert (first + second, rest) == (whole, b"")


def test_a_message_is_read_with_and_without_properties():
    for expiry_s in (None, 60):
        [(first, body)], _ = packets.split(
            packets.publish(packets.text("n/指令"), b"\x00payload", 65_535, expiry_s), MOST
        )
        assert packets.read_publish(first, body) == ("n/指令", b"\x00payload", 65_535)
    [(first, body)], _ = packets.split(packets.publish_once(packets.text("n"), b"p"), MOST)
    assert packets.read_publish(first, body) == ("n", b"p", 0)


def test_what_a_broker_says_about_itself_is_found_among_what_we_do_not_know():
    said = bytes.fromhex("12 0003 616263 26 0001 61 0001 62 21 0014 13 000a 27 00010000 0b 8101")
    body = b"\x01\x00" + packets.length(len(said)) + said
    assert packets.read_connack(body) == Connack(
        session_present=True, reason=0, receive_maximum=20, packet_size_maximum=65_536
    )
    assert packets.read_connack(b"\x00\x87").reason == 0x87


def test_an_acknowledgement_may_say_that_nobody_listens():
    assert packets.read_puback(b"\x00\x01") == (1, 0)
    assert packets.read_puback(b"\x00\x01\x10\x00") == (1, packets.NO_MATCHING_SUBSCRIBERS)


def test_a_packet_that_is_too_large_is_refused_before_it_is_there():
    with pytest.raises(MalformedPacket):
        packets.split(b"\x30" + packets.length(MOST + 1), MOST)


@pytest.mark.parametrize(
    "read",
    [
        lambda: packets.split(b"\x30\xff\xff\xff\xff\xff", MOST),
        lambda: packets.read_publish(0x32, b""),
        lambda: packets.read_publish(0x32, b"\x00\x05ab"),
        lambda: packets.read_publish(0x30, b"\x00\x01\xff\x00"),
        lambda: packets.read_publish(0x30, b"\x00\x01a\x80"),
        lambda: packets.read_connack(b"\x00"),
        lambda: packets.read_connack(b"\x00\x00\x05\x7f"),
        lambda: packets.read_connack(b"\x00\x00\x01\x7f"),
        lambda: packets.read_puback(b"\x00"),
    ],
)
def test_what_is_not_mqtt_is_refused_in_words(read):
    with pytest.raises(MalformedPacket) as refusal:
        read()
    assert str(refusal.value)


def test_a_reason_that_nobody_knows_is_shown_as_its_code():
    assert packets.named(0x87) == "not authorized"
    assert packets.named(0xEE) == "reason code 0xee"
