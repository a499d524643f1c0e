"""What a node remembers: the newest attempt at each command, and what it has said about it.

Everything is on disk before it has an effect: that an attempt begins before it runs, and its result
before it is told. A node that was interrupted in the middle of a run finds the beginning without an
end, and says that it does not know. The file is a journal of JSON lines; it is written anew when it
is opened, and then only appended to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from onward.channels.mqtt.envelope import WORD, canonical

INTERRUPTED: Final = "INTERRUPTED"  # the error code of a node that lost its power during a run

_KEPT: Final = 1_000  # commands; the oldest that are receipted are forgotten first
_NUMBERS: Final = 1_000  # that are drawn from the disk at once
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(slots=True)
class Attempt:
    """The newest attempt at a command."""

    cmd_id: str
    epoch: int
    word: str | None = None  # none: it is under way
    said: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    receipted: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether there is nothing left to do, however often one is asked."""
        return self.word in {WORD["done"], WORD["no_effect"]}


class Memory:
    """The attempts by command, and the highest epoch of them all; in a file, if a path is given."""

    def __init__(self, path: Path | None = None, *, first_number: int = 1) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.highest = 0
        self._number = first_number
        self._reserved = 0
        self._file: int | None = None
        if path is not None:
            self._recall(path)
            self._number = max(self._number, self._reserved)
            self._file = _written_anew(path, self._lines())

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def number(self) -> int:
        """A number higher than any before, also before the last restart."""
        self._number += 1
        if self._number > self._reserved:
            self._reserved = self._number + _NUMBERS
            self._append({"number": self._reserved})
        return self._number

    def begin(self, cmd_id: str, epoch: int) -> Attempt:
        """Remember that an attempt is about to run."""
        return self._remember(Attempt(cmd_id, epoch))

    def end(self, cmd_id: str, epoch: int, word: str, said: Mapping[str, object]) -> Attempt:
        """Remember how an attempt ended, also one that has never begun."""
        return self._remember(Attempt(cmd_id, epoch, word, said))

    def answer_for(self, attempt: Attempt, epoch: int) -> Attempt:
        """Let what was said about an attempt stand for a newer one."""
        return self.end(attempt.cmd_id, epoch, attempt.word or "", attempt.said)

    def receipted(self, cmd_id: str, epoch: int) -> None:
        """Remember that the server has it."""
        attempt = self.attempts.get(cmd_id)
        if attempt is not None and attempt.epoch == epoch and attempt.word is not None:
            attempt.receipted = True
            self._append({"cmd_id": cmd_id, "epoch": epoch, "receipted": True})

    def unreceipted(self) -> list[Attempt]:
        """What the server may not have heard of."""
        return [each for each in self.attempts.values() if each.word and not each.receipted]

    def _remember(self, attempt: Attempt) -> Attempt:
        # What was touched last is forgotten last.
        self.attempts.pop(attempt.cmd_id, None)
        self.attempts[attempt.cmd_id] = attempt
        self.highest = max(self.highest, attempt.epoch)
        if len(self.attempts) > _KEPT:
            self._forget()
        self._append(_line(attempt))
        return attempt

    def _forget(self) -> None:
        for cmd_id, attempt in self.attempts.items():
            if attempt.receipted:
                del self.attempts[cmd_id]
                return

    def _append(self, line: Mapping[str, object]) -> None:
        if self._file is not None:
            os.write(self._file, canonical(line).encode() + b"\n")
            os.fsync(self._file)

    def _recall(self, path: Path) -> None:
        for line in _read(path):
            self._reserved = max(self._reserved, line.get("number", 0))
            self.highest = max(self.highest, line.get("epoch", 0))
            if line.get("receipted"):
                self.receipted(line["cmd_id"], line["epoch"])
            elif "cmd_id" in line:
                said = line.get("said", {})
                self._remember(Attempt(line["cmd_id"], line["epoch"], line.get("word"), said))
        for attempt in self.attempts.values():
            if attempt.word is None:
                attempt.word = WORD["fail"]
                attempt.said = {
                    "error": "The node was interrupted in the middle of the run.",
                    "error_code": INTERRUPTED,
                }

    def _lines(self) -> Iterator[Mapping[str, object]]:
        yield {"number": self._reserved, "epoch": self.highest}
        for attempt in self.attempts.values():
            yield _line(attempt)
            if attempt.receipted:
                yield {"cmd_id": attempt.cmd_id, "epoch": attempt.epoch, "receipted": True}


def _line(attempt: Attempt) -> Mapping[str, object]:
    return {
        "cmd_id": attempt.cmd_id,
        "epoch": attempt.epoch,
        "word": attempt.word,
        "said": dict(attempt.said),
    }


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal; the last may have been torn when the power went."""
    if path.exists():
        content = path.read_bytes()
        for line in content[: content.rfind(b"\n") + 1].splitlines():
            yield json.loads(line)


def _written_anew(path: Path, lines: Iterator[Mapping[str, object]]) -> int:
    """Replace the journal by its essence, at one stroke, and leave it open to be appended to."""
    fresh = path.with_name(path.name + ".new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for line in lines:
        os.write(file, canonical(line).encode() + b"\n")
    os.fsync(file)
    fresh.replace(path)
    return file
