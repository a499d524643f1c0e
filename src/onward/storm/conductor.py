"""Runs a storm from the first command to the last finding."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import onward
from onward import commands
from onward.errors import InvalidInput, InvariantBroken, ServerUnreachable
from onward.findings import Finding
from onward.scratch import new_database, scratch_servers
from onward.settings import Settings
from onward.storm import invariants, journal, sabotage
from onward.storm.invariants import Evidence
from onward.storm.plan import SENDERS, draw, source_of
from onward.storm.sender import Job
from onward.wiring import Onward

_VICTIM: Final = len(SENDERS) - 1
_KILL_AT: Final = 0.4  # of the victim's share; whatever happens, it gets no further than
_KILL_BEFORE: Final = 0.6
_CREATE_AT_ONCE: Final = 2_000
_LOOK_S: Final = 0.01
_SWEEP_S: Final = 0.1
_PATIENCE_S: Final = 60.0

_OTHERS: Final = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend'
   AND pid <> pg_backend_pid()
"""
_TAKEN: Final = "SELECT count(*) FROM timeline WHERE source LIKE $1"
_STATUSES: Final = "SELECT status, count(*) FROM commands GROUP BY status"


@dataclass(frozen=True, slots=True)
class Storm:
    """The figures of a storm."""

    commands: int
    seed: int
    connections: int
    data_dir: Path | None = None  # kept; without one, everything is thrown away in the end
    plant: str | None = None  # a promise to be broken on purpose


@dataclass(frozen=True, slots=True)
class Kill:
    """What was killed, and what it left behind."""

    sender: str
    pid: int
    share: int
    confirmed: int  # answers that it had written down
    unheard: int  # events that were taken, but it did not live to hear of it


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a storm."""

    storm: Storm
    said: int
    seconds: float
    connections: int  # that were seen open at once
    database: str
    verdicts: Mapping[str, int]
    statuses: Mapping[str, int]
    timed_out: int
    kill: Kill
    findings: list[Finding]

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return all(finding.holds for finding in self.findings)


class View(Protocol):
    """Where a person can follow it."""

    def say(self, line: str) -> None:
        """Tell that something happened."""

    def progress(self, confirmed: Mapping[str, tuple[int, int]]) -> None:
        """Show how many answers each sender has, out of how many."""


@dataclass(slots=True)
class _Sweeps:
    """What the sweeps for deadlines did and saw."""

    timed_out: int = 0
    looks: int = 0
    unwatched: int = 0
    connections: int = 0


def run(storm: Storm, view: View) -> Report:
    """Run it; blocks until everything has ended, and leaves no process behind."""
    if storm.plant not in {None, *sabotage.PLANTS}:
        raise InvalidInput("plant", f"{storm.plant!r} is not one of {', '.join(sabotage.PLANTS)}")
    view.say("starting PostgreSQL, with every commit on disk")
    with scratch_servers("storm", storm.data_dir) as servers, TemporaryDirectory() as folder:
        return asyncio.run(_run(storm, view, servers.database_url, Path(folder)))


async def _run(storm: Storm, view: View, server_url: str, folder: Path) -> Report:
    url = await new_database(server_url, f"storm_{os.getpid()}")
    # A pool of one: every other connection to this database is a sender's.
    async with onward.open(Settings(database_url=url, pool_size=1)) as opened:
        return await _Conductor(storm, view, opened, folder).run()


class _Conductor:
    def __init__(self, storm: Storm, view: View, opened: Onward, folder: Path) -> None:
        self._storm = storm
        self._view = view
        self._opened = opened
        self._folder = folder
        self._plan = draw(commands=storm.commands, seed=storm.seed, connections=storm.connections)
        self._shares = [len(self._plan.share(sender)) for sender in range(len(SENDERS))]
        self._journals = [folder / name for name in SENDERS]
        self._sweeps = _Sweeps()
        self._next_sweep = 0.0

    async def run(self) -> Report:
        """Run the storm on an empty database."""
        async with AsyncExitStack() as stack:
            senders = [await self._start(stack, sender) for sender in range(len(SENDERS))]
            await self._create()
            for sender in senders:
                await sender.ready()
            await self._sweep()
            self._view.say(f"letting {len(self._plan.sayings):,} events loose")
            for sender in senders:
                sender.go()
            start = time.monotonic()
            confirmed = await self._kill(senders[_VICTIM])
            senders.append(await self._start(stack, _VICTIM, life=2))
            await senders[-1].ready()
            senders[-1].go()
            running = [sender for sender in senders if sender is not senders[_VICTIM]]
            await self._watch(lambda: all(sender.has_ended() for sender in running))
            seconds = time.monotonic() - start
        self._view.say("waiting for the last deadlines")
        await self._calm()
        if self._storm.plant:
            async with self._opened.commands.pool.acquire() as connection:
                await sabotage.plant(connection, self._storm.plant)
        self._view.say("asking the database whether every promise was kept")
        return await self._report(senders[_VICTIM], confirmed, seconds)

    async def _start(self, stack: AsyncExitStack, sender: int, *, life: int = 1) -> _Sender:
        doomed = sender == _VICTIM and life == 1
        job = Job(
            database_url=self._opened.database_url,
            commands=self._storm.commands,
            seed=self._storm.seed,
            connections=self._storm.connections,
            sender=sender,
            life=life,
            journal=str(self._journals[sender]),
            limit=int(self._shares[sender] * _KILL_BEFORE) if doomed else None,
        )
        log = self._folder / f"{SENDERS[sender]}.{life}.log"
        return await stack.enter_async_context(_started(job, log))

    async def _create(self) -> None:
        """Make the commands, each by a call of its own; they share their commits."""
        self._view.say(f"making {len(self._plan.commands):,} commands")
        for start in range(0, len(self._plan.commands), _CREATE_AT_ONCE):
            part = self._plan.commands[start : start + _CREATE_AT_ONCE]
            await asyncio.gather(
                *(
                    commands.create_command(cmd_id, type="storm", timeout_s=story.timeout_s)
                    for cmd_id, story in part
                )
            )

    async def _kill(self, victim: _Sender) -> int:
        """Kill a sender in the middle, and return how many answers it had."""
        path, share = self._journals[_VICTIM], self._shares[_VICTIM]
        enough = int(share * _KILL_AT)
        await self._watch(lambda: victim.has_ended() or journal.count(path) >= enough)
        victim.process.kill()
        await victim.process.wait()
        confirmed = journal.count(path)
        self._view.say(
            f"killed sender {SENDERS[_VICTIM]} (pid {victim.process.pid}, SIGKILL) after "
            f"{confirmed:,} of its {share:,} answers; starting it again"
        )
        return confirmed

    async def _calm(self) -> None:
        """Wait until everything has ended, the statements of the killed sender too."""
        pool = self._opened.commands.pool
        open_commands = "SELECT count(*) FROM commands WHERE status <> ALL ($1::text[])"
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            await self._sweep()
            if not await pool.fetchval(open_commands, invariants.TERMINAL) + await self._others():
                return
            await asyncio.sleep(_LOOK_S)

    async def _watch(self, over: Callable[[], bool]) -> None:
        """Show how it goes and time out what is due, until it is over."""
        answers, patience = -1, 0.0
        while not over():
            self._show()
            count = sum(map(journal.count, self._journals))
            if count != answers:
                answers, patience = count, time.monotonic() + _PATIENCE_S
            elif time.monotonic() > patience:
                raise InvariantBroken(f"Nobody has answered the senders for {_PATIENCE_S:.0f} s.")
            if time.monotonic() >= self._next_sweep:
                await self._sweep()
                self._next_sweep = time.monotonic() + _SWEEP_S
            await asyncio.sleep(_LOOK_S)
        self._show()

    async def _sweep(self) -> None:
        self._sweeps.timed_out += len(await commands.expire_due())
        pool = self._opened.commands.pool
        self._sweeps.unwatched += await pool.fetchval(invariants.UNWATCHED, invariants.TERMINAL)
        self._sweeps.looks += 1
        self._sweeps.connections = max(self._sweeps.connections, await self._others())

    async def _others(self) -> int:
        count: int = await self._opened.commands.pool.fetchval(_OTHERS)
        return count

    def _show(self) -> None:
        self._view.progress(
            {
                name: (journal.count(path), share)
                for name, path, share in zip(SENDERS, self._journals, self._shares, strict=True)
            }
        )

    async def _report(self, victim: _Sender, confirmed: int, seconds: float) -> Report:
        heard = {
            source_of(sender, found.life, found.number): found.verdict
            for sender, path in enumerate(self._journals)
            for found in journal.read(path)
        }
        first_life = source_of(_VICTIM, 1, 0).removesuffix("0")
        evidence = Evidence(
            plan=self._plan,
            confirmed=heard,
            killed=first_life,
            timed_out=self._sweeps.timed_out,
            looks=self._sweeps.looks,
            unwatched=self._sweeps.unwatched,
        )
        async with self._opened.commands.pool.acquire() as connection:
            taken = await connection.fetchval(_TAKEN, f"{first_life}%")
            findings = await invariants.check(connection, evidence)
            statuses = await connection.fetch(_STATUSES)
            return Report(
                storm=self._storm,
                said=len(heard),
                seconds=seconds,
                connections=self._sweeps.connections,
                database=await connection.fetchval("SELECT current_database()"),
                verdicts=dict(Counter(heard.values())),
                statuses={row["status"]: row["count"] for row in statuses},
                timed_out=self._sweeps.timed_out,
                kill=Kill(
                    sender=SENDERS[_VICTIM],
                    pid=victim.process.pid,
                    share=self._shares[_VICTIM],
                    confirmed=confirmed,
                    unheard=taken - confirmed,
                ),
                findings=findings,
            )


@dataclass(frozen=True, slots=True)
class _Sender:
    """A sender's process."""

    process: Process
    log: Path

    async def ready(self) -> None:
        """Wait until its connections are open."""
        assert self.process.stdout is not None  # noqa: S101 - for mypy
        if not await self.process.stdout.readline():
            await self.process.wait()
            self.has_ended()

    def go(self) -> None:
        """Let it loose."""
        assert self.process.stdin is not None  # noqa: S101 - for mypy
        self.process.stdin.write(b"go\n")

    def has_ended(self) -> bool:
        """Whether it has said everything; it must not end in any other way."""
        if self.process.returncode:
            *_, reason = ["it said nothing", *self.log.read_text(encoding="utf-8").splitlines()]
            kind = ServerUnreachable if reason.startswith("ServerUnreachable") else InvariantBroken
            raise kind(f"A sender of the storm gave up: {reason}")
        return self.process.returncode == 0


@asynccontextmanager
async def _started(job: Job, log: Path) -> AsyncIterator[_Sender]:
    """Start a sender; it is gone when the block is left, whatever happened."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "onward.storm.sender",
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            # Ctrl-C is for the conductor, who then ends its senders.
            start_new_session=True,
        )
    try:
        assert process.stdin is not None  # noqa: S101 - for mypy
        process.stdin.write(job.to_line())
        yield _Sender(process, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
