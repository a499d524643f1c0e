"""One connection to a broker, from the greeting until it breaks.

1. A message that was written and not acknowledged when the connection breaks may have arrived:
   `DeliveryUnknown`. One that still waited for its turn has not: `NotDelivered`.
2. No more messages are under way than the broker takes; the others wait for their turn.
3. What is written within one turn of the event loop leaves in one piece.
4. A broker that says nothing although it was asked is gone, whatever TCP thinks of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, cast

from onward.channels.mqtt import packets
from onward.channels.mqtt.broker import Broker
from onward.channels.mqtt.packets import Connack, Kind, MalformedPacket, Publish
from onward.errors import DeliveryUnknown, NotDelivered

PACKET_MAX: Final = 1024 * 1024  # bytes of a message from a node
RECEIVE_MAX: Final = 2_000  # messages that the broker sends before the first is acknowledged
_IN_FLIGHT_MAX: Final = 2_000  # messages of ours that are not acknowledged
_IDS: Final = 65_535
_SILENT_TICKS: Final = 2  # after which nobody is believed to be there
_CONNECT_S: Final = 10.0


class Manner(NamedTuple):
    """How a client behaves towards its broker."""

    keepalive_s: float = 15.0  # a broker that is silent for longer is gone
    # For which the broker keeps what it could not deliver, also of a process that will not return.
    session_expiry_s: int = 120
    first_pause_s: float = 0.1  # until the next attempt to connect; then twice as long
    longest_pause_s: float = 10.0


class _Waiting(NamedTuple):
    topic: bytes
    payload: bytes
    expiry_s: int | None
    acknowledged: asyncio.Future[int]


class Connection(asyncio.Protocol):
    """A client's end. `lost` is done when it is over, and says why."""

    def __init__(self, manner: Manner, received: Callable[[Connection, Publish], None]) -> None:
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = loop.create_future()
        self.greeted: asyncio.Future[Connack] = loop.create_future()
        self._loop = loop
        self._manner = manner
        self._received = received
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._out: list[bytes] = []
        self._full = False
        self._silent = 0
        self._ticking: asyncio.TimerHandle | None = None
        self._last_id = 0
        self._window = _IN_FLIGHT_MAX
        self._packet_max = PACKET_MAX
        self._under_way: dict[int, asyncio.Future[int]] = {}
        self._turns: deque[_Waiting] = deque()
        self._why = "The broker has closed the connection."

    def publish(
        self, topic: bytes, payload: bytes, expiry_s: int | None = None
    ) -> asyncio.Future[int]:
        """Publish with QoS 1; the future has the reason code of the broker's acknowledgement."""
        acknowledged: asyncio.Future[int] = self._loop.create_future()
        waiting = _Waiting(topic, payload, expiry_s, acknowledged)
        if self.lost.done():
            acknowledged.set_exception(NotDelivered(self._why))
        elif len(payload) + len(topic) + 16 > self._packet_max:
            problem = f"The broker takes messages of {self._packet_max} bytes at most."
            acknowledged.set_exception(NotDelivered(problem))
        elif len(self._under_way) < self._window:
            self._begin(waiting)
        else:
            self._turns.append(waiting)
        return acknowledged

    def publish_once(self, topic: bytes, payload: bytes) -> None:
        """Publish with QoS 0, unless there is no room: it may get lost anyway."""
        if not self._full:
            self._write(packets.publish_once(topic, payload))

    async def subscribe(self, topic_filter: str) -> int:
        """Ask for what matches; returns the broker's reason code."""
        packet_id = self._free_id()
        answer: asyncio.Future[int] = self._loop.create_future()
        self._under_way[packet_id] = answer
        self._write(packets.subscribe(packet_id, topic_filter))
        return await answer

    def acknowledge(self, packet_ids: Iterable[int]) -> None:
        """Tell the broker that it need not keep these any longer."""
        self._write(b"".join(map(packets.puback, packet_ids)))

    def close(self, *, keep_session: bool) -> None:
        """Say goodbye and hang up."""
        self._why = "The connection was closed."
        if self._transport is not None:
            self._write(packets.disconnect(keep_session=keep_session))
            self._flush()
            self._transport.close()

    def abort(self, why: str) -> None:
        """Hang up at once."""
        self._why = why
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP, and TLS if it was asked for, is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Take what the broker says, packet by packet."""
        self._silent = 0
        try:
            found, self._rest = packets.split(self._rest + data, PACKET_MAX)
            for first, body in found:
                self._take(first, body)
        except MalformedPacket as error:
            self.abort(f"The broker sent what cannot be read: {error}")

    def pause_writing(self) -> None:
        """The broker reads more slowly than we write."""
        self._full = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._full = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits what has become of their message."""
        if exc is not None:
            self._why = f"The connection to the broker broke: {exc}."
        if self._ticking is not None:
            self._ticking.cancel()
        for under_way in self._under_way.values():
            if not under_way.done():
                problem = "The connection broke before the broker had acknowledged the message."
                under_way.set_exception(DeliveryUnknown(problem))
        for waiting in self._turns:
            if not waiting.acknowledged.done():
                waiting.acknowledged.set_exception(NotDelivered(self._why))
        self._under_way.clear()
        self._turns.clear()
        if not self.greeted.done():
            self.greeted.set_exception(NotDelivered(self._why))
        self.lost.set_result(self._why)

    def _take(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == Kind.PUBLISH:
            self._received(self, packets.read_publish(first, body))
        elif kind == Kind.PUBACK:
            self._answered(*packets.read_puback(body))
        elif kind == Kind.SUBACK:
            self._answered(packets.read_puback(body)[0], packets.read_suback(body))
        elif kind == Kind.CONNACK:
            self._greet(packets.read_connack(body))
        elif kind == Kind.DISCONNECT:
            self.abort(f"The broker hung up: {packets.named(packets.read_disconnect(body))}.")
        elif kind != Kind.PINGRESP:
            raise MalformedPacket(f"there is no packet of kind {kind} from a broker")

    def _greet(self, connack: Connack) -> None:
        self._window = min(_IN_FLIGHT_MAX, connack.receive_maximum)
        self._packet_max = connack.packet_size_maximum
        if not self.greeted.done():
            self.greeted.set_result(connack)

    def _answered(self, packet_id: int, reason: int) -> None:
        answered = self._under_way.pop(packet_id, None)
        if answered is not None and not answered.done():
            answered.set_result(reason)
        while self._turns and len(self._under_way) < self._window:
            self._begin(self._turns.popleft())

    def _begin(self, waiting: _Waiting) -> None:
        if waiting.acknowledged.done():  # whoever wanted it has gone
            return
        packet_id = self._free_id()
        self._under_way[packet_id] = waiting.acknowledged
        self._write(packets.publish(waiting.topic, waiting.payload, packet_id, waiting.expiry_s))

    def _free_id(self) -> int:
        """The next number that nothing under way has; fewer than all of them are."""
        while True:
            self._last_id = self._last_id % _IDS + 1
            if self._last_id not in self._under_way:
                return self._last_id

    def _write(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _tick(self) -> None:
        """Ask whether the broker is there, and hang up if it has not answered for long."""
        if self._silent >= _SILENT_TICKS:
            self.abort(f"The broker has said nothing for {self._manner.keepalive_s:g} s.")
            return
        if self.greeted.done():
            self._silent += 1
            self._write(packets.PINGREQ)
        self._ticking = self._loop.call_later(self._manner.keepalive_s / 2, self._tick)

    def greet(self, broker: Broker, client_id: str) -> None:
        """Say who we are."""
        self._write(
            packets.connect(
                client_id,
                # The broker hangs up after one and a half of it; we speak twice as often.
                keepalive_s=max(1, round(self._manner.keepalive_s)),
                credentials=broker.credentials,
                session_expiry_s=self._manner.session_expiry_s,
                receive_maximum=RECEIVE_MAX,
                packet_size_maximum=PACKET_MAX,
            )
        )


async def connect(
    broker: Broker,
    client_id: str,
    *,
    manner: Manner,
    received: Callable[[Connection, Publish], None],
) -> Connection:
    """Connect and be let in; NotDelivered says why not."""
    loop = asyncio.get_running_loop()
    connection: Connection | None = None
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: Connection(manner, received), broker.host, broker.port, ssl=broker.tls()
            )
            connection.greet(broker, client_id)
            connack = await connection.greeted
    except TimeoutError:
        _hang_up(connection)
        raise NotDelivered(f"The MQTT broker at {broker.shown} does not answer.") from None
    except OSError as error:
        raise NotDelivered(
            f"The MQTT broker at {broker.shown} cannot be reached: {error.strerror or error}."
        ) from None
    except asyncio.CancelledError:
        _hang_up(connection)
        raise
    if connack.reason >= packets.FAILURES:
        _hang_up(connection)
        raise NotDelivered(
            f"The MQTT broker at {broker.shown} refuses us: {packets.named(connack.reason)}."
        )
    return connection


def _hang_up(connection: Connection | None) -> None:
    if connection is not None:
        connection.abort("The broker did not let us in.")
