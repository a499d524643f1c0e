"""The server's side of the nodes: sends what is signed for them, and hears what they have signed.

1. `send` returns once the broker has acknowledged the message (QoS 1). A broker that says that
   nobody has subscribed has delivered nothing.
2. What is heard is gathered for a moment, checked, handed on as one batch, and acknowledged to the
   broker when that is on disk. Should the process end before, the broker delivers it again.
3. A result is receipted to its node, which repeats it until then. So nothing is lost for good,
   whatever the broker forgets.
4. What is unreadable, badly signed or was taken before is dropped, and counted.
5. Processes share one subscription: each message goes to one of them.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import structlog

from onward.channels.base import Heard, Letter, Listener
from onward.channels.keyring import KeyRing
from onward.channels.mqtt import broker, envelope, packets
from onward.channels.mqtt.connection import Connection, Manner, connect
from onward.channels.mqtt.envelope import CANCEL, RESULTS, WORDS, Doubtful, Status
from onward.channels.mqtt.keys import Keys
from onward.channels.mqtt.packets import Publish
from onward.channels.mqtt.replays import Replays
from onward.channels.mqtt.said import told
from onward.errors import ChannelError, HostRefused, InvalidInput, NotDelivered, ServerProblem

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.mqtt")

_GATHER_S: Final = 0.002
_BATCH_MAX: Final = 1_000
_SETTLED_S: Final = 1.0
_PATIENCE_S: Final = 1.0  # for which a letter waits for a connection, but for half its time at most
_KEYS_PAUSE_S: Final = 0.5  # while the server that knows the keys is away
_KEYS_KEPT: Final = 20_000  # of nodes that something was sent to
_TELL_S: Final = 10.0  # between two lines about what was dropped
_GROUP: Final = "onward"
_USUAL: Final = Manner()


class _Arrived(NamedTuple):
    connection: Connection
    message: Publish


class MqttWire:
    """The way to nodes behind one broker. It is connected while `listen` runs."""

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        keyring: KeyRing,
        keys: Callable[[Collection[str]], Awaitable[Mapping[str, bytes]]],  # by the nodes' names
        clock: Callable[[], float] = time.time,
        client_id: str | None = None,  # given: the broker keeps its session also when it leaves
        manner: Manner = _USUAL,
    ) -> None:
        self.dropped: Counter[str] = Counter()  # what was not believed, by the reason
        self._broker = broker.parse(url)
        self._prefix = _checked_prefix(prefix)
        self._key = lru_cache(_KEYS_KEPT)(keyring.node_key)
        self._keys = Keys(keys)
        self._clock = clock
        self._keeps_session = client_id is not None
        self._client_id = client_id or _process_name()
        self._manner = manner
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._why = f"There is no connection to the MQTT broker at {self._broker.shown} yet."
        self._arrived: list[_Arrived] = []
        self._filled = asyncio.Event()
        self._replays = Replays()
        self._told_at = -math.inf

    async def send(self, letter: Letter) -> None:
        """Hand a letter to the broker; returns once that has acknowledged it."""
        await self._publish(letter, letter.command_type, letter.params)

    async def cancel(self, letter: Letter) -> bool:
        """Ask a node to stop; true if the broker has the word."""
        try:
            await self._publish(letter, CANCEL, {})
        except ChannelError as error:
            log.info("cancel_not_sent", cmd_id=letter.cmd_id, problem=str(error))
            return False
        return True

    async def listen(self, heard: Listener) -> None:
        """Pass on what nodes say, over every break of the connection, until this is cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._stay_connected())
            both.create_task(self._pass_on(heard))

    async def connected(self) -> None:
        """Wait until there is a connection."""
        await self._connected.wait()

    # Sending.

    async def _publish(self, letter: Letter, cmd: str, params: Mapping[str, object]) -> None:
        node = letter.target.name
        sealed = self._sealed(letter, cmd, params)
        connection = self._connection or await self._there(letter.timeout_s)
        reason = await connection.publish(
            packets.text(f"{self._prefix}/{node}/cmd"), sealed, max(1, math.ceil(letter.timeout_s))
        )
        if reason == packets.NO_MATCHING_SUBSCRIBERS:
            raise NotDelivered(f"Node {node} is not there: nobody has subscribed to its commands.")
        if reason >= packets.FAILURES:
            raise HostRefused(
                f"The MQTT broker does not let us write to {node}: {packets.named(reason)}."
            )

    def _sealed(self, letter: Letter, cmd: str, params: Mapping[str, object]) -> bytes:
        host_id, node, _, generation = letter.target
        if not generation:
            raise HostRefused(f"Node {node} has no key: make one with POST /hosts/{host_id}/key.")
        message = {
            "cmd_id": letter.cmd_id,
            "cmd": cmd,
            "params": dict(params),
            "ts": int(self._clock()),
            "epoch": letter.epoch,
        }
        try:
            return envelope.seal(message, node, self._key(host_id, generation))
        except (ValueError, RecursionError):
            raise HostRefused("The parameters hold what JSON has no word for.") from None

    async def _there(self, timeout_s: float) -> Connection:
        try:
            await asyncio.wait_for(self._connected.wait(), min(_PATIENCE_S, timeout_s / 2))
        except TimeoutError:
            raise NotDelivered(self._why) from None
        # It may have broken again by now.
        if self._connection is None:
            raise NotDelivered(self._why)
        return self._connection

    # The connection.

    async def _stay_connected(self) -> None:
        pause_s = self._manner.first_pause_s
        while True:
            began_at = time.monotonic()
            try:
                connection = await connect(
                    self._broker, self._client_id, manner=self._manner, received=self._receive
                )
                why = await self._attend(connection)
                # One that lets us in and throws us out at once is not asked ten times a second.
                if time.monotonic() - began_at > _SETTLED_S:
                    pause_s = self._manner.first_pause_s
            except ChannelError as error:
                why = str(error)
            if why != self._why:
                log.warning("broker_away", broker=self._broker.shown, problem=why)
            self._why = why
            # Chance spreads the processes that have lost the same broker.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause_s = min(2 * pause_s, self._manner.longest_pause_s)

    async def _attend(self, connection: Connection) -> str:
        """Be connected until it breaks; returns why it did."""
        try:
            topic_filter = f"$share/{_GROUP}/{self._prefix}/+/status"
            reason = await connection.subscribe(topic_filter)
            if reason >= packets.FAILURES:
                raise NotDelivered(
                    f"The MQTT broker at {self._broker.shown} does not let us listen to "
                    f"{topic_filter}: {packets.named(reason)}."
                )
            self._connection = connection
            self._connected.set()
            self._why = ""
            log.info("broker_connected", broker=self._broker.shown)
            return await asyncio.shield(connection.lost)
        finally:
            self._connection = None
            self._connected.clear()
            connection.close(keep_session=self._keeps_session)

    # Hearing.

    def _receive(self, connection: Connection, message: Publish) -> None:
        self._arrived.append(_Arrived(connection, message))
        self._filled.set()

    async def _pass_on(self, heard: Listener) -> None:
        while True:
            await self._filled.wait()
            await asyncio.sleep(_GATHER_S)
            batch, self._arrived = self._arrived[:_BATCH_MAX], self._arrived[_BATCH_MAX:]
            if not self._arrived:
                self._filled.clear()
            believed = await self._believed([each.message for each in batch])
            if believed:
                await heard([_heard(status) for _, _, status in believed])
            self._acknowledge(batch)
            self._receipt(believed)

    async def _believed(self, batch: Sequence[Publish]) -> list[tuple[str, bytes, Status]]:
        """What a node has really said, and not before, with its name and key."""
        start, end = len(self._prefix) + 1, -len("/status")
        nodes = [message.topic[start:end] for message in batch]
        keys = await self._known_keys(set(nodes))
        believed = []
        for node, message in zip(nodes, batch, strict=True):
            key = keys.get(node)
            try:
                status = self._opened(message.payload, node, key)
            except Doubtful as doubt:
                self._drop(node, str(doubt))
                if key is not None:
                    self._keys.doubt(node)
            else:
                believed.append((node, key or b"", status))
        return believed

    def _opened(self, payload: bytes, node: str, key: bytes | None) -> Status:
        if key is None:
            raise Doubtful("unknown node")
        status = envelope.open_status(payload, node, key)
        if not self._replays.take(node, key, status.seq):
            raise Doubtful("replay")
        return status

    async def _known_keys(self, nodes: set[str]) -> Mapping[str, bytes]:
        while True:
            try:
                return await self._keys.of(nodes)
            except ServerProblem as error:
                log.warning("keys_unknown", nodes=len(nodes), problem=str(error))
                await asyncio.sleep(_KEYS_PAUSE_S)

    def _acknowledge(self, batch: Sequence[_Arrived]) -> None:
        by_connection: dict[Connection, list[int]] = {}
        for connection, message in batch:
            if message.packet_id:
                by_connection.setdefault(connection, []).append(message.packet_id)
        for connection, packet_ids in by_connection.items():
            connection.acknowledge(packet_ids)

    def _receipt(self, believed: Sequence[tuple[str, bytes, Status]]) -> None:
        connection = self._connection
        if connection is None:
            return  # The nodes will say it again.
        for node, key, status in believed:
            if status.status in RESULTS:
                receipt: envelope.Message = {"cmd_id": status.cmd_id, "epoch": status.epoch}
                connection.publish_once(
                    packets.text(f"{self._prefix}/{node}/receipt"),
                    envelope.seal(receipt, node, key),
                )

    def _drop(self, node: str, why: str) -> None:
        self.dropped[why] += 1
        now = time.monotonic()
        if now - self._told_at >= _TELL_S:
            self._told_at = now
            log.warning("status_dropped", node=node[:255], why=why, dropped=dict(self.dropped))


def _heard(status: Status) -> Heard:
    return Heard(status.cmd_id, WORDS[status.status], status.epoch, told(status.said))


def _checked_prefix(prefix: str) -> str:
    if not prefix or prefix.strip("/") != prefix or set(prefix) & set("+#\0") or prefix[0] == "$":
        raise InvalidInput(
            "ONWARD_MQTT_PREFIX",
            "is the beginning of a topic, such as onward or site/7: without + # and without a / "
            "at its ends",
        )
    return prefix


def _process_name() -> str:
    return f"onward-{socket.gethostname()}-{os.getpid()}"
