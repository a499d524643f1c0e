"""Events over many commands, out of a file of lines: all are judged, and each verdict is shown."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from onward.cli.asking import json_of
from onward.cli.exits import Exit, Leaving, ServiceAway, Usage, of_status
from onward.cli.output import Row, Shape, column, numbered

if TYPE_CHECKING:
    from onward.cli.client import Answer, Client

_PATH: Final = "/commands/events"
_AT_ONCE: Final = 1_000
_POINTER = re.compile(r"/events/(\d+)(?:/(.*))?").fullmatch
JUDGED: Final = Shape(
    key="verdict",
    columns=(
        column("line", right=True, whole=True),
        column("cmd_id", "command", whole=True),
        column("event", whole=True),
        column("verdict", whole=True, mood=True),
        column("status", whole=True, mood=True),
    ),
    fields=(
        *("line", "event", "verdict", "changed", "meaning", "cmd_id", "lifecycle", "status"),
        *("epoch", "version"),
    ),
    nothing="There is no event in it.",
)


class Line(NamedTuple):
    """An event, and where it stands."""

    number: int
    said: dict[str, object]


def read_lines(file: Path) -> list[Line]:
    """Read a file of one JSON object a line; - is standard input, and empty lines are no events."""
    lines = enumerate(_text(file).split("\n"), start=1)
    return [Line(number, _object(file, number, text)) for number, text in lines if text.strip()]


def record(service: Client, lines: Sequence[Line]) -> tuple[list[Row], Leaving | None]:
    """Say all of it, part by part; returns the verdicts, and why it did not get on if so."""
    judged: list[Row] = []
    for first in range(0, len(lines), _AT_ONCE):
        part = lines[first : first + _AT_ONCE]
        try:
            answer = service.send("POST", _PATH, body={"events": [line.said for line in part]})
        except ServiceAway as error:
            told = f"{error} {_kept(part, len(judged))} What is said twice changes nothing."
            return judged, Leaving(Exit.SERVICE_AWAY, told)
        if not answer.good:
            return judged, _refusal(answer, part, recorded=len(judged))
        judged += _judged(answer, part)
    return judged, None


def _judged(answer: Answer, part: Sequence[Line]) -> Iterator[Row]:
    verdicts = answer.body.get("verdicts")
    if not isinstance(verdicts, list):
        raise Leaving(Exit.SERVICE_AWAY, "The service answers, but not as Onward does.")
    for line, verdict in zip(part, verdicts, strict=True):
        # Of a command that nobody knows, the verdict does not repeat the id.
        named = {"cmd_id": verdict.get("cmd_id") or line.said.get("cmd_id")}
        yield {"line": line.number, "event": line.said.get("event"), **verdict, **named}


def _refusal(answer: Answer, part: Sequence[Line], *, recorded: int) -> Leaving:
    """Say what is wrong with which line, and what of the file was recorded."""
    kept = f"{_kept(part, recorded)} Nothing else was."
    for error in answer.errors:
        if found := _POINTER(str(error.get("pointer"))):
            field = f"{found[2]}: " if found[2] else ""
            told = f"line {part[int(found[1])].number}: {field}{error.get('detail')}"
            return Leaving(of_status(answer.status), f"{told}. {kept}")
    try:
        answer.refuse()
    except Leaving as leaving:
        return Leaving(leaving.code, f"{leaving} {kept}")


def _kept(part: Sequence[Line], recorded: int) -> str:
    return f"Recorded: {numbered(recorded, 'event')}, all before line {part[0].number}."


def _object(file: Path, number: int, text: str) -> dict[str, object]:
    found = json_of(f"{file}, line {number}", text)
    if not isinstance(found, dict):
        raise Usage(f'{file}, line {number}: takes an object with "cmd_id" and "event".')
    return found


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.expanduser().read_text("utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Usage(f"{file}: cannot be read: {why}.") from None
