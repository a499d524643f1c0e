"""Ten thousand hosts in one process."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

import pytest

from onward.channels.simulated import Network, SimulatedChannel, SimulatedFleet, What, check_journal
from tests.channels.virtual_time import now, run_in_virtual_time
from tests.channels.worlds import delivery, outcome


async def _everybody(network: Network, hosts: int, sleep_s: float) -> SimulatedFleet:
    """One command on every host, each attempt with a new epoch, until every host has done it."""
    fleet = SimulatedFleet(range(1, hosts + 1), clock=now)
    channel = SimulatedChannel(fleet, network)
    epochs = count(1)

    async def until_done(host_id: int) -> None:
        for _ in range(200):
            attempt = delivery("upgrade", next(epochs), host_id=host_id, sleep_s=sleep_s)
            if (await outcome(channel, attempt)).endswith("done"):
                return
            await asyncio.sleep(1)
        pytest.fail(f"host {host_id} has not done it after 200 attempts")

    await asyncio.gather(*map(until_done, range(1, hosts + 1)))
    await channel.aclose()
    return fleet


@pytest.mark.parametrize(
    ("network", "hosts"),
    [(Network.calm(), 10_000), (Network.bad(11), 2_000), (Network.terrible(12), 1_000)],
    ids=["calm", "bad", "terrible"],
)
def test_every_host_does_it_exactly_once(network: Network, hosts: int, proof):
    hosts = 10_000 if proof else hosts
    print(f"seed {network.seed}")
    fleet = run_in_virtual_time(_everybody(network, hosts, 0.5 if network.crash else 0))
    assert check_journal(fleet.journal.lines()) == []
    done = Counter(
        effect.host_id
        for effect in fleet.journal.effects
        if effect.what is What.FINISHED and effect.succeeded
    )
    assert done == Counter(range(1, hosts + 1))


def test_hosts_without_a_fence_do_it_more_than_once_and_the_journal_shows_it():
    """The same day with hosts that run whatever comes: what the fence is for."""

    async def scenario() -> list[str]:
        fleet = SimulatedFleet(clock=now, fenced=False)
        channel = SimulatedChannel(fleet, Network.terrible(12))
        for epoch in (1, 2):
            await asyncio.gather(
                *(
                    outcome(channel, delivery("upgrade", epoch, host_id=host_id, sleep_s=3))
                    for host_id in range(1, 201)
                )
            )
        await asyncio.sleep(100)
        return check_journal(fleet.journal.lines())

    problems = run_in_virtual_time(scenario())
    for kind in ("ran twice in one epoch", "started after a higher epoch", "ran beside"):
        assert any(kind in problem for problem in problems), kind
