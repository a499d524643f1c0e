"""MQTT 5 on the wire, as much of it as a client needs that publishes and subscribes with QoS 1.

A packet is a byte for its kind, its length, and what that kind says. `split` takes whole packets
out of what has arrived; the functions of the kinds read or write one. Names and numbers are those
of the standard (OASIS MQTT 5.0, chapters 2 and 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple


class MalformedPacket(ValueError):
    """Somebody speaks, and it is not MQTT."""


class Kind(IntEnum):
    """What a packet is: the upper half of its first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    SUBSCRIBE = 8
    SUBACK = 9
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


class Property(IntEnum):
    """What we say or read beside the fields of a packet."""

    MESSAGE_EXPIRY_S = 0x02
    SESSION_EXPIRY_S = 0x11
    REASON = 0x1F
    RECEIVE_MAXIMUM = 0x21
    PACKET_SIZE_MAXIMUM = 0x27


NO_MATCHING_SUBSCRIBERS: Final = 0x10
FAILURES: Final = 0x80  # reason codes from here on say no

PINGREQ: Final = bytes((Kind.PINGREQ << 4, 0))

_BYTE, _SHORT, _LONG, _VARIABLE, _TEXT, _PAIR = range(6)
# The form of every property that a broker may send, so that those we ignore can be passed over.
_FORMS: Final[Mapping[int, int]] = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), _BYTE),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), _SHORT),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), _LONG),
    **dict.fromkeys((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F), _TEXT),
    0x0B: _VARIABLE,
    0x26: _PAIR,
}
_SIZES: Final = {_BYTE: 1, _SHORT: 2, _LONG: 4}

# In the words of the standard, for those that an operator can do something about.
REASONS: Final[Mapping[int, str]] = {
    0x10: "no matching subscribers",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version: MQTT 5 is needed",
    0x85: "client identifier not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8D: "keep alive timeout",
    0x8E: "session taken over by another client of the same name",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x93: "receive maximum exceeded",
    0x95: "packet too large",
    0x97: "quota exceeded",
    0x9E: "shared subscriptions not supported",
}


class Connack(NamedTuple):
    """How the broker answers a client that wants in."""

    session_present: bool
    reason: int
    receive_maximum: int  # how many messages it takes before it has acknowledged the first
    packet_size_maximum: int


class Publish(NamedTuple):
    """A message from the broker."""

    topic: str
    payload: bytes
    packet_id: int  # to be acknowledged; 0 for QoS 0


def named(reason: int) -> str:
    """A reason code in words."""
    return REASONS.get(reason, f"reason code 0x{reason:02x}")


def connect(
    client_id: str,
    *,
    keepalive_s: int,
    credentials: tuple[str, str | None] | None,
    session_expiry_s: int,
    receive_maximum: int,
    packet_size_maximum: int,
) -> bytes:
    """Ask to be let in, to the session of this name if the broker still has it."""
    said = (
        bytes((Property.SESSION_EXPIRY_S,)) + session_expiry_s.to_bytes(4)
        + bytes((Property.RECEIVE_MAXIMUM,)) + receive_maximum.to_bytes(2)
        + bytes((Property.PACKET_SIZE_MAXIMUM,)) + packet_size_maximum.to_bytes(4)
    )  # fmt: skip
    flags, secrets = 0, b""
    if credentials is not None:
        username, password = credentials
        flags, secrets = 0x80, text(username)
        if password is not None:
            flags, secrets = 0xC0, secrets + text(password)
    body = text("MQTT") + bytes((5, flags)) + keepalive_s.to_bytes(2) + length(len(said)) + said
    return packet(Kind.CONNECT << 4, body + text(client_id) + secrets)


def publish(topic: bytes, payload: bytes, packet_id: int, expiry_s: int | None) -> bytes:
    """A message with QoS 1; `topic` as `text` makes it."""
    said = b"\0" if expiry_s is None else b"\x05\x02" + expiry_s.to_bytes(4)
    return packet(0x32, topic + packet_id.to_bytes(2) + said + payload)


def publish_once(topic: bytes, payload: bytes) -> bytes:
    """A message with QoS 0, which may get lost."""
    return packet(0x30, topic + b"\0" + payload)


def puback(packet_id: int) -> bytes:
    """We have it."""
    return b"\x40\x02" + packet_id.to_bytes(2)


def subscribe(packet_id: int, topic_filter: str) -> bytes:
    """Ask for everything that matches, with QoS 1."""
    return packet(0x82, packet_id.to_bytes(2) + b"\0" + text(topic_filter) + b"\x01")


def disconnect(*, keep_session: bool) -> bytes:
    """Say goodbye; without `keep_session` the broker forgets us at once."""
    if keep_session:
        return bytes((Kind.DISCONNECT << 4, 0))
    return packet(Kind.DISCONNECT << 4, b"\0\x05\x11" + (0).to_bytes(4))


def split(data: bytes, most: int) -> tuple[list[tuple[int, bytes]], bytes]:
    """Take whole packets out of what has arrived: (first byte, body) each, and what is left."""
    found: list[tuple[int, bytes]] = []
    position, end = 0, len(data)
    while end - position >= 2:  # noqa: PLR2004 - a packet's least
        size, start = data[position + 1], position + 2
        if size >= 128:  # noqa: PLR2004 - another byte of the length follows
            whole = _length(data, position + 1)
            if whole is None:
                break
            size, start = whole
        if size > most:
            raise MalformedPacket(f"A packet of {size} bytes is more than was asked for.")
        if start + size > end:
            break
        found.append((data[position], data[start : start + size]))
        position = start + size
    return found, data[position:]


def read_publish(first: int, body: bytes) -> Publish:
    """Read a message."""
    try:
        start = 2 + int.from_bytes(body[:2])
        topic = body[2:start].decode()
        packet_id = 0
        if first & 0x06:
            packet_id = int.from_bytes(body[start : start + 2])
            start += 2
        if body[start]:
            said, at = _whole_length(body, start)
            start = at + said
        else:
            start += 1
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedPacket("A message cannot be read.") from error
    return Publish(topic, body[start:], packet_id)


def read_connack(body: bytes) -> Connack:
    """Read how the broker answers."""
    if len(body) < 2:  # noqa: PLR2004 - flags and a reason
        raise MalformedPacket("The broker's answer is too short.")
    said = dict(_properties(body, 2)) if len(body) > 2 else {}  # noqa: PLR2004 - as above
    return Connack(
        session_present=bool(body[0] & 1),
        reason=body[1],
        receive_maximum=said.get(Property.RECEIVE_MAXIMUM, 65_535),
        packet_size_maximum=said.get(Property.PACKET_SIZE_MAXIMUM, 2**28),
    )


def read_puback(body: bytes) -> tuple[int, int]:
    """Read what is acknowledged, and the reason code."""
    if len(body) < 2:  # noqa: PLR2004 - the packet's id
        raise MalformedPacket("An acknowledgement is too short.")
    return int.from_bytes(body[:2]), body[2] if len(body) > 2 else 0  # noqa: PLR2004 - as above


def read_suback(body: bytes) -> int:
    """Read the reason code of a subscription to one filter."""
    return body[-1] if body else FAILURES


def read_disconnect(body: bytes) -> int:
    """Read why the broker hangs up."""
    return body[0] if body else 0


def packet(first: int, body: bytes) -> bytes:
    """A whole packet."""
    return bytes((first,)) + length(len(body)) + body


def text(value: str) -> bytes:
    """A text with its length in front."""
    encoded = value.encode()
    return len(encoded).to_bytes(2) + encoded


def length(size: int) -> bytes:
    """A number in as many bytes as it takes, seven bits each, the last without the eighth."""
    if size < 128:  # noqa: PLR2004 - seven bits
        return bytes((size,))
    written = bytearray()
    while size >= 128:  # noqa: PLR2004 - as above
        written.append(size & 0x7F | 0x80)
        size >>= 7
    written.append(size)
    return bytes(written)


def _length(data: bytes, start: int) -> tuple[int, int] | None:
    """Read such a number: its value and where it ends, or none if it has not come whole."""
    value = 0
    for place in range(4):
        if start + place >= len(data):
            return None
        byte = data[start + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 128:  # noqa: PLR2004 - the last of them
            return value, start + place + 1
    raise MalformedPacket("The length of a packet takes more than four bytes.")


def _whole_length(data: bytes, start: int) -> tuple[int, int]:
    if (found := _length(data, start)) is None:
        raise MalformedPacket("A packet ends in the middle of a length.")
    return found


def _properties(data: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Read the properties that are numbers, and pass over the others."""
    size, place = _whole_length(data, start)
    end = place + size
    if end > len(data):
        raise MalformedPacket("A packet ends in the middle of its properties.")
    while place < end:
        name, form = data[place], _FORMS.get(data[place])
        place += 1
        if form is None:
            raise MalformedPacket(f"There is no property 0x{name:02x}.")
        if form in _SIZES:
            yield name, int.from_bytes(data[place : place + _SIZES[form]])
        place = _after(data, place, form)


def _after(data: bytes, place: int, form: int) -> int:
    """Where a property of this form ends."""
    if form in _SIZES:
        return place + _SIZES[form]
    if form == _VARIABLE:
        return _whole_length(data, place)[1]
    for _ in range(2 if form == _PAIR else 1):
        place += 2 + int.from_bytes(data[place : place + 2])
    return place
