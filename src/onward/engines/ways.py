"""The ways to hosts that a process has, by the name that hosts know them by.

Each is there if the settings ask for it; hosts on a way that this process has not are refused, with
the setting that is missing. What has to be listened to is listened to for as long as the ways last,
and a bug there ends the process: one that does half of its work would look alive.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from onward.channels.agent.channel import AgentChannel
from onward.channels.agent.hub import Hub
from onward.channels.base import Channel, Target
from onward.channels.keyring import KeyRing, key_ring
from onward.core.lifecycles import NODE
from onward.engines.equipment import Simulated, simulated_hosts
from onward.fleet.carry import Carriage, Carrier
from onward.fleet.whereabouts import Whereabouts
from onward.settings import Settings
from onward.store import sendings
from onward.store.commands import Commands
from onward.store.database import Pool


@asynccontextmanager
async def ways(
    settings: Settings, pool: Pool, simulated: Simulated, hub: Hub | None = None
) -> AsyncIterator[Mapping[str, Channel]]:
    """Give the ways that the settings ask for; `hub` has the agents of this process, if any."""
    async with AsyncExitStack() as stack:
        found: dict[str, Channel] = {
            "simulated": await stack.enter_async_context(simulated_hosts(simulated)),
            "agent": await stack.enter_async_context(
                AgentChannel(hub, Whereabouts(pool, lost_after_s=settings.worker_lost_after_s).find)
            ),
            "ssh": await _ssh(stack, settings),
        }
        carriages = [
            carriage
            for carriage in (_mqtt(settings, pool), await _platform(stack, settings))
            if carriage is not None
        ]
        commands = Commands(
            pool,
            batch_max=settings.batch_max_events,
            group_wait_s=settings.group_commit_ms / 1_000,
        )
        stack.push_async_callback(commands.close)
        carriers = {each.channel: Carrier(commands, settings, each) for each in carriages}
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(carrier.run()) for carrier in carriers.values()]
            yield found | carriers
            for task in running:
                task.cancel()


async def _ssh(stack: AsyncExitStack, settings: Settings) -> Channel:
    from onward.channels.ssh import SshChannel, SshWay  # noqa: PLC0415 - it takes a while to load

    way = SshWay(
        directory=settings.ssh_dir or settings.data_dir / "ssh",
        agent=settings.ssh_agent,
        user=settings.ssh_user,
        connections=settings.ssh_connections,
        sessions=settings.ssh_sessions,
    )
    return await stack.enter_async_context(SshChannel(way))


def _mqtt(settings: Settings, pool: Pool) -> Carriage | None:
    if settings.mqtt_url is None:
        return None

    from onward.channels.mqtt import MqttWire  # noqa: PLC0415 - as above

    ring = key_ring(settings)
    wire = MqttWire(
        settings.mqtt_url.get_secret_value(),
        prefix=settings.mqtt_prefix,
        keyring=ring,
        keys=partial(_node_keys, pool, ring),
    )
    return Carriage(wire, "mqtt", lambda _: NODE.name)


async def _node_keys(pool: Pool, ring: KeyRing, names: Collection[str]) -> Mapping[str, bytes]:
    """The present keys of nodes, by their names; those that have none are left out."""
    found = await sendings.generations(pool, list(names), "mqtt")
    return {
        name: ring.node_key(host_id, generation)
        for name, (host_id, generation) in found.items()
        if generation
    }


async def _platform(stack: AsyncExitStack, settings: Settings) -> Carriage | None:
    if settings.platforms is None:
        return None

    from onward.channels.platform.file import load  # noqa: PLC0415 - as above
    from onward.channels.platform.wire import PlatformWire  # noqa: PLC0415 - as above

    # The file says which variables its headers are in; nothing else reads them.
    wire = PlatformWire(load(settings.platforms), environment=os.environ)
    await stack.enter_async_context(wire)

    def lifecycle(target: Target) -> str:
        return wire.lifecycle(target)

    return Carriage(wire, "platform", lifecycle)
