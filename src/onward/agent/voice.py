"""What the agent says, as long as somebody listens: results again and again, until receipted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Protocol

from onward.agent.journal import Journal
from onward.agent.memory import Attempt, Memory
from onward.agent.output import Piece
from onward.channels.agent.messages import Pieces, Result, Up, cut_pieces

_SAY_AGAIN_S: Final = 30.0


class Ear(Protocol):
    """A connection, as far as whoever speaks cares."""

    def say(self, message: Up) -> None:
        """Say something, after all that was said before; it may get lost."""
        ...

    async def room(self) -> None:
        """Wait until what was said is mostly on its way, or the connection is gone."""
        ...


class Voice:
    """Speaks to whoever listens now."""

    def __init__(self, journal: Journal, memory: Memory) -> None:
        self._journal = journal
        self._memory = memory
        self._ear: Ear | None = None

    def connected(self, ear: Ear) -> None:
        """Somebody listens: say all that has not been receipted."""
        self._ear = ear
        for result in self._journal.waiting():
            self.say_result(result)

    def lost(self, ear: Ear) -> None:
        """Nobody listens any more."""
        if self._ear is ear:
            self._ear = None

    def say(self, message: Up) -> None:
        """Say something, if anybody listens."""
        if self._ear is not None:
            self._ear.say(message)

    def say_result(self, result: Result, output: Sequence[Piece] | None = None) -> None:
        """Say a result with all that is kept of its output."""
        if self._ear is None:
            return
        if output is None:
            output = self._journal.output(result.cmd, result.epoch)
        _say_pieces(self._ear, result.cmd, result.epoch, at=0, pieces=output)
        self._say_result(result)

    def say_rest(self, attempt: Attempt, result: Result) -> None:
        """Say a result to whoever has heard the output up to now, else with all of the output."""
        assert attempt.output is not None  # noqa: S101 - it has run
        if self.pass_on(attempt) is None:
            self.say_result(result, attempt.output.kept)
        else:
            self._say_result(result)

    def pass_on(self, attempt: Attempt) -> Ear | None:
        """Say what has come of the output, to somebody who has heard the rest; none if nobody."""
        assert attempt.output is not None  # noqa: S101 - it runs
        at, pieces = attempt.output.take()
        if self._ear is None or attempt.ear is not self._ear:
            # What is said to the next one begins at the beginning.
            attempt.ear = None
            return None
        _say_pieces(self._ear, attempt.cmd, attempt.epoch, at=at, pieces=pieces)
        return self._ear

    def say_again(self) -> None:
        """Say what nobody has receipted for a while."""
        if self._ear is None:
            return
        for result in self._journal.waiting():
            attempt = self._memory.find(result.cmd, result.epoch)
            if attempt is None or time.monotonic() - attempt.said_at >= _SAY_AGAIN_S:
                self.say_result(result)

    def _say_result(self, result: Result) -> None:
        self.say(result)
        attempt = self._memory.find(result.cmd, result.epoch)
        if attempt is not None:
            attempt.said_at = time.monotonic()


def _say_pieces(ear: Ear, cmd: str, epoch: int, *, at: int, pieces: Sequence[Piece]) -> None:
    for part in cut_pieces(pieces):
        ear.say(Pieces(cmd, epoch, at, part))
        at += sum(len(text) for _, text in part)
