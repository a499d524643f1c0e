"""Reads named queries out of `sql/*.sql`.

A query begins with `-- name: …`, then the reason, then the SQL. What depends on the law stands in
braces and is rendered from it, as literals, so that the planner can match partial indexes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from types import MappingProxyType
from typing import Final

from onward.core.lifecycles import (
    EXECUTION,
    LIFECYCLES,
    NODE,
    ORDER,
    PLATFORM,
    PLATFORM_LENIENT,
)

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

# The channels whose hosts answer later, and the lifecycles that their commands may have.
WIRES: Final = {
    "mqtt": (NODE.name,),
    "platform": (PLATFORM.name, PLATFORM_LENIENT.name),
}


def statuses_literal(which: str) -> str:
    """Render the `states`, `terminal` or `timed` statuses of all lifecycles as an array."""
    names = sorted(
        f"{table.name}.{status}"
        for table in LIFECYCLES.values()
        for status in getattr(table, which)
    )
    return _array(names)


def _array(names: Iterable[str]) -> str:
    return "ARRAY[" + ", ".join(f"'{name}'" for name in names) + "]"


def _list(statuses: Iterable[str]) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))


def unanswered() -> list[str]:
    """Return the statuses in which a command may be handed over, or handed over again."""
    again = {*NODE.moves["send"].sources, *NODE.moves["ack"].sources}
    first = {
        f"{table.name}.{status}"
        for table in (PLATFORM, PLATFORM_LENIENT)
        for status in table.moves["save"].sources
    }
    return sorted({f"{NODE.name}.{status}" for status in again} | first)


def read_sql(name: str) -> str:
    """Read one file of `sql/`, whole."""
    return resources.files(__package__).joinpath("sql", name).read_text(encoding="utf-8")


def load(name: str) -> Mapping[str, str]:
    """Read the named queries of one file."""
    _, *parts = _NAME.split(read_sql(name))
    return MappingProxyType(
        {
            query: rendered(text.strip().rstrip(";"))
            for query, text in zip(parts[::2], parts[1::2], strict=True)
        }
    )


def rendered(text: str) -> str:
    """Fill in what depends on the law."""
    unsuccessful = EXECUTION.terminal - {EXECUTION.moves["succeed"].target}
    (queued,) = EXECUTION.moves["claim"].sources
    (running,) = EXECUTION.moves["succeed"].sources
    for form, filled in (
        ("{states}", statuses_literal("states")),
        ("{timed}", statuses_literal("timed")),
        ("{terminal}", statuses_literal("terminal")),
        ("{unanswered}", _array(unanswered())),
        ("{wires}", _array(f"{channel}.{name}" for channel in WIRES for name in WIRES[channel])),
        ("{new}", f"'{EXECUTION.initial}'"),
        ("{queued}", f"'{queued}'"),
        ("{running}", f"'{running}'"),
        ("{open}", f"'{ORDER.initial}'"),
        ("{filled}", f"'{ORDER.moves['fill'].target}'"),
        ("{ended}", _list(EXECUTION.terminal)),
        ("{live}", _list(EXECUTION.states.keys() - EXECUTION.terminal)),
        ("{unsuccessful}", _list(unsuccessful)),
        ("{failed}", _list(EXECUTION.moves[event].target for event in ("fail", "timeout"))),
        ("{cancelled}", f"'{EXECUTION.moves['cancel'].target}'"),
    ):
        text = text.replace(form, filled)
    return text
