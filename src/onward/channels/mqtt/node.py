"""A node in Python, as a program: an example for firmware, and something to test against.

What it does with its commands is in `conduct`, what it remembers in `memory`; here is how it stays
connected and what it can do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

import aiomqtt

from onward.channels.mqtt import broker
from onward.channels.mqtt.broker import Broker
from onward.channels.mqtt.conduct import Node, Outcome
from onward.channels.mqtt.envelope import Command
from onward.channels.mqtt.memory import Memory
from onward.errors import InvalidInput

_REPEAT_S: Final = 5.0  # until a result is repeated; then twice as long
_REPEAT_MAX_S: Final = 60.0
_PAUSE_S: Final = 0.2  # until the next attempt to connect; then twice as long
_PAUSE_MAX_S: Final = 10.0
_PROGRAM: Final = "python -m onward.channels.mqtt.node"


async def attend(node: Node, url: Broker, prefix: str, said: asyncio.Queue[bytes]) -> None:
    """Keep a node connected for ever, and bring what it says to its topic."""
    pause_s = _PAUSE_S
    while True:
        try:
            async with aiomqtt.Client(
                url.host,
                url.port,
                username=url.username,
                password=url.password,
                identifier=node.name,
                clean_session=False,  # what comes while we are away waits at the broker
                keepalive=15,
                timeout=3,
                tls_context=url.tls(),
            ) as client:
                pause_s = _PAUSE_S
                await _connected(client, node, prefix, said)
        except aiomqtt.MqttError as error:
            print(f"no connection to {url.shown}: {error}", file=sys.stderr)  # noqa: T201 - a program
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


async def _connected(
    client: aiomqtt.Client, node: Node, prefix: str, said: asyncio.Queue[bytes]
) -> None:
    own = f"{prefix}/{node.name}"
    await client.subscribe([(f"{own}/cmd", 1), (f"{own}/receipt", 1)])
    over = asyncio.Event()
    speaking = [
        asyncio.create_task(_speak(client, f"{own}/status", said, over)),
        asyncio.create_task(_repeat(node)),
    ]
    try:
        async for message in client.messages:
            take = node.receipt if message.topic.value == f"{own}/receipt" else node.command
            take(message.payload)
    finally:
        over.set()
        for each in speaking:
            each.cancel()
        await asyncio.gather(*speaking, return_exceptions=True)


async def _speak(
    client: aiomqtt.Client, topic: str, said: asyncio.Queue[bytes], over: asyncio.Event
) -> None:
    # Until Python 3.12, `wait_for` can swallow a cancellation, and the library uses it.
    while not over.is_set():
        # What gets lost here because the connection breaks is said again: results are repeated.
        await client.publish(topic, await said.get(), qos=1)


async def _repeat(node: Node) -> None:
    """Say again what the server may not have heard: at once, because we were away, and later."""
    pause_s = _REPEAT_S
    while True:
        pause_s = min(2 * pause_s, _REPEAT_MAX_S) if node.say_again() else _REPEAT_S
        await asyncio.sleep(pause_s)


async def _example(command: Command) -> Outcome:
    """What this node can do; firmware would switch its relays here."""
    match command.cmd, command.params:
        case "ping", _:
            return Outcome()
        case "echo", params:
            return Outcome(said={"result": dict(params)})
        case "sleep", {"seconds": int() | float() as seconds} if seconds >= 0:
            await asyncio.sleep(seconds)
            return Outcome()
        case _:
            return Outcome("invalid", {"error": f"This node cannot {command.cmd!a:.80} like that."})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="A node that can ping, echo and sleep.",
        epilog="ONWARD_MQTT_URL is the broker, such as mqtt://user:password@broker:1883.",
    )
    parser.add_argument("--name", required=True, help="the host's name")
    parser.add_argument("--key-file", required=True, type=Path, help="the node's key, hexadecimal")
    parser.add_argument("--journal", required=True, type=Path, help="where it remembers")
    parser.add_argument("--prefix", default="onward", help="what the topics begin with")
    parser.add_argument("--window-s", type=float, default=60.0, help="how old a command may be")
    parser.add_argument("--at-once", type=int, default=1, help="how many commands it runs at once")
    return parser.parse_args()


async def _main() -> None:
    chosen = _arguments()
    url = broker.parse(os.environ.get("ONWARD_MQTT_URL", "mqtt://127.0.0.1:1883"))
    said: asyncio.Queue[bytes] = asyncio.Queue()
    node = Node(
        chosen.name,
        _key(chosen.key_file),
        do=_example,
        say=said.put_nowait,
        memory=Memory(chosen.journal, first_number=int(time.time() * 1_000_000)),
        window_s=chosen.window_s,
        at_once=chosen.at_once,
    )
    await attend(node, url, chosen.prefix, said)


def _key(path: Path) -> bytes:
    try:
        return bytes.fromhex(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput("--key-file", f"holds no hexadecimal key: {error}") from None


if __name__ == "__main__":
    try:
        asyncio.run(_main())
    except KeyboardInterrupt:
        sys.exit(130)
    except InvalidInput as error:
        sys.exit(f"{_PROGRAM}: {error}")
