"""The conformance suite, for nodes behind a real MQTT broker."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from itertools import count

import pytest

import onward
from onward.channels.base import Channel, Delivery, Target
from onward.channels.mqtt import MqttWire
from onward.channels.mqtt.conduct import Outcome
from onward.channels.mqtt.envelope import Command
from onward.core.lifecycles import NODE
from onward.errors import HostRefused
from onward.fleet.carry import Carriage, Carrier
from onward.wiring import Onward
from tests.channels.conformance.ground import Does, Ear, Ground, Nature, named
from tests.channels.conformance.suite import *  # noqa: F403 - the suite is what this module runs
from tests.channels.conformance.suite import ALL_BYTES
from tests.channels.faults import Proxy, faulty
from tests.channels.mqtt.mosquitto import NEEDED, Mosquitto, installed, mosquitto
from tests.channels.mqtt.world import (
    IMPATIENT,
    PREFIX,
    RING,
    Living,
    ended,
    keys_of,
    living,
)
from tests.conftest import settings_for

_numbers = count(1)


class MqttGround:
    """A node, and the server's way to its broker, which can be cut."""

    nature = Nature(remembers=True, recovers=True, limits=False, whole_output_max=150 * 1024)

    def __init__(self, proxy: Proxy, wire: MqttWire, channel: Channel, target: Target) -> None:
        self.channel = channel
        self._proxy, self._wire, self._target = proxy, wire, target
        self._effects: list[str] = []
        self.node: Living | None = None

    def delivery(
        self,
        does: Does,
        *,
        command_id: str | None = None,
        epoch: int | None = None,
        timeout_s: float = 20.0,
        exclusive: bool = True,
    ) -> Delivery:
        delivery = Delivery(
            command_id=command_id or str(next(_numbers)),
            epoch=epoch or next(_numbers),
            target=self._target,
            command_type="nothing known" if does.refused else "probe",
            params={},
            timeout_s=timeout_s,
            exclusive=exclusive,
        )
        return delivery._replace(params=does.told() | {"id": named(delivery)})

    def effects(self) -> list[str]:
        return list(self._effects)

    async def away(self) -> None:
        await self._proxy.refuse()

    async def back(self) -> None:
        await self._proxy.restore()
        async with asyncio.timeout(20):
            await self._wire.connected()

    async def cut(self) -> None:
        self._proxy.reset()

    async def do(self, command: Command) -> Outcome:
        """What the node does, as the probe does it on other hosts."""
        if command.cmd != "probe":
            return Outcome("invalid", {"error": "There is no such command."})
        does: dict[str, object] = dict(command.params)
        self._effects.append(f"started {does['id']}")
        if echoes := does["echoes"]:
            assert isinstance(echoes, list)
            self._effects.append("echoed " + ",".join(each.encode().hex() for each in echoes))
        await asyncio.sleep(float(str(does["sleep_s"])))
        self._effects.append(f"finished {does['id']}")
        for _ in range(int(str(does["answers"])) - 1):
            asyncio.get_running_loop().call_later(0.01, self._say_again)
        return _outcome(int(str(does["exit_code"])), base64.b64decode(str(does["prints"])))

    def _say_again(self) -> None:
        assert self.node is not None
        for attempt in self.node.node.memory.attempts.values():
            self.node.node._tell(attempt)


def _outcome(exit_code: int, prints: bytes) -> Outcome:
    said: dict[str, object] = {"result_code": exit_code}
    if prints:
        said["result"] = {"output": prints.decode(errors="backslashreplace")}
    if exit_code:
        return Outcome("fail", said | {"error": f"It ended with {exit_code}."})
    return Outcome("done", said)


@pytest.fixture(scope="module")
async def broker() -> AsyncIterator[Mosquitto]:
    """A broker of the module's own."""
    if not installed:
        pytest.skip(NEEDED)
    async with mosquitto() as found:
        yield found


@pytest.fixture(scope="module")
async def opened(shared_url: str) -> AsyncIterator[Onward]:
    """Onward, open on it."""
    async with onward.open(settings_for(shared_url)) as found:
        yield found


@pytest.fixture
async def ground(opened: Onward, broker: Mosquitto) -> AsyncIterator[MqttGround]:
    """A node of the test's own."""
    target = await _host(opened)
    async with faulty(broker.port) as proxy:
        wire = MqttWire(
            f"mqtt://127.0.0.1:{proxy.port}", PREFIX, keyring=RING, keys=keys_of, manner=IMPATIENT
        )
        carriage = Carriage(wire, "mqtt", lambda _: NODE.name)
        channel = Carrier(opened.commands, opened.settings, carriage)
        running = asyncio.create_task(channel.run())
        found = MqttGround(proxy, wire, channel, target)
        async with living(target.name, broker.url, do=found.do) as found.node:
            await found.back()
            await _there(found)
            yield found
        await ended(running)
    await opened.commands.pool.execute("DELETE FROM sendings")


async def _host(opened: Onward) -> Target:
    """A host whose name tells its number, from which the test makes its key."""
    pool = opened.commands.pool
    host_id = await pool.fetchval(
        "INSERT INTO hosts (name, channel, key_generation) VALUES ($1, 'mqtt', 1) RETURNING id",
        f"made-{next(_numbers)}",
    )
    await pool.execute("UPDATE hosts SET name = $1 WHERE id = $2", f"node-{host_id}", host_id)
    return Target(host_id, f"node-{host_id}", "", 1)


async def _there(ground: MqttGround) -> None:
    """Wait until the node has subscribed: a command that it refuses comes back."""
    with pytest.raises(HostRefused):
        await ground.channel.deliver(ground.delivery(Does(refused=True)), Ear())


async def test_output_comes_back_whatever_bytes_it_has(  # type: ignore[no-redef]  # in its place
    ground: Ground,
):
    """What is printed comes back in the result, and PostgreSQL has no place for a NUL there."""
    ear = Ear()
    await ground.channel.deliver(ground.delivery(Does(prints=ALL_BYTES)), ear)
    assert ear.stdout == ALL_BYTES.decode(errors="backslashreplace").replace("\0", "\ufffd")
