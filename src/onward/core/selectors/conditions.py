"""What can be said of one host: the tree of conditions, its patterns, and whether it holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn, TypeAlias, assert_never

from onward.errors import InvalidInput

NAME: Final = "name"  # the key that is the name of the host
is_key = re.compile(r"[A-Za-z0-9_.\-/]+").fullmatch


class Piece(NamedTuple):
    """A character of a pattern; a wild one is `*` or `?`."""

    character: str
    wild: bool


_STAR: Final = Piece("*", wild=True)
_ANY_ONE: Final = Piece("?", wild=True)


@dataclass(frozen=True, slots=True)
class Glob:
    r"""A pattern with at least one wildcard; `\*`, `\?` and `\\` are the signs themselves."""

    pattern: str
    pieces: tuple[Piece, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_text("a pattern", self.pattern)
        pieces = tuple(_without_repeated_stars(pieces_of(self.pattern)))
        if not any(piece.wild for piece in pieces):
            refuse(f"the pattern {in_brief(self.pattern)} has no * and no ?")
        object.__setattr__(self, "pieces", pieces)
        object.__setattr__(self, "pattern", joined(pieces, keep=is_plain_in_glob))


Value: TypeAlias = str | Glob  # a text stands for itself


@dataclass(frozen=True, slots=True)
class Is:
    """The value of the key is there, and is one of these."""

    key: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        check_key(self.key)
        if not self.values:
            refuse(f"{self.key!r} is compared with nothing")
        for value in self.values:
            if isinstance(value, str):
                check_text(f"a value of {self.key!r}", value)
        object.__setattr__(self, "values", tuple(dict.fromkeys(self.values)))


@dataclass(frozen=True, slots=True)
class Has:
    """The host has the label, whatever its value."""

    key: str

    def __post_init__(self) -> None:
        check_key(self.key)


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    part: Condition


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds; an `And` among them is taken apart, since brackets change nothing."""

    parts: tuple[Condition, ...]

    def __post_init__(self) -> None:
        flat = (part.parts if isinstance(part, And) else (part,) for part in self.parts)
        object.__setattr__(self, "parts", _two_or_more(flat))


@dataclass(frozen=True, slots=True)
class Or:
    """Some part holds; an `Or` among them is taken apart, since brackets change nothing."""

    parts: tuple[Condition, ...]

    def __post_init__(self) -> None:
        flat = (part.parts if isinstance(part, Or) else (part,) for part in self.parts)
        object.__setattr__(self, "parts", _two_or_more(flat))


Condition: TypeAlias = Is | Has | Not | And | Or


def holds(condition: Condition, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the condition holds of the host of this name and these labels."""
    match condition:
        case Is(key, values):
            found = name if key == NAME else labels.get(key)
            return found is not None and any(_fits(found, value) for value in values)
        case Has(key):
            return key == NAME or key in labels
        case Not(part):
            return not holds(part, name, labels)
        case And(parts):
            return all(holds(part, name, labels) for part in parts)
        case Or(parts):
            return any(holds(part, name, labels) for part in parts)
    assert_never(condition)


def _fits(text: str, value: Value) -> bool:
    """Whether the text is the value or fits the pattern, in at most text × pattern steps.

    Only the last star is ever widened: whatever an earlier one could take, the last can take too.
    A regular expression would try them all, and a pattern of many stars would not end.
    """
    if isinstance(value, str):
        return text == value
    pieces, at, piece = value.pieces, 0, 0
    star, resume = -1, 0  # the last star, and where the text goes on if it takes one more
    while at < len(text):
        if piece < len(pieces) and pieces[piece] == _STAR:
            star, resume, piece = piece, at, piece + 1
        elif piece < len(pieces) and pieces[piece] in (_ANY_ONE, (text[at], False)):
            at, piece = at + 1, piece + 1
        elif star >= 0:
            resume += 1
            at, piece = resume, star + 1
        else:
            return False
    return all(left == _STAR for left in pieces[piece:])


# Patterns.


def pieces_of(pattern: str) -> Iterator[Piece]:
    """Take a pattern apart; what stands behind a backslash is not wild."""
    for found in re.finditer(r"\\(.)|(.)", pattern, re.DOTALL):
        escaped, plain = found.groups()
        yield Piece(escaped or plain, wild=escaped is None and plain in "*?")


def _without_repeated_stars(pieces: Iterable[Piece]) -> Iterator[Piece]:
    last = None
    for piece in pieces:
        if not piece == last == _STAR:
            yield piece
        last = piece


def joined(pieces: Iterable[Piece], *, keep: Callable[[str], bool]) -> str:
    """Write a pattern; a literal character that `keep` does not keep gets a backslash."""
    return "".join(
        character if wild or keep(character) else f"\\{character}" for character, wild in pieces
    )


def is_plain_in_glob(character: str) -> bool:
    """Whether a pattern means the character itself without a backslash before it."""
    return character not in "*?\\"


# Checks and messages.


def refuse(problem: str) -> NoReturn:
    """Say what is wrong with the selector."""
    raise InvalidInput("selector", problem)


def _two_or_more(parts: Iterable[tuple[Condition, ...]]) -> tuple[Condition, ...]:
    flat = tuple(part for nested in parts for part in nested)
    if len(flat) < 2:  # noqa: PLR2004 - as the name says
        refuse("'and' and 'or' join at least two conditions")
    return flat


def check_key(key: object) -> str:
    """Return the key, or refuse what is none."""
    if not isinstance(key, str) or not is_key(key):
        refuse(f"{in_brief(key)} is not a key; a key has only letters, digits and _ . - /")
    return key


def check_text(what: str, value: str) -> None:
    """Refuse a text with a character that a reader would not see."""
    if not value.isprintable():
        hidden = next(character for character in value if not character.isprintable())
        refuse(f"{what} has the character {hidden!a}, which cannot be seen")


def in_brief(value: object) -> str:
    """Show what the caller gave, or its type, as a part of a line."""
    shown = f"'{on_one_line(value)}'" if isinstance(value, str) else ascii(type(value).__name__)
    return shown if len(shown) <= 40 else f"{shown[:36]}...'"  # noqa: PLR2004 - a part of a line


def on_one_line(text: str) -> str:
    """Show a text with a space for each character that would not be seen."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
