"""The fleet from the first submission to the last report, beside what others do with no-op jobs.

Ours is one process and does all of its work; the time counts from before the first job is submitted
until after the last execution is seen settled. The others are timed while they consume, and no more
(`bench/peers`). So what is ours in the ratio is the whole, and what is theirs is the best part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple, Protocol, cast

import uvloop

from onward.bench.peers.consumers import Setup
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.work import Work, check, fleet, submit, until_settled, working
from onward.channels.simulated import (
    Network,
    SimulatedChannel,
    SimulatedFleet,
    check_journal,
)
from onward.embedded import Servers
from onward.errors import InvariantBroken
from onward.scratch import scratch_servers

_WORK: Final = Work(jobs=10, hosts=2_000)
_MISSING: Final = 'not run: pip install "onward[bench]"'


class _Peer(Protocol):
    """What each module of `bench/peers` offers."""

    SETUPS: tuple[Setup, ...]

    async def rate(self, servers: Servers, jobs: int, setup: Setup) -> float: ...


class Rival(NamedTuple):
    """A peer, how many jobs are enough to time it, and what was promised."""

    name: str
    jobs: int
    at_least: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    work: Work = _WORK
    rounds: int = 4
    setups: int = 100  # of a peer, that are tried at most
    rivals: tuple[Rival, ...] = (
        Rival("procrastinate", jobs=2_000, at_least=20),
        Rival("celery", jobs=4_000, at_least=10),
        Rival("pgqueuer", jobs=20_000, at_least=1),
    )


@dataclass(slots=True)
class _Contender:
    """A peer that is there, and its rates, by the way in which it was started."""

    rival: Rival
    peer: _Peer
    rates: dict[Setup, float] = field(default_factory=dict)

    @property
    def fastest(self) -> Setup:
        """The way of starting it that has been fastest so far."""
        return max(self.rates, key=self.rates.__getitem__)

    async def run(self, servers: Servers, sizes: Sizes, progress: Progress) -> None:
        """Take part in a round: at first in every way of starting it, then in the fastest."""
        for setup in [self.fastest] if self.rates else self.peer.SETUPS[: sizes.setups]:
            rate = await self.peer.rate(servers, self.rival.jobs, setup)
            self.rates[setup] = max(rate, self.rates.get(setup, 0.0))
            progress(f"{self.rival.name}, {setup.shown}: {rate:,.0f} jobs/s")


def end_to_end(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure executions a second, beside no-op jobs a second of each peer."""
    sizes = sizes or Sizes()
    contenders = {
        rival: _Contender(rival, peer) for rival in sizes.rivals if (peer := _peer(rival.name))
    }
    progress("starting PostgreSQL, durable, and Valkey")
    with scratch_servers("bench", valkey=True) as servers:
        ours = uvloop.run(_measure(servers, list(contenders.values()), sizes, progress))
    for rival in sizes.rivals:
        yield _result(rival, ours, contenders.get(rival))


def _peer(name: str) -> _Peer | None:
    """Return a peer, if its package is installed under this name."""
    if find_spec(name) is None:
        return None
    return cast("_Peer", import_module(f"onward.bench.peers.{name}"))


def _result(rival: Rival, ours: float, contender: _Contender | None) -> Result:
    name, target = f"fleet, end to end, beside {rival.name}", f">= {rival.at_least:g} x"
    if contender is None:
        return Result(name, ours, "executions/s", _MISSING, None, target, None)
    setup = contender.fastest
    theirs = contender.rates[setup]
    against = f"{theirs:,.0f} jobs/s, {setup.shown}"
    ratio = ours / theirs
    return Result(name, ours, "executions/s", against, ratio, target, ratio >= rival.at_least)


async def _measure(
    servers: Servers, contenders: Sequence[_Contender], sizes: Sizes, progress: Progress
) -> float:
    """Let all take turns, and return our own best rate."""
    ours = 0.0
    for round_ in range(1, sizes.rounds + 1):
        rate = await _ours(servers.database_url, sizes.work)
        ours = max(ours, rate)
        progress(f"round {round_} of {sizes.rounds}: onward {rate:,.0f} executions/s")
        for contender in contenders:
            await contender.run(servers, sizes, progress)
    return ours


async def _ours(server_url: str, work: Work) -> float:
    hosts = SimulatedFleet(range(1, work.hosts + 1), command_types=None)
    async with fleet(server_url, "bench_fleet", work) as opened:
        async with working(opened, SimulatedChannel(hosts, Network.calm())):
            start = time.perf_counter()
            await submit(opened.commands.pool, work)
            await until_settled(opened.database_url, work)
            seconds = time.perf_counter() - start
        async with opened.commands.pool.acquire() as connection:
            await check(connection, work)
    _check_hosts(hosts, work)
    return work.executions / seconds


def _check_hosts(hosts: SimulatedFleet, work: Work) -> None:
    """Ask the hosts themselves: each run began and ended once, and none beside another."""
    told = hosts.journal.effects
    if problems := check_journal(hosts.journal.lines()):
        raise InvariantBroken(f"the hosts saw {problems[0]}, and {len(problems) - 1:,} more")
    if len(told) != 2 * work.executions:
        raise InvariantBroken(f"the hosts tell of {len(told):,} starts and ends")
