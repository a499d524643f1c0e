"""What happens on the host when a message comes: judged by the memory, answered or carried out."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Final

import structlog

from onward.agent.carrying import At, Carrier, stop, unwritten
from onward.agent.journal import Journal
from onward.agent.memory import Attempt, Done, Known, Memory, digest_of
from onward.agent.running import Limits, Place
from onward.agent.voice import Ear, Voice
from onward.channels.agent.messages import (
    ERROR_MAX,
    PING,
    Accepted,
    Block,
    Blocks,
    Down,
    Ready,
    Receipt,
    Refused,
    Result,
    Run,
    Stop,
    Stopped,
)

_LOOK_S: Final = 5.0
_KEPT_S: Final = 7 * 86_400.0  # for how long a receipted result is remembered
_KEPT_MAX: Final = 10_000
_LEAVE_S: Final = 30.0

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.agent")


class Host:
    """What runs here, and what is remembered of it."""

    def __init__(
        self,
        journal: Journal,
        *,
        limits: Limits,
        place: Place,
        at: At = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._grace_s = limits.grace_s
        self._at = at
        self._clock = clock
        self._leaving = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._memory = Memory(clock=time.monotonic)
        self._memory.see(journal.highest)
        self._memory.block(journal.blocks())
        self.voice = Voice(journal, self._memory)
        self._carrier = Carrier(
            journal, self._memory, self.voice, limits=limits, place=place, at=at, clock=clock
        )

    def recover(self) -> None:
        """Take up what the journal knows; end what was under way when the agent was killed."""
        for past in self._journal.past():
            attempt = Attempt(past.cmd, past.epoch, exclusive=True)
            attempt.refusal, attempt.result = past.refusal, past.result
            if attempt.under_way:
                self._carrier.end_cut_off(attempt, past)
            self._memory.recall(attempt, type_=past.type, digest=past.digest)

    def ready(self, version: str) -> Ready:
        """How the agent introduces itself."""
        return Ready(self._memory.highest, version)

    def take(self, message: Down, ear: Ear) -> None:
        """Do what a message asks for. It never waits; the answer comes when there is one."""
        match message:
            case Run(type=kind) if kind == PING:
                ear.say(Result(message.cmd, message.epoch, succeeded=True, exit_code=0))
            case Run():
                self._at("received")
                self._take_run(message, ear)
            case Stop():
                self._begin(self._take_stop(message))
            case Receipt():
                self._take_receipt(message)
            case Blocks():
                self._take_blocks(message.rules)

    async def care(self) -> None:
        """Say again what was not receipted, and forget what is old; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.voice.say_again()
            with suppress(sqlite3.Error):
                gone = self._journal.forget(before=self._clock() - _KEPT_S, most=_KEPT_MAX)
                self._memory.forget(gone)

    async def leave(self, drain_s: float) -> None:
        """Take nothing on; wait for what runs, then stop it."""
        self._leaving = True
        await self._wait(drain_s)
        for attempt in self._memory.under_way():
            stop(attempt, "stopped because the agent is leaving")
        await self._wait(self._grace_s + _LEAVE_S)

    async def _wait(self, timeout_s: float) -> None:
        if self._tasks:
            await asyncio.wait([*self._tasks], timeout=timeout_s)

    def _take_run(self, run: Run, ear: Ear) -> None:
        if (digest := digest_of(run)) is None:
            ear.say(Refused(run.cmd, run.epoch, busy=False, why="it holds half a character"))
            return
        match self._memory.judge(run, digest, now=self._clock()):
            case Known(attempt):
                self._answer_again(attempt, ear)
            case Done(result):
                self._answer_done(result, run, digest)
            case Refused() as refusal:
                self._refuse(refusal, run, digest)
            case None if self._leaving:
                refusal = Refused(run.cmd, run.epoch, busy=True, why="the agent is leaving")
                self._refuse(refusal, run, digest)
            case None:
                attempt = Attempt(run.cmd, run.epoch, exclusive=run.exclusive)
                attempt.ear = ear
                displaced = self._memory.rival(run)
                self._memory.add(attempt)
                self._begin(self._carry_out(attempt, run, digest=digest, displaced=displaced))

    async def _carry_out(
        self, attempt: Attempt, run: Run, *, digest: str, displaced: Attempt | None
    ) -> None:
        refusal = await self._carrier.carry_out(attempt, run, digest=digest, displaced=displaced)
        if refusal is not None:
            self._refuse(refusal, run, digest)

    def _answer_again(self, attempt: Attempt, ear: Ear) -> None:
        if attempt.refusal is not None:
            ear.say(attempt.refusal)
        elif attempt.result is not None:
            self.voice.say_result(attempt.result._replace(repeated=True))
        else:
            # Whoever was told of it before may be gone.
            attempt.ear = ear
            if attempt.output is not None:
                attempt.output.rewind()
                ear.say(Accepted(attempt.cmd, attempt.epoch))

    def _answer_done(self, done: Result, run: Run, digest: str) -> None:
        attempt = Attempt(run.cmd, run.epoch, exclusive=run.exclusive)
        result = attempt.result = done._replace(epoch=run.epoch, repeated=True)
        try:
            self._journal.answer(result, digest=digest, type_=run.type, ended_at=self._clock())
        except sqlite3.Error as error:
            refusal = Refused(run.cmd, run.epoch, busy=True, why=unwritten(error))
            self._refuse(refusal, run, digest)
            return
        self._memory.recall(attempt, type_=run.type, digest=digest)
        self.voice.say_result(result)

    def _refuse(self, refusal: Refused, run: Run, digest: str) -> None:
        attempt = self._memory.find(run.cmd, run.epoch)
        if attempt is None:
            attempt = Attempt(run.cmd, run.epoch, exclusive=run.exclusive)
        refusal = refusal._replace(why=refusal.why[:ERROR_MAX])
        if attempt.under_way:
            attempt.refusal = refusal
            self._memory.recall(attempt, type_=run.type, digest=digest)
            self._keep(refusal, digest=digest, type_=run.type)
        log.info("refused", attempt=attempt.name, why=refusal.why)
        self.voice.say(refusal)

    def _keep(self, refusal: Refused, *, digest: str, type_: str) -> None:
        # Too full a disk for a no is no reason to say yes: unless the agent is restarted and the
        # disk has room again, the same attempt gets the same answer.
        with suppress(sqlite3.Error):
            self._journal.refuse(refusal, digest=digest, type_=type_, at=self._clock())

    async def _take_stop(self, asked: Stop) -> None:
        found, refusal = self._memory.stop(asked)
        if refusal is not None:
            unseen = Attempt(asked.cmd, asked.epoch, exclusive=True)
            unseen.refusal = refusal
            self._memory.add(unseen)
            self._keep(refusal, digest="", type_="?")
        for attempt in found:
            stop(attempt, "stopped on request")
        for attempt in found:
            await attempt.over.wait()
        finished = self._memory.finished(asked.cmd) if refusal is None else False
        self.voice.say(Stopped(*asked, stopped=not finished))

    def _take_receipt(self, receipt: Receipt) -> None:
        # Unwritten, the result is said once more and receipted once more.
        with suppress(sqlite3.Error):
            self._journal.receipt(receipt.cmd, receipt.epoch, at=self._clock())
        self._at("receipted")

    def _take_blocks(self, rules: Sequence[Block]) -> None:
        self._memory.block(rules)
        try:
            self._journal.keep_blocks(rules)
        except sqlite3.Error as error:
            log.warning("blocks_not_kept", problem=str(error))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug of ours: the next start reports whatever was cut off by it.
            log.critical("bug", exc_info=error)
            os.kill(os.getpid(), signal.SIGABRT)
