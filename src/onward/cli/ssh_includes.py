"""Puts what a configuration of OpenSSH includes into it, and remembers which line is whose.

The service opens no files, so whoever imports a configuration sends it whole. Files are found where
`ssh` finds them: beside the configuration, unless a path begins with / or ~.
"""

from __future__ import annotations

import os
from glob import glob
from pathlib import Path
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.inventory import MAX_BYTES
from onward.fleet.inventory.ssh_config import arguments, words

_DEPTH_MAX: Final = 16  # as in OpenSSH
_EVERYBODY: Final = "Host *"


class Place(NamedTuple):
    """A line of a file."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Whole(NamedTuple):
    """A text that includes nothing any more, and where each of its lines comes from."""

    lines: list[str]
    places: list[Place]

    def add(self, line: str, place: Place) -> None:
        """Take a line."""
        self.lines.append(line)
        self.places.append(place)

    @property
    def content(self) -> bytes:
        """The text, as it is sent."""
        return "\n".join(self.lines).encode("utf-8", "surrogateescape")


def whole(path: Path) -> Whole:
    """Read a configuration with everything that it includes."""
    found = Whole([], [])
    _add(found, path, base=path.parent, depth=0)
    return found


def _add(found: Whole, path: Path, *, base: Path, depth: int) -> None:
    for_all = True
    for number, line in enumerate(_text(path).split("\n"), start=1):
        place = Place(path, number)
        keyword, rest = _option(line)
        if keyword == "host":
            for_all = rest == "*"
        elif keyword == "match":
            for_all = False
        if keyword != "include":
            found.add(line, place)
        elif not for_all:
            raise InvalidInput(
                str(place), "what is included for some hosts only is not followed; move it up"
            )
        else:
            _include(found, place, rest, base=base, depth=depth + 1)


def _include(found: Whole, place: Place, rest: str, *, base: Path, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise InvalidInput(str(place), "files include each other too deep, or in a circle")
    for pattern in arguments(str(place), rest):
        for path in sorted(glob(os.path.join(base, os.path.expanduser(pattern)))):  # noqa: PTH111, PTH118, PTH207 - patterns are no paths
            _add(found, Path(path), base=base, depth=depth)
            # What the file said last for some hosts ends with it.
            found.add(_EVERYBODY, place)
    if sum(map(len, found.lines)) > MAX_BYTES:
        raise InvalidInput(str(place), f"more than {MAX_BYTES:,} bytes are included; split it")


def _option(line: str) -> tuple[str, str]:
    try:
        return words(line) or ("", "")
    except InvalidInput:
        return "", ""  # whatever it is, the service says what is wrong with it


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}") from None
    # What is not UTF-8 is for the service to refuse, with its line.
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")
