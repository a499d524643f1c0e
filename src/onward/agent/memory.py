"""What an agent has in mind: the attempts that it knows, and what a new message means for them.

1. A repeat of an attempt is answered from memory, or joins the run, and never runs again. A refusal
   is remembered as well. The same attempt with another content is refused.
2. An epoch lower than the highest that the host has seen is refused.
3. One exclusive command runs at a time, and nothing beside it. A newer attempt at the command that
   runs is no rival: it takes the place of the old one.
4. A newer attempt at what has succeeded is answered from memory. What failed, was stopped or was
   cut off runs again: that is what the new attempt is for.
5. What is blocked is refused, also while the server cannot be asked.

Where an attempt stands is kept by a registry (`onward.core.registry`), under its own name: the
command's and the epoch's. Nothing here touches a disk or a process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from onward.agent.output import Output
from onward.agent.running import Running
from onward.channels.agent.messages import Block, Refused, Result, Run, Stop
from onward.core.registry import Command, CommandRegistry
from onward.core.verdicts import TransitionResult

# How long a program may take is its keeper's business, and how long it is remembered the journal's.
_FOR_EVER_S: Final = 1e12


class Attempt:
    """One attempt, as it stands now."""

    __slots__ = ("cmd", "ear", "epoch", "exclusive", "output", "over", "refusal", "result",
                 "running", "said_at", "stopping")  # fmt: skip

    def __init__(self, cmd: str, epoch: int, *, exclusive: bool) -> None:
        self.cmd = cmd
        self.epoch = epoch
        self.exclusive = exclusive
        self.refusal: Refused | None = None
        self.result: Result | None = None
        self.said_at = 0.0  # when the result was said last
        # While it is under way:
        self.over = asyncio.Event()
        self.stopping = ""  # why it is being stopped
        self.running: Running | None = None
        self.output: Output | None = None
        self.ear: object | None = None  # the connection that has heard all of its output

    @property
    def name(self) -> str:
        """What the registry, and whoever looks for its processes, know it by."""
        return attempt_name(self.cmd, self.epoch)

    @property
    def under_way(self) -> bool:
        """Whether it will come to an end that has not come yet."""
        return self.refusal is None and self.result is None

    @property
    def succeeded(self) -> bool:
        """Whether it ended, and well."""
        return self.result is not None and self.result.succeeded

    @property
    def finished(self) -> bool:
        """Whether it came to an end of its own: only such an end has an exit code."""
        return self.result is not None and self.result.exit_code is not None


class Known(NamedTuple):
    """The attempt has come before."""

    attempt: Attempt


class Done(NamedTuple):
    """The command has succeeded before; this is what it did."""

    result: Result


Judgement = Known | Done | Refused | None  # none: it is to be carried out


class Memory:
    """The attempts by command and epoch; the newest at each command; what is not to run."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._registry = CommandRegistry(
            clock=clock,
            accept_timeout_s=_FOR_EVER_S,
            exec_timeout_s=_FOR_EVER_S,
            ttl_s=_FOR_EVER_S,
        )
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._newest: dict[str, Attempt] = {}
        self._open: dict[str, Attempt] = {}  # what has not ended
        self._blocks: dict[str, Block] = {}
        self.highest = 0

    def __len__(self) -> int:
        return len(self._attempts)

    def judge(self, run: Run, digest: str, *, now: float) -> Judgement:
        """What is to be done about an attempt that has come; from then on it has been seen."""
        name = attempt_name(run.cmd, run.epoch)
        received = self._registry.on_received(Command(name, run.type, {"digest": digest}))
        known = self._attempts.get((run.cmd, run.epoch))
        if known is not None and (known.refusal or received.result is TransitionResult.DUPLICATE):
            return Known(known)
        if received.result is not TransitionResult.OK:
            return _no(run, "the same attempt has come before, with another content")
        try:
            return self._judge_new(run, now)
        finally:
            self.see(run.epoch)

    def stop(self, stop: Stop) -> tuple[list[Attempt], Refused | None]:
        """The attempts that are to be stopped; and a refusal for what has not come yet."""
        self.see(stop.epoch)
        newest = self._newest.get(stop.cmd)
        running = [each for each in self.under_way() if _meant(each, stop)]
        if newest is None or (stop.epoch > newest.epoch and not newest.succeeded):
            return running, Refused(*stop, busy=False, why="it was stopped before it came")
        return running, None

    def finished(self, cmd: str) -> bool:
        """Whether the newest attempt at a command came to an end of its own."""
        newest = self._newest.get(cmd)
        return newest is not None and newest.finished

    def add(self, attempt: Attempt) -> None:
        """Remember an attempt."""
        self._attempts[attempt.cmd, attempt.epoch] = attempt
        if attempt.under_way:
            self._open[attempt.name] = attempt
        newest = self._newest.get(attempt.cmd)
        if newest is None or newest.epoch <= attempt.epoch:
            self._newest[attempt.cmd] = attempt
        self.see(attempt.epoch)

    def recall(self, attempt: Attempt, *, type_: str, digest: str) -> None:
        """Remember an attempt as the journal has it."""
        self._registry.on_received(Command(attempt.name, type_, {"digest": digest}))
        if attempt.refusal is None:
            self.accepted(attempt)
        self.ended(attempt)
        self.add(attempt)

    def accepted(self, attempt: Attempt) -> None:
        """Take note that an attempt is in the journal, and begins."""
        self._registry.on_accepted(attempt.name)

    def ended(self, attempt: Attempt) -> None:
        """Take note that an attempt was refused, or has ended."""
        if attempt.refusal is not None:
            self._registry.on_rejected(attempt.name)
        elif attempt.succeeded:
            self._registry.on_executed(attempt.name)
        elif attempt.result is not None:
            self._registry.on_failed(attempt.name)
        self._open.pop(attempt.name, None)
        attempt.over.set()

    def rival(self, run: Run) -> Attempt | None:
        """An older attempt at the same command that is still under way."""
        return next((each for each in self.under_way() if _older(each, run)), None)

    def under_way(self) -> list[Attempt]:
        """The attempts that have not ended."""
        return [*self._open.values()]

    def find(self, cmd: str, epoch: int) -> Attempt | None:
        """An attempt, if it is remembered."""
        return self._attempts.get((cmd, epoch))

    def forget(self, gone: Iterable[tuple[str, int]]) -> None:
        """Forget what the journal has forgotten."""
        for cmd, epoch in gone:
            attempt = self._attempts.pop((cmd, epoch), None)
            if attempt is not None and self._newest.get(cmd) is attempt:
                del self._newest[cmd]

    def see(self, epoch: int) -> None:
        """Take note of an epoch."""
        self.highest = max(self.highest, epoch)

    def block(self, rules: Iterable[Block]) -> None:
        """Take note of all that is not to run."""
        self._blocks = {rule.type: rule for rule in rules}

    def _judge_new(self, run: Run, now: float) -> Done | Refused | None:
        newest = self._newest.get(run.cmd)
        if newest is not None and run.epoch > newest.epoch and newest.succeeded:
            assert newest.result is not None  # noqa: S101 - it has succeeded
            return Done(newest.result)
        if run.epoch < self.highest:
            return _not_now(run, f"epoch {run.epoch} is over: the host has seen {self.highest}")
        for other in self.under_way():
            if other.cmd != run.cmd and (run.exclusive or other.exclusive):
                return _not_now(run, f"the host is busy with {other.cmd}")
        rule = self._blocks.get(run.type)
        if rule is not None and (rule.expires_at is None or rule.expires_at > now):
            by = rule.owner or "somebody"
            return _no(run, f"blocked for {run.type} by {by}: {rule.reason}")
        if run.program is None:
            return _no(run, f"the host knows no command {run.type!a:.80}, and it has no program")
        return None


def attempt_name(cmd: str, epoch: int) -> str:
    """An attempt in one word."""
    return f"{cmd}/{epoch}"


def digest_of(run: Run) -> str | None:
    """What tells the content of an attempt from another one; of secrets it knows nothing.

    None for names that hold half a character, and could not be written down.
    """
    program = run.program and run.program._replace(env=dict(run.program.env), secrets={})
    content = json.dumps([run.type, dict(run.params), program, run.exclusive], sort_keys=True)
    try:
        f"{run.cmd} {run.type}".encode()
    except UnicodeEncodeError:
        return None
    return hashlib.sha256(content.encode()).hexdigest()


def _meant(attempt: Attempt, stop: Stop) -> bool:
    return attempt.cmd == stop.cmd and attempt.epoch <= stop.epoch


def _older(attempt: Attempt, run: Run) -> bool:
    return attempt.cmd == run.cmd and attempt.epoch < run.epoch


def _no(run: Run, why: str) -> Refused:
    return Refused(run.cmd, run.epoch, busy=False, why=why)


def _not_now(run: Run, why: str) -> Refused:
    return Refused(run.cmd, run.epoch, busy=True, why=why)
