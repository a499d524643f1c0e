"""What people write on a command line for the service: parameters, selectors, times."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from onward.cli.exits import Usage

_PARAM = re.compile(r"([^:=]+)(:=|=)(.*)", re.DOTALL).fullmatch
_SPAN = re.compile(r"(\d+)(s|m|h|d|w)").fullmatch
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}

Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=TEXT",
        help="A parameter; NAME:=JSON for what is no text. May be said often.",
    ),
]
ParamsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A JSON object of parameters, - for standard input: secrets stay out of the process "
        "list.",
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="SELECTOR",
        help="Whom: all, an expression such as `role=web and not zone=eu`, or @FILE with a name a "
        "line (@- for standard input).",
    ),
]


def params_of(given: Sequence[str] | None, file: Path | None) -> dict[str, object]:
    """Read parameters; what stands on the command line replaces what is in the file."""
    params: dict[str, object] = {} if file is None else dict(_object(file))
    for each in given or ():
        found = _PARAM(each)
        if found is None:
            raise Usage(f"--param {each!a:.80}: write NAME=TEXT, or NAME:=JSON.")
        name, how, value = found.groups()
        params[name] = value if how == "=" else json_of(f"--param {name}", value)
    return params


def json_of(what: str, text: str) -> object:
    """Read JSON that somebody has written; what it holds may be secret, and is not repeated."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"at line {error.lineno}, column {error.colno}"
        raise Usage(f"{what}: is not JSON {where}; text needs quotes of its own.") from None
    except (ValueError, RecursionError):
        raise Usage(f"{what}: is not JSON that can be read: it is too long or too deep.") from None


def selector_of(on: str | None, hosts: Sequence[str] | None) -> object:
    """Read whom somebody means: an expression, a file of names, or names."""
    if (on is None) == (not hosts):
        raise Usage("Say whom it is for: --on SELECTOR, such as --on 'role=web', or --host NAME.")
    if on is None:
        return list(hosts or ())
    if not on.startswith("@"):
        return on
    names = [line.strip() for line in _text(Path(on[1:])).splitlines()]
    return [name for name in names if name and not name.startswith("#")]


def until_of(text: str | None) -> str | None:
    """Read an end: a time with an offset, or how long from now, such as 2h or 3d."""
    if text is None:
        return None
    found = _SPAN(text)
    if found is None:
        return text
    try:
        span = timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
        return (datetime.now(UTC) + span).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        raise Usage(f"--until {text:.80}: no calendar goes so far.") from None


def _object(file: Path) -> dict[str, object]:
    found = json_of(str(file), _text(file))
    if not isinstance(found, dict):
        raise Usage(f'{file}: takes a JSON object such as {{"service": "nginx"}}.')
    return found


def _text(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.expanduser().read_text("utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Usage(f"{path}: cannot be read: {why}.") from None
