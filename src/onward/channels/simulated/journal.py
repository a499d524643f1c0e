"""What really happened on the hosts, in the order in which it did.

The journal stands outside the system under test: the hosts write it, nobody else reads it before
the end, and `check_journal` needs nothing but its lines. In a file it is one JSON object a line.

1. An effect is written before it counts. A process that is killed leaves at most a start without
   an end, or a torn last line of something that has not happened.
2. The sequence has no gaps, and goes on when a file is opened again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class What(StrEnum):
    """What happened to an attempt on a host."""

    STARTED = "started"
    FINISHED = "finished"
    STOPPED = "stopped"
    CRASHED = "crashed"  # the host went down in the middle of it
    REFUSED = "refused"
    ANSWERED = "answered"  # from memory: a newer attempt at what has been done already


_encode = json.JSONEncoder(separators=(",", ":")).encode
_ENDS = frozenset({What.FINISHED, What.STOPPED, What.CRASHED})


class Effect(NamedTuple):
    """One line of the journal."""

    sequence: int
    at: float  # by the clock of the fleet, in simulated seconds
    host_id: int
    command_id: str
    epoch: int
    what: What
    exclusive: bool
    succeeded: bool | None = None
    exit_code: int | None = None
    error: str | None = None

    def line(self) -> str:
        """The effect as JSON, in ASCII, on one line."""
        return _encode(self._asdict())

    @classmethod
    def of(cls, line: str) -> Effect:
        """The effect on a line; ValueError if there is none."""
        try:
            fields = json.loads(line)
            fields["what"] = What(fields["what"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(str(error)) from None


class Journal:
    """The effects so far, in memory and, if a path is given, in a file that is only appended to."""

    def __init__(self, path: Path | None = None) -> None:
        self.effects: list[Effect] = []
        self._file = None
        if path is not None:
            self.effects.extend(_reopened(path))
            self._file = path.open("ab")

    def write(  # noqa: PLR0917 - called for every effect: keywords would cost as much again
        self,
        what: What,
        at: float,
        host_id: int,
        command_id: str,
        epoch: int,
        exclusive: bool,  # noqa: FBT001 - as above
        succeeded: bool | None = None,  # noqa: FBT001 - as above
        exit_code: int | None = None,
        error: str | None = None,
    ) -> None:
        """Append one effect; it is with the operating system when this returns."""
        effects = self.effects
        effect = Effect(
            len(effects) + 1, at, host_id, command_id, epoch, what, exclusive, succeeded, exit_code,
            error,
        )  # fmt: skip
        if self._file is not None:
            self._file.write(effect.line().encode() + b"\n")
            self._file.flush()
        effects.append(effect)

    def lines(self) -> Iterator[str]:
        """The effects as they are in a file."""
        return (effect.line() for effect in self.effects)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()


def _reopened(path: Path) -> list[Effect]:
    """The effects in a file, from which a torn last line is cut off."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return [Effect.of(line) for line in whole.decode().splitlines()]


class _Checked:
    """What the checker knows about one host."""

    __slots__ = ("highest", "refused", "running", "started")

    def __init__(self) -> None:
        self.highest: Effect | None = None
        self.running: dict[tuple[str, int], Effect] = {}
        self.started: dict[tuple[str, int], Effect] = {}
        self.refused: dict[tuple[str, int], Effect] = {}


def check_journal(lines: Iterable[str]) -> list[str]:
    """Every broken promise in a journal, as a sentence each; none is what one hopes for.

    The promises: an attempt runs at most once; nothing runs beside an exclusive run; no attempt
    starts after one with a higher epoch has; what was refused does not run; what ends had begun.
    A last line that cannot be read was torn by a kill, and is passed over.
    """
    effects, problems = _read(lines)
    hosts: dict[int, _Checked] = {}
    for effect in effects:
        host = hosts.setdefault(effect.host_id, _Checked())
        key = (effect.command_id, effect.epoch)
        if effect.what is What.STARTED:
            problems.extend(_wrong_with_start(host, effect))
            if host.highest is None or effect.epoch > host.highest.epoch:
                host.highest = effect
            host.started[key] = host.running[key] = effect
        elif effect.what is What.REFUSED:
            host.refused.setdefault(key, effect)
        elif effect.what in _ENDS and host.running.pop(key, None) is None:
            problems.append(f"{_named(effect)} {effect.what} without a start")
    return problems


def _read(lines: Iterable[str]) -> tuple[list[Effect], list[str]]:
    effects: list[Effect] = []
    problems: list[str] = []
    unreadable: str | None = None
    for number, line in enumerate(lines, 1):
        if unreadable is not None:
            problems.append(unreadable)
            unreadable = None
        try:
            effect = Effect.of(line)
        except ValueError as error:
            unreadable = f"line {number} cannot be read: {error}"
            continue
        if effects and effect.sequence != effects[-1].sequence + 1:
            problems.append(f"line {number}: {effect.sequence} follows {effects[-1].sequence}")
        effects.append(effect)
    return effects, problems


def _wrong_with_start(host: _Checked, effect: Effect) -> Iterator[str]:
    key = (effect.command_id, effect.epoch)
    if (before := host.started.get(key)) is not None:
        yield f"{_named(effect)} ran twice in one epoch: before at {before.sequence}"
    if (before := host.refused.get(key)) is not None:
        yield f"{_named(effect)} ran although it was refused at {before.sequence}"
    if host.highest is not None and effect.epoch < host.highest.epoch:
        yield f"{_named(effect)} started after a higher epoch: {_named(host.highest)}"
    for other in host.running.values():
        if effect.exclusive or other.exclusive:
            yield f"{_named(effect)} ran beside {_named(other)}, and one of them is exclusive"


def _named(effect: Effect) -> str:
    return (
        f"{effect.sequence}: host {effect.host_id}, command {effect.command_id!r}, "
        f"epoch {effect.epoch}"
    )
