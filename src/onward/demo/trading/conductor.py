"""Runs the trading from the first deposit to the last finding."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import redis.asyncio

from onward.demo.programs import Program
from onward.demo.trading import evidence, invariants, journal, sabotage, script
from onward.demo.trading.crowd import KEYS, Crowds
from onward.demo.trading.evidence import Evidence
from onward.demo.trading.journal import Journal
from onward.demo.trading.script import Demo
from onward.demo.trading.stage import Stage, staged
from onward.demo.trading.state import State, View
from onward.demo.trading.trader import Floor
from onward.demo.trading.watching import Watch, watching
from onward.embedded import Servers
from onward.errors import InvalidInput, OnwardError
from onward.findings import Finding
from onward.scratch import scratch_folder, scratch_servers
from onward.store import database

_LOOK_S: Final = 0.25
_SETTLE_S: Final = 30.0  # for the matchers to look at what came last
_LAST_WORDS_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    demo: Demo
    seconds: float  # from the first order to the last answer
    emptied: int  # keys that Valkey had, and lost
    killed: int  # the process
    last: State  # as it was in the end
    evidence: Evidence
    findings: list[Finding]

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return all(finding.holds for finding in self.findings)


def run(demo: Demo, view: View) -> Report:
    """Run it; blocks until everybody has gone home, and leaves no process behind."""
    if demo.plant not in {None, *sabotage.PLANTS}:
        raise InvalidInput("plant", f"{demo.plant!r} is not one of {', '.join(sabotage.PLANTS)}")
    view.say("starting PostgreSQL, with every commit on disk, and Valkey")
    with (
        scratch_folder("trade", demo.data_dir) as folder,
        scratch_servers("trade", folder, valkey=True) as servers,
    ):
        return asyncio.run(_Conductor(demo, view, servers, folder).run())


class _Conductor:
    def __init__(self, demo: Demo, view: View, servers: Servers, folder: Path) -> None:
        self._demo = demo
        self._view = view
        self._servers = servers
        self._folder = folder
        self._journal = Journal()
        self._stage: Stage
        self._watch: Watch
        self._emptied = 0
        self._killed: Program

    async def run(self) -> Report:
        """Play it on an empty database, and judge what came of it."""
        async with staged(self._folder) as stage:
            self._stage = stage
            try:
                seconds, last = await self._play()
                await stage.dismiss()
            except (OnwardError, BaseExceptionGroup) as error:
                # Somebody who has given up says best why the others could not go on.
                await asyncio.sleep(_LAST_WORDS_S)
                stage.check()
                raise _first(error) from error
        found = await self._judged()
        killed = self._killed.pid
        findings = invariants.check(found)
        return Report(self._demo, seconds, self._emptied, killed, last, found, findings)

    async def _play(self) -> tuple[float, State]:
        crowds, key = await self._arrive()
        url = self._servers.database_url
        async with watching(
            url,
            self._demo,
            self._stage.doors,
            key=key,
            journal=self._journal,
            view=self._view,
        ) as self._watch:
            self._view.say(f"they trade for {self._demo.seconds} s")
            began_at = time.monotonic()
            floor = crowds.floor()
            async with asyncio.TaskGroup() as group:
                trading = group.create_task(crowds.trade(floor))
                group.create_task(self._disturb(floor))
                await self._follow(trading)
            seconds = time.monotonic() - began_at
            self._view.say("everybody has gone home; letting the matchers finish")
            return seconds, await self._settled()

    async def _arrive(self) -> tuple[Crowds, str]:
        """Open the services, and let everybody in as soon as the first of them answers."""
        self._view.say(f"starting {script.SERVICES} services, each with matchers of its own")
        stage = self._stage
        await stage.open()
        key = await stage.key()
        crowds = Crowds(self._demo, stage.doors, self._journal)
        async with asyncio.TaskGroup() as group:
            group.create_task(crowds.arrive(key))
            for _ in range(1, script.SERVICES):
                group.create_task(stage.open())
        self._view.say(f"{len(script.PEOPLE)} people are there with {KEYS} keys, money and items")
        return crowds, key

    async def _disturb(self, floor: Floor) -> None:
        """Take away in the middle what nobody should need."""
        await _until(floor, script.EMPTY_AT)
        self._emptied = await _emptied(str(self._servers.redis_url))
        self._view.say(f"emptied Valkey: {self._emptied} locks and tokens are forgotten")
        await _until(floor, script.KILL_AT)
        self._killed = await self._stage.kill()
        self._view.say(
            f"killed {self._killed.name} (pid {self._killed.pid}, SIGKILL); starting another"
        )
        await self._stage.reopen()
        self._view.say("another service answers in its place")

    async def _follow(self, trading: asyncio.Task[None]) -> None:
        while not trading.done():
            await self._watch.look()
            self._stage.check()
            await asyncio.wait({trading}, timeout=_LOOK_S)

    async def _settled(self) -> State:
        """Wait until every order was looked at, and return how it is then."""
        deadline = time.monotonic() + _SETTLE_S
        while await self._watch.waiting():
            if time.monotonic() > deadline:
                break  # A finding will name them.
            await asyncio.sleep(_LOOK_S)
        return await self._watch.look()

    async def _judged(self) -> Evidence:
        """Gather the evidence, after a promise has been broken if one is to be."""
        self._view.say("comparing the tables with what everybody was told")
        told = self._journal.told
        await asyncio.to_thread(journal.save, self._folder, told)
        gather = partial(evidence.gather, looks=self._watch.looks, missed=self._watch.missed)
        async with database.pooled(self._servers.database_url, size=1) as pool:
            found = await gather(pool, told)
            if self._demo.plant is None:
                return found
            forged = await sabotage.plant(pool, found, self._demo.plant)
            return await gather(pool, [*told, *forged])


def _first(error: BaseException) -> BaseException:
    """Return the one failure that a person is told: several may have met it at once."""
    while isinstance(error, BaseExceptionGroup):
        ours, _ = error.split(OnwardError)
        error = (ours or error).exceptions[0]
    return error


async def _until(floor: Floor, share: float) -> None:
    at = floor.began_at + share * (floor.ends_at - floor.began_at)
    await asyncio.sleep(max(0.0, at - time.monotonic()))


async def _emptied(url: str) -> int:
    """Empty Valkey, and return how much was in it."""
    client = redis.asyncio.from_url(url)
    try:
        count = int(await client.dbsize())
        await client.flushall()
    finally:
        await client.aclose()
    return count
