"""Carries an attempt out, in the order that makes a kill at any point safe.

    received → judged → prepared (a process waits) → JOURNAL: it begins → accepted is said →
    the program is let go → … → it has ended → JOURNAL: how → the result is said → receipt → JOURNAL

Killed before the first line of the journal, nothing has run. Killed after it, the program may have
run: the next start kills what is left of it and reports that nobody knows. Killed after the second
line, the result is said again, at every connection and every half minute, until it is receipted.

`at` is called with the name of each point of that way; tests end the process there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from onward.agent import running
from onward.agent.journal import Journal, Past
from onward.agent.memory import Attempt, Memory
from onward.agent.output import Output, Piece
from onward.agent.running import Ended, Limits, Place, Process, Running
from onward.agent.voice import Voice
from onward.channels.agent.messages import Accepted, Refused, Result, Run
from onward.channels.base import Stream
from onward.errors import HostRefused

POINTS: Final = (
    *("received", "prepared", "journaled", "accepted", "executing", "ended", "recorded"),
    *("reported", "receipted", "recovering", "recovered"),
)
At = Callable[[str], None]

_GATHER_S: Final = 0.03  # for how long output is gathered before it is passed on
_LAST_WORDS_S: Final = 2.0  # for output that somebody holds who has outlived the program
_KILLED_S: Final = 30.0
_CUT_OFF: Final = "the agent was killed, or the host went down; it may have done all of it"
_NO_KEEPER: Final = "what kept the program was killed; it may have done all of it"

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.agent")


class Carrier:
    """Carries attempts out; what it may not or cannot begin, it returns as a refusal."""

    def __init__(
        self,
        journal: Journal,
        memory: Memory,
        voice: Voice,
        *,
        limits: Limits,
        place: Place,
        at: At,
        clock: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._memory = memory
        self._voice = voice
        self._limits = limits
        self._place = place
        self._at = at
        self._clock = clock
        self._boot = _boot()

    async def carry_out(
        self, attempt: Attempt, run: Run, *, digest: str, displaced: Attempt | None
    ) -> Refused | None:
        """Run an attempt to its end and say how it was, in the place of an older one if any."""
        if displaced is not None:
            stop(displaced, f"displaced by epoch {run.epoch}")
            await displaced.over.wait()
        prepared = await self._prepare(attempt, run)
        if isinstance(prepared, Refused):
            return prepared
        self._at("prepared")
        refusal = self._write_down(attempt, run, digest=digest, prepared=prepared)
        if refusal is not None:
            await prepared.abandon()
            return refusal
        self._at("journaled")
        await self._let_go(attempt, prepared)
        return None

    def end_cut_off(self, attempt: Attempt, past: Past) -> None:
        """End what an agent had begun that was killed, and report that nobody knows."""
        self._at("recovering")
        _kill(attempt.name, past.processes if past.boot == self._boot else ())
        attempt.result = Result(past.cmd, past.epoch, succeeded=False, error=_CUT_OFF, unknown=True)
        self._journal.end(attempt.result, [], ended_at=self._clock())
        self._at("recovered")
        log.warning("cut_off", attempt=attempt.name)

    async def _prepare(self, attempt: Attempt, run: Run) -> Running | Refused:
        assert run.program is not None  # noqa: S101 - what has none was refused
        try:
            return await running.prepare(
                run.program,
                attempt=attempt.name,
                timeout_s=run.timeout_s,
                limits=self._limits,
                place=self._place,
            )
        except HostRefused as error:
            return Refused(run.cmd, run.epoch, busy=False, why=str(error))
        except (OSError, TimeoutError) as error:
            return Refused(run.cmd, run.epoch, busy=True, why=f"it cannot be started now: {error}")

    def _write_down(
        self, attempt: Attempt, run: Run, *, digest: str, prepared: Running
    ) -> Refused | None:
        if attempt.stopping:
            return Refused(run.cmd, run.epoch, busy=False, why="it was stopped before it began")
        try:
            self._journal.begin(
                run.cmd,
                run.epoch,
                digest=digest,
                type_=run.type,
                boot=self._boot,
                processes=(prepared.keeper, prepared.program),
            )
        except sqlite3.Error as error:
            return Refused(run.cmd, run.epoch, busy=True, why=unwritten(error))
        return None

    async def _let_go(self, attempt: Attempt, program: Running) -> None:
        self._memory.accepted(attempt)
        attempt.output = Output(self._limits.output_chars)
        attempt.running = program
        self._voice.say(Accepted(attempt.cmd, attempt.epoch))
        self._at("accepted")
        log.info("started", attempt=attempt.name)
        program.go()
        self._at("executing")
        ended = await self._hear(attempt, program)
        self._at("ended")
        self._end(attempt, _result(attempt, ended))

    async def _hear(self, attempt: Attempt, program: Running) -> Ended | None:
        heard = asyncio.create_task(
            program.hear(lambda stream, piece: _heard(attempt, stream, piece))
        )
        said = asyncio.create_task(self._pass_on(attempt))
        try:
            ended = await program.ended()
            if ended is None:
                _kill(attempt.name, (program.keeper, program.program))
            await asyncio.wait({heard}, timeout=_LAST_WORDS_S)
            return ended
        finally:
            heard.cancel()
            said.cancel()
            await program.close()

    async def _pass_on(self, attempt: Attempt) -> None:
        """Say the output as it comes, as long as there is somebody who has heard all of it."""
        while True:
            await asyncio.sleep(_GATHER_S)
            ear = self._voice.pass_on(attempt)
            if ear is not None:
                await ear.room()

    def _end(self, attempt: Attempt, result: Result) -> None:
        assert attempt.output is not None  # noqa: S101 - it has run
        attempt.output.end()
        self._record(result, attempt.output.kept)
        self._at("recorded")
        attempt.result = result
        log.info("ended", attempt=attempt.name, code=result.exit_code, error=result.error)
        self._voice.say_rest(attempt, result)
        attempt.running = attempt.output = None
        self._memory.ended(attempt)
        self._at("reported")

    def _record(self, result: Result, output: Sequence[Piece]) -> None:
        try:
            self._journal.end(result, output, ended_at=self._clock())
        except sqlite3.Error as error:
            # It is said all the same. Should the agent be killed after this, nobody will know how
            # it ended, and the next start says so.
            log.error("result_not_kept", problem=str(error))  # noqa: TRY400 - its place says nothing


def stop(attempt: Attempt, why: str) -> None:
    """Have an attempt end that has not ended."""
    attempt.stopping = attempt.stopping or why
    if attempt.running is not None:
        attempt.running.stop()


def unwritten(error: sqlite3.Error) -> str:
    """Why nothing can be taken on while the journal cannot be written."""
    return f"the journal of the host cannot be written: {error}"


async def _heard(attempt: Attempt, stream: Stream, piece: bytes) -> None:
    assert attempt.output is not None  # noqa: S101 - it runs
    attempt.output.add(stream, piece)
    await attempt.output.room()


def _result(attempt: Attempt, ended: Ended | None) -> Result:
    if ended is None:
        return Result(attempt.cmd, attempt.epoch, succeeded=False, error=_NO_KEEPER, unknown=True)
    error = ended.error
    if ended.exit_code is None:
        error = attempt.stopping or error
    return Result(
        attempt.cmd,
        attempt.epoch,
        succeeded=ended.exit_code == 0 and error is None,
        exit_code=ended.exit_code,
        error=error,
    )


def _kill(attempt: str, processes: Sequence[Process]) -> None:
    """Kill what is left of an attempt, and see to it that nothing is."""
    deadline = time.monotonic() + _KILLED_S
    while left := running.left_over(attempt, *processes):
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            log.error("left_over", attempt=attempt, pids=left)
            return
        time.sleep(0.01)


def _boot() -> str:
    """What tells this run of the machine from others: process ids begin anew with each."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""
