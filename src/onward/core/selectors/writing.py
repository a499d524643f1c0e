"""How a condition is written: the words and limits of the language, and the one way to put it."""

from __future__ import annotations

import re
from typing import Final, assert_never

from onward.core.selectors.conditions import (
    And,
    Condition,
    Glob,
    Has,
    Is,
    Not,
    Or,
    Value,
    is_plain_in_glob,
    joined,
    refuse,
)

MAX_LENGTH: Final = 4_096  # of an expression, as given and as written down again
MAX_DEPTH: Final = 64  # of parentheses and "not" within each other
KEYWORDS: Final = frozenset({"and", "or", "not", "in", "has"})
# What may stand in a word as it is. Signs of other languages are left out so that `a<b` and `a&&b`
# are explained instead of being taken for words.
PLAIN: Final = r"""[^\s()=,!<>&|"'\\]"""
_PLAIN_CHARACTER = re.compile(PLAIN).fullmatch


def written(condition: Condition, depth: int = 0) -> str:
    """Write a condition so that it is read back as an equal one, or refuse one nested too deep."""
    if depth > MAX_DEPTH:
        refuse(f"nested deeper than {MAX_DEPTH} levels")
    match condition:
        case Is():
            return _written_is(condition, negated=False)
        case Has(key):
            return f"has {_written_key(key)}"
        case Not(part):
            if isinstance(part, Is):
                return _written_is(part, negated=True)
            return f"not {_written_within(part, (And, Or), depth + 1)}"
        case And(parts):
            return " and ".join(_written_within(part, (Or,), depth) for part in parts)
        case Or(parts):
            return " or ".join(written(part, depth) for part in parts)
    assert_never(condition)


def _written_within(part: Condition, weaker: tuple[type[Condition], ...], depth: int) -> str:
    """Write a part, in parentheses if what it is part of would otherwise tear it apart."""
    return f"({written(part, depth + 1)})" if isinstance(part, weaker) else written(part, depth)


def _written_is(condition: Is, *, negated: bool) -> str:
    key = _written_key(condition.key)
    values = [_written_value(value) for value in condition.values]
    if len(values) == 1:
        return f"{key}{'!=' if negated else '='}{values[0]}"
    return f"{key} {'not in' if negated else 'in'} ({', '.join(values)})"


def _written_key(key: str) -> str:
    return f'"{key}"' if key.lower() in KEYWORDS else key


def _written_value(value: Value) -> str:
    if isinstance(value, Glob):
        return joined(value.pieces, keep=_is_plain_in_word)
    if value and value.lower() not in KEYWORDS and all(map(_is_plain_in_word, value)):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def _is_plain_in_word(character: str) -> bool:
    return is_plain_in_glob(character) and _PLAIN_CHARACTER(character) is not None
