"""The node as a program: what somebody runs who wants to see one, and kills."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from onward.errors import NotDelivered
from tests.channels.conformance.ground import until
from tests.channels.mqtt.mosquitto import Mosquitto
from tests.channels.mqtt.world import PREFIX, Ears, insist, key_of, letter, listening

MODULE = "onward.channels.mqtt.node"


@asynccontextmanager
async def program(url: str, *arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", MODULE, *arguments),
        env={**os.environ, "ONWARD_MQTT_URL": url},
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_a_node_that_is_killed_knows_afterwards_what_it_did(
    broker: Mosquitto, tmp_path: Path
):
    key, journal = tmp_path / "key", tmp_path / "journal"
    key.write_text(f"{key_of('node-1').hex()}\n")
    where = ("--key-file", str(key), "--journal", str(journal))
    given = ("--name", "node-1", "--prefix", PREFIX, *where)
    ears, done = Ears(), letter("node-1", 1, "echo", x=1)
    cut = letter("node-1", 2, "sleep", seconds=600)
    async with listening(broker.url, ears) as wire:
        async with program(broker.url, *given):
            await insist(wire, done, ears)
            await wire.send(cut)
            await until(lambda: "ack" in ears.of(cut))
        async with program(broker.url, *given):
            await until(lambda: ears.ended(cut))
            heard = len(ears.heard)
            with suppress(NotDelivered):
                await wire.send(done)
            await until(lambda: len(ears.heard) > heard)
    interrupted = next(each for each in ears.heard if each.event == "fail")
    assert (interrupted.cmd_id, interrupted.data["error_code"]) == (cut.cmd_id, "INTERRUPTED")
    # What had been done before the kill is answered from memory, and with the same result.
    assert ears.heard[-1].event == "done"
    assert ears.heard[-1].data["result"] == {"x": 1}


async def test_what_it_was_given_wrongly_is_said_in_one_line(tmp_path: Path):
    key = tmp_path / "key"
    key.write_text("canary, no key")
    given = ("--name", "n", "--key-file", str(key), "--journal", str(tmp_path / "journal"))
    for url in ("mqtt://localhost", "http://user:canary@localhost"):
        async with program(url, *given) as process:
            _, said = await asyncio.wait_for(process.communicate(), 30)
            assert process.returncode == 1
            assert said.count(b"\n") == 1
            assert b"canary" not in said
