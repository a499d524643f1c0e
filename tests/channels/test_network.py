"""Chance: drawn from the seed and from nothing else, and as often as it was asked for."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.channels.base import Delivery
from onward.channels.simulated import Network, SimulatedChannel, SimulatedFleet
from onward.channels.simulated.network import Attempt, Road, draws
from onward.errors import InvalidInput
from tests.channels.virtual_time import now, run_in_virtual_time
from tests.channels.worlds import delivery, outcome

BUSY_DAY = [
    delivery(f"c{number}", number, host_id=1 + number % 40, sleep_s=number % 3, lines=number % 4)
    for number in range(1, 401)
]


def replay(network: Network, attempts: list[Delivery]) -> tuple[list[str], dict[str, str]]:
    """The journal of a day, and how each delivery ended."""

    async def scenario() -> tuple[list[str], dict[str, str]]:
        fleet = SimulatedFleet(clock=now)
        channel = SimulatedChannel(fleet, network)
        ends = await asyncio.gather(*(outcome(channel, attempt) for attempt in attempts))
        await channel.aclose()
        await fleet.aclose()
        commands = (attempt.command_id for attempt in attempts)
        return [*fleet.journal.lines()], dict(zip(commands, ends, strict=True))

    return run_in_virtual_time(scenario())


@pytest.mark.parametrize("kind", [Network.bad, Network.terrible])
def test_the_same_seed_tells_the_same_story(kind):
    assert replay(kind(7), BUSY_DAY) == replay(kind(7), BUSY_DAY)


def test_another_seed_tells_another_story():
    assert replay(Network.bad(7), BUSY_DAY) != replay(Network.bad(8), BUSY_DAY)


def test_what_happens_to_a_message_does_not_depend_on_the_others():
    """One command a host, so that only the network decides: any order, any company."""
    network = replace(Network.terrible(3), flapping_hosts=0)
    attempts = [delivery(f"c{host_id}", 1, host_id=host_id) for host_id in range(1, 301)]
    _, ends = replay(network, attempts)
    shuffled = random.Random(1).sample(attempts, len(attempts))
    _, ends_shuffled = replay(network, shuffled)
    _, ends_of_few = replay(network, attempts[:30])
    assert ends_shuffled == ends
    assert ends_of_few.items() <= ends.items()
    assert {"done", "NotDelivered", "DeliveryUnknown"} <= set(ends.values())


@pytest.mark.parametrize(
    ("network", "wrong"),
    [(Network.calm(1), 0.0), (Network.bad(1), 0.11), (Network.terrible(1), 0.44)],
)
def test_the_networks_are_about_as_bad_as_they_say(network: Network, wrong: float):
    attempts = [delivery(f"c{host_id}", 1, host_id=host_id) for host_id in range(1, 2_001)]
    _, ends = replay(network, attempts)
    failures = sum(end in {"NotDelivered", "DeliveryUnknown"} for end in ends.values())
    assert failures / len(ends) == pytest.approx(wrong, abs=0.03)


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.5, 1.0])
def test_a_chance_comes_true_as_often_as_it_says(chance: float):
    network = Network(refused=chance, request_lost=chance, duplicated=chance, answer_lost=chance)
    road = Road(0.0)
    attempts = [Attempt(host_id, "a", 1, "deliver 1") for host_id in range(4_000)]
    passages = [network.outward(attempt, road, wait_s=1) for attempt in attempts]
    rates = [
        sum(passage.refused for passage in passages),
        sum(0.0 not in passage.arrivals for passage in passages),
        sum(any(passage.arrivals) for passage in passages),
        sum(network.homeward(attempt, road, copy=0) is None for attempt in attempts),
    ]
    assert [rate / len(attempts) for rate in rates] == pytest.approx([chance] * 4, abs=0.03)


def _everything(network: Network, attempt: Attempt) -> list[object]:
    """All that chance decides about an attempt."""
    road = network.road(attempt.host_id)
    return [
        road,
        network.outward(attempt, Road(1.0), wait_s=1),
        network.homeward(attempt, Road(1.0), copy=0),
        network.homeward(attempt, Road(1.0), copy=1),
        network.crash_in(attempt),
    ]


def test_every_part_of_the_key_matters_for_all_that_chance_decides():
    network = Network(latency_s=1, flapping_hosts=1, duplicated=1, crash=1)
    attempt = Attempt(1, "a", 1, "deliver 1")
    first = _everything(network, attempt)
    others = [
        _everything(replace(network, seed=1), attempt),
        _everything(network, attempt._replace(host_id=2)),
    ]
    of_the_same_host = [
        _everything(network, attempt._replace(command_id="b")),
        _everything(network, attempt._replace(epoch=2)),
        _everything(network, attempt._replace(leg="cancel 1")),
    ]
    for other in others:
        assert all(before != after for before, after in zip(first, other, strict=True))
    for other in of_the_same_host:
        assert first[0] == other[0]
        assert all(before != after for before, after in zip(first[1:], other[1:], strict=True))
    assert first[2] != first[3]


@given(st.lists(st.integers() | st.text(st.characters(codec=None)), max_size=5))
def test_draws_are_from_0_to_below_1_and_stay_the_same(key: list[object]):
    found = draws(*key)
    assert len(found) == 8
    assert all(0 <= number < 1 for number in found)
    assert found == draws(*key)
    assert found != draws(*key, 0)


def test_only_a_network_without_chance_and_delay_is_perfect():
    assert Network.calm(5).perfect
    assert Network(patience_s=3, restart_s=9).perfect
    for name in ("latency_s", "refused", "hang", "request_lost", "answer_lost", "duplicated"):
        assert not Network(**{name: 0.1}).perfect  # type: ignore[arg-type]  # the name is no literal
    for name in ("crash", "flapping_hosts"):
        assert not Network(**{name: 0.1}).perfect  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("field", "value"),
    [("refused", 1.1), ("crash", -0.1), ("latency_s", -1), ("hang", float("nan"))],
)
def test_a_chance_that_is_none_is_not_taken(field: str, value: float):
    with pytest.raises(InvalidInput, match=field):
        Network(**{field: value})  # type: ignore[arg-type]  # the name is no literal


def test_time_runs_as_fast_as_it_is_told():
    """A minute on the hosts, a hundred times as fast: 0.6 s are asked of the sleep handed in."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        await asyncio.sleep(seconds)

    async def scenario() -> tuple[str, float, float]:
        fleet = SimulatedFleet(clock=now, sleep=sleep, speed=100)
        began = now()
        channel = SimulatedChannel(fleet, Network.calm())
        end = await outcome(channel, delivery(sleep_s=60, timeout_s=100))
        start, finish = fleet.journal.effects
        return end, now() - began, finish.at - start.at

    end, real_s, simulated_s = run_in_virtual_time(scenario())
    assert end == "done"
    assert asked == [0.6]
    assert real_s == pytest.approx(0.6)
    assert simulated_s == pytest.approx(60)


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_not_taken(speed: float):
    with pytest.raises(InvalidInput, match="speed"):
        SimulatedFleet(speed=speed)
