"""A selector: every host, those of some names, or those of which a condition holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from onward.core.selectors.conditions import Condition, check_text, holds, refuse
from onward.core.selectors.writing import MAX_LENGTH, written

MAX_NAMES: Final = 10_000
NAME_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class All:
    """Every host."""


@dataclass(frozen=True, slots=True)
class Names:
    """The hosts of these names, each once, in the order in which they were first given."""

    names: tuple[str, ...]
    members: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.names:
            refuse("the list of hostnames is empty")
        if len(self.names) > MAX_NAMES:
            refuse(f"{len(self.names)} hostnames are more than the {MAX_NAMES} allowed")
        for position, name in enumerate(self.names, start=1):
            _check_name(position, name)
        object.__setattr__(self, "names", tuple(dict.fromkeys(self.names)))
        object.__setattr__(self, "members", frozenset(self.names))


@dataclass(frozen=True, slots=True)
class Match:
    """The hosts of which the condition holds."""

    condition: Condition
    expression: str = field(init=False, repr=False, compare=False)  # the condition, written down

    def __post_init__(self) -> None:
        expression = written(self.condition)
        if len(expression) > MAX_LENGTH:
            refuse(f"written out, it is longer than the {MAX_LENGTH} characters allowed")
        object.__setattr__(self, "expression", expression)


Selector: TypeAlias = All | Names | Match


def matches(selector: Selector, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the host of this name and these labels is selected."""
    match selector:
        case All():
            return True
        case Names():
            return name in selector.members
        case Match():
            return holds(selector.condition, name, labels)
    assert_never(selector)


def describe(selector: Selector, *, names_shown: int = 3) -> str:
    """Say in a few words who is selected, for a person to read."""
    match selector:
        case All():
            return "all hosts"
        case Names(names):
            shown, left = ", ".join(names[:names_shown]), len(names) - names_shown
            hosts = "1 host" if len(names) == 1 else f"{len(names):,} hosts"
            return f"{hosts}: {shown}" + (f" and {left:,} more" if left > 0 else "")
        case Match():
            return f"hosts where {selector.expression}"
    assert_never(selector)


def _check_name(position: int, name: object) -> None:
    if not isinstance(name, str):
        refuse(f"hostname {position} must be text, not {type(name).__name__}")
    if not name or len(name) > NAME_MAX:
        refuse(f"hostname {position} has {len(name)} characters, and not 1 to {NAME_MAX}")
    check_text(f"hostname {position}", name)
