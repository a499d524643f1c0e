"""Host patterns as Ansible writes them: ranges in brackets, and a port behind a colon.

web[01:20:2].example.com    every second of web01 to web20, with leading zeros as written
db-[a:f]                    letters
r[1:3]-n[1:4]               several ranges: every combination
web1:2222, [2001:db8::1]:22 a port; an IPv6 address with a port stands in brackets
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import AddressValueError, IPv6Address
from itertools import product
from math import prod
from string import ascii_letters
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.store.inputs import shown

_RANGE = re.compile(r"\[([^\[\]]*:[^\[\]]*)\]")
_NUMBERS = re.compile(r"([0-9]{0,9}):([0-9]{1,9})(?::([0-9]{1,9}))?").fullmatch
_LETTERS = re.compile(r"([A-Za-z]):([A-Za-z])(?::([0-9]{1,9}))?").fullmatch
_BRACKETED = re.compile(r"\[([^\[\]]+)\](?::([0-9]+))?").fullmatch
_WITH_PORT = re.compile(r"((?:[^:\[\]]|\[[^\[\]]*\])+):([0-9]+)").fullmatch
_MAX_RANGES: Final = 8
_PATTERN_MAX: Final = 1_024


class Pattern(NamedTuple):
    """A pattern that has not been expanded, so that its size can be judged first."""

    parts: tuple[Sequence[str], ...]
    port: str | None

    @property
    def size(self) -> int:
        """How many names it stands for."""
        return prod([len(part) for part in self.parts])

    def names(self) -> Iterator[str]:
        """Each name that it stands for."""
        return ("".join(chosen) for chosen in product(*self.parts))


class _Counted(Sequence[str]):
    """The numbers of a range, written with leading zeros; made when they are asked for."""

    def __init__(self, numbers: range, width: int) -> None:
        self._numbers = numbers
        self._width = width

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: int) -> str:  # type: ignore[override]  # nobody takes slices
        return f"{self._numbers[at]:0{self._width}d}"


def pattern(text: str) -> Pattern:
    """Take a host pattern apart, or raise `InvalidInput`."""
    if len(text) > _PATTERN_MAX:
        raise InvalidInput("host", f"{len(text)} characters are too many for a host")
    if (bracketed := _BRACKETED(text)) and is_ipv6(bracketed[1]):
        return Pattern(((bracketed[1],),), bracketed[2])
    port = None
    if found := _WITH_PORT(text):
        text, port = found.groups()
    pieces = _RANGE.split(text)
    if len(pieces) // 2 > _MAX_RANGES:
        raise InvalidInput("host", f"more than {_MAX_RANGES} ranges in one name; split the line")
    # What stands between the ranges is at the even places.
    parts = [_expanded(piece) if at % 2 else (piece,) for at, piece in enumerate(pieces)]
    return Pattern(tuple(parts), port)


def _expanded(inside: str) -> Sequence[str]:
    if found := _NUMBERS(inside):
        begin, end, step = found.groups()
        width = len(begin) if begin.startswith("0") else 0
        if width > 1 and width != len(end):
            raise _bad(inside, "write both ends with the same number of digits")
        return _Counted(_steps(inside, int(begin or 0), int(end), step), width)
    if found := _LETTERS(inside):
        begin, end, step = found.groups()
        first, last = ascii_letters.index(begin), ascii_letters.index(end)
        return [ascii_letters[at] for at in _steps(inside, first, last, step)]
    raise _bad(inside, "write it as [01:20], [1:20:2] or [a:f]")


def _steps(inside: str, first: int, last: int, step: str | None) -> range:
    if first > last:
        raise _bad(inside, "begin with the lower end")
    if step is not None and int(step) < 1:
        raise _bad(inside, "the step is at least 1")
    return range(first, last + 1, int(step or 1))


def _bad(inside: str, advice: str) -> InvalidInput:
    return InvalidInput("host", f"{shown(f'[{inside}]')} is not a range; {advice}")


def is_ipv6(text: str) -> bool:
    """Say whether a text is an address of IPv6, which has colons of its own."""
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True
