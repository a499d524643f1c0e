"""What is the same for everybody is made once for all who ask at about the same time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from onward.fleet.shared import Shared


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Maker:
    """Makes numbers, one after the other, when it is let."""

    clock: Clock
    takes_s: float = 0.0
    made: int = 0
    fails: bool = False
    may: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self) -> int:
        await self.may.wait()
        self.made += 1
        self.clock.now += self.takes_s
        if self.fails:
            raise RuntimeError("not this time")
        return self.made


@pytest.fixture
def maker() -> Maker:
    return Maker(Clock())


async def test_a_crowd_costs_one_question(maker: Maker):
    shared = Shared[int](keep_s=1.0, clock=maker.clock)
    crowd = [asyncio.create_task(shared.get(maker)) for _ in range(50)]
    await asyncio.sleep(0)
    maker.may.set()
    assert await asyncio.gather(*crowd) == [1] * 50
    maker.clock.now += 0.99
    assert await shared.get(maker) == 1
    maker.clock.now += 0.01
    assert await shared.get(maker) == 2


async def test_what_is_long_in_making_is_kept_for_longer(maker: Maker):
    shared = Shared[int](keep_s=1.0, clock=maker.clock)
    maker.may.set()
    maker.takes_s = 0.5
    began = maker.clock.now
    assert await shared.get(maker) == 1
    maker.clock.now = began + 9.9
    assert await shared.get(maker) == 1
    maker.clock.now = began + 10.0
    assert await shared.get(maker) == 2


async def test_after_a_stall_it_is_soon_looked_at_again(maker: Maker):
    shared = Shared[int](keep_s=1.0, clock=maker.clock)
    maker.may.set()
    maker.takes_s = 30.0
    began = maker.clock.now
    assert await shared.get(maker) == 1
    maker.clock.now = began + 39.9
    assert await shared.get(maker) == 1
    maker.clock.now = began + 40.0
    assert await shared.get(maker) == 2


async def test_a_failure_is_told_to_those_who_waited_and_to_nobody_else(maker: Maker):
    shared = Shared[int](keep_s=1.0, clock=maker.clock)
    maker.fails = True
    crowd = [asyncio.create_task(shared.get(maker)) for _ in range(3)]
    await asyncio.sleep(0)
    maker.may.set()
    told = await asyncio.gather(*crowd, return_exceptions=True)
    assert [str(each) for each in told] == ["not this time"] * 3
    maker.fails = False
    assert await shared.get(maker) == 2


async def test_whoever_gives_up_does_not_take_the_answer_from_the_others(maker: Maker):
    shared = Shared[int](keep_s=1.0, clock=maker.clock)
    first, second = (asyncio.create_task(shared.get(maker)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    maker.may.set()
    assert await second == 1
    assert first.cancelled()
