"""What a node does with what reaches it: runs each command at most once, and tells how it went.

It is written to be read by whoever writes firmware. What a node has to do:

1. It believes only what is signed for it, and only what was sent within `window_s` of its clock.
2. It answers a repeat of (command, epoch) from memory, and never runs it again. A refusal is
   remembered as well: what was refused will not run, however late a copy.
3. It says BUSY to an epoch lower than the highest that it has seen, and to whatever comes while it
   runs as many commands as it can. A newer attempt at the command that runs is no rival: the old
   run is stopped, and the new one takes its place.
4. A newer attempt at what has already succeeded is answered from memory, too.
5. It says ACK when it begins, and a result when it has ended. It repeats a result, with a new
   number and a new time, until the server has receipted it.
6. Its memory survives a restart (`memory`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from onward.channels.mqtt import envelope
from onward.channels.mqtt.envelope import CANCEL, CANCELLED, WORD, Command, Doubtful
from onward.channels.mqtt.memory import Attempt, Memory


class Outcome(NamedTuple):
    """How a command went: the event of its lifecycle, and what to say beside its word."""

    event: str = "done"
    # result, result_code, error, error_code
    said: Mapping[str, object] = MappingProxyType({})


Do = Callable[[Command], Awaitable[Outcome]]


class Node:
    """One node, apart from how its messages travel: `say` takes what it has to tell."""

    def __init__(
        self,
        name: str,
        key: bytes,
        *,
        do: Do,
        say: Callable[[bytes], None],
        memory: Memory | None = None,
        clock: Callable[[], float] = time.time,
        window_s: float = 60.0,
        at_once: int = 1,
    ) -> None:
        self.name = name
        self.ignored = 0  # messages that it did not believe
        self._key = key
        self._do = do
        self._say = say
        # A node without a file begins at the time, so that its numbers grow over restarts.
        first = int(clock() * 1_000_000)
        self.memory = memory if memory is not None else Memory(first_number=first)
        self._clock = clock
        self._window_s = window_s
        self._at_once = at_once
        self._runs: dict[str, asyncio.Task[None]] = {}

    def command(self, payload: bytes) -> None:
        """Take a message from the topic of commands."""
        try:
            command = envelope.open_command(payload, self.name, self._key)
        except Doubtful:
            self.ignored += 1
            return
        refusal = self._untimely(command)
        known = self.memory.attempts.get(command.cmd_id)
        if known is not None and command.epoch == known.epoch and command.cmd != CANCEL:
            self._repeat(known)
        elif command.cmd == CANCEL:
            if refusal is None:
                self._stop(command, known)
        elif known is not None and known.succeeded and command.epoch > known.epoch:
            self._tell(self.memory.answer_for(known, command.epoch))
        elif refusal := refusal or self._unwilling(command):
            self._refuse(command, known, refusal)
        else:
            self._begin(command)

    def receipt(self, payload: bytes) -> None:
        """Take a message from the topic of receipts."""
        try:
            receipt = envelope.open_receipt(payload, self.name, self._key)
        except Doubtful:
            self.ignored += 1
            return
        self.memory.receipted(receipt.cmd_id, receipt.epoch)

    def say_again(self) -> bool:
        """Repeat every result that the server may not have; false if there is none."""
        pending = self.memory.unreceipted()
        for attempt in pending:
            self._tell(attempt)
        return bool(pending)

    async def aclose(self) -> None:
        """Stop what runs, as when the power goes: nothing is said about it."""
        runs = [*self._runs.values()]
        self._runs.clear()
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    def _untimely(self, command: Command) -> Outcome | None:
        late_s = self._clock() - command.ts
        if late_s > self._window_s:
            return Outcome(
                "busy", {"error": f"The command came {late_s:.0f} s late: send another."}
            )
        if late_s < -self._window_s:
            error = f"The clock of the node is {-late_s:.0f} s behind that of the server: set it."
            return Outcome("invalid", {"error": error})
        return None

    def _unwilling(self, command: Command) -> Outcome | None:
        highest = self.memory.highest
        if command.epoch < highest:
            error = f"Epoch {command.epoch} is over: the node has seen {highest}."
            return Outcome("busy", {"error": error})
        if len(self._runs.keys() - {command.cmd_id}) >= self._at_once:
            return Outcome("busy", {"error": f"The node is busy with {next(iter(self._runs))}."})
        return None

    def _refuse(self, command: Command, known: Attempt | None, refusal: Outcome) -> None:
        word = WORD[refusal.event]
        if known is None or command.epoch > known.epoch:
            self._tell(self.memory.end(command.cmd_id, command.epoch, word, refusal.said))
        else:
            # A former attempt does not take the place of a newer one in the memory.
            self._tell(Attempt(command.cmd_id, command.epoch, word, refusal.said))

    def _begin(self, command: Command) -> None:
        self._end_run(command.cmd_id)
        self.memory.begin(command.cmd_id, command.epoch)
        self._message(command.cmd_id, command.epoch, WORD["ack"], {})
        self._runs[command.cmd_id] = asyncio.create_task(self._run(command))

    async def _run(self, command: Command) -> None:
        began = time.monotonic()
        try:
            event, said = await self._do(command)
        except Exception as error:  # noqa: BLE001 - a node outlives its commands
            event, said = "fail", {"error": f"{type(error).__name__}: {error}"}
        if self._runs.get(command.cmd_id) is asyncio.current_task():
            del self._runs[command.cmd_id]
            said = {**said, "duration_ms": round(1_000 * (time.monotonic() - began))}
            self._tell(self.memory.end(command.cmd_id, command.epoch, WORD[event], said))

    def _stop(self, command: Command, known: Attempt | None) -> None:
        """Stop an attempt, or see to it that it never begins; too late if it has ended."""
        said = {"error": "Stopped on request.", "result_code": CANCELLED}
        if known is not None and known.epoch > command.epoch:
            self._tell(Attempt(command.cmd_id, command.epoch, WORD["fail"], said))
        elif known is not None and known.epoch == command.epoch and known.word is not None:
            self._tell(known)
        elif known is not None and known.succeeded:
            self._tell(self.memory.answer_for(known, command.epoch))
        else:
            self._end_run(command.cmd_id)
            self._tell(self.memory.end(command.cmd_id, command.epoch, WORD["fail"], said))

    def _end_run(self, cmd_id: str) -> None:
        if (run := self._runs.pop(cmd_id, None)) is not None:
            run.cancel()

    def _repeat(self, known: Attempt) -> None:
        if known.word is None:
            self._message(known.cmd_id, known.epoch, WORD["ack"], {})
        else:
            self._tell(known)

    def _tell(self, attempt: Attempt) -> None:
        self._message(attempt.cmd_id, attempt.epoch, attempt.word or "", attempt.said)

    def _message(self, cmd_id: str, epoch: int, word: str, said: Mapping[str, object]) -> None:
        message = {
            **said,
            "cmd_id": cmd_id,
            "status": word,
            "epoch": epoch,
            "ts": int(self._clock()),
            "seq": self.memory.number(),
        }
        self._say(envelope.seal(message, self.name, self._key))
