"""Nodes by the thousand, in a process of their own: each has a connection, a key and no delays.

They are written as firmware is, to take as little as they can of the processors that they share
with the server: the signature of a command is checked over the text that came, and the result is
put together as text. A node says nothing about when it began, and reads its receipts.

The process says that all are there on standard output, and leaves when standard input ends.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import sys
import time
from typing import Final

import uvloop

from onward.channels.keyring import KeyRing
from onward.channels.mqtt import packets
from onward.channels.mqtt.envelope import WORD
from onward.channels.mqtt.packets import Kind
from onward.errors import InvariantBroken

PREFIX: Final = "bench"
RING: Final = KeyRing(b"of the bench: nobody's secret....")
_AT_ONCE: Final = 50  # nodes that connect at the same time
_MOST: Final = 65_536
_COMMAND = re.compile(
    rb'("cmd_id":"[^"]*","epoch":\d+),.*("sig":"([0-9a-f]{64})",)"ts":\d+}'
).search


def name_of(number: int) -> str:
    """What a node is called."""
    return f"node-{number}"


def key_of(name: str) -> bytes:
    """The key of the node of this name."""
    return RING.node_key(int(name.removeprefix(name_of(0)[:-1])), 1)


class _Node(asyncio.Protocol):
    """One node, connected."""

    def __init__(self, name: str) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._name = name
        self._signed_name = f"\n{name}".encode()
        self._key = key_of(name)
        self._status = packets.text(f"{PREFIX}/{name}/status")
        self._seq = time.time_ns()
        self._id = 0
        self._subscribed = 0
        self._rest = b""
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask to be let in, and for what is for us."""
        self._transport = transport  # type: ignore[assignment]  # as TCP's is
        greeting = packets.connect(
            self._name,
            keepalive_s=0,
            credentials=None,
            session_expiry_s=0,
            receive_maximum=100,
            packet_size_maximum=_MOST,
        )
        topics = (f"{PREFIX}/{self._name}/{what}" for what in ("cmd", "receipt"))
        asked = [packets.subscribe(number, topic) for number, topic in enumerate(topics, 1)]
        self._transport.write(b"".join((greeting, *asked)))

    def data_received(self, data: bytes) -> None:
        """Answer every command; whatever else comes is read, and that is all."""
        found, self._rest = packets.split(self._rest + data, _MOST)
        for first, body in found:
            if first >> 4 == Kind.PUBLISH and first & 0x06:
                self._answer(first, body)
            elif first >> 4 == Kind.SUBACK:
                self._subscribed += 1
                if self._subscribed == 2:  # noqa: PLR2004 - commands and receipts
                    self.ready.set_result(None)

    def _answer(self, first: int, body: bytes) -> None:
        _, payload, packet_id = packets.read_publish(first, body)
        command = _COMMAND(payload)
        if command is None or command[3] != self._signature(payload.replace(command[2], b"", 1)):
            raise InvariantBroken(f"{self._name} cannot believe {payload!r:.500}")
        self._seq += 1
        self._id = self._id % 65_535 + 1
        head = b'{%b,"seq":%d,' % (command[1], self._seq)
        tail = b'"status":"%b","ts":%d}' % (_DONE, time.time())
        told = b'%b"sig":"%b",%b' % (head, self._signature(head + tail), tail)
        self._transport.write(
            packets.puback(packet_id) + packets.publish(self._status, told, self._id, None)
        )

    def _signature(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text + self._signed_name, "sha256").hex().encode()


_DONE: Final = WORD["done"].encode()


async def _live(name: str, port: int, room: asyncio.Semaphore) -> None:
    async with room:
        loop = asyncio.get_running_loop()
        _, node = await loop.create_connection(lambda: _Node(name), "127.0.0.1", port)
        await node.ready


async def _main(port: int, count: int) -> None:
    room = asyncio.Semaphore(_AT_ONCE)
    await asyncio.gather(*(_live(name_of(number), port, room) for number in range(count)))
    print("there", flush=True)  # noqa: T201 - somebody waits for it
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1]), int(sys.argv[2])))
