"""A selector for the database: a condition of SQL over the table of hosts, and its parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import assert_never

from onward.core.selectors.conditions import NAME, And, Condition, Glob, Has, Is, Not, Or, Value
from onward.core.selectors.selector import All, Match, Names, Selector


def to_sql(selector: Selector, *, first: int = 1) -> tuple[str, list[object]]:
    """Render a condition over `h.name text` and `h.labels jsonb`, and its parameters from `$first`.

    Neither column may be NULL, and `h.labels` is an object of texts. The condition is never NULL,
    so it can be negated. Equality of labels is containment, which GIN (jsonb_path_ops) serves.
    """
    parameters: list[object] = []

    def parameter(value: object) -> str:
        parameters.append(value)
        return f"${first + len(parameters) - 1}"

    match selector:
        case All():
            return "TRUE", parameters
        case Names(names):
            return f"h.name = ANY ({parameter(list(names))}::text[])", parameters
        case Match(condition):
            return _sql(condition, parameter), parameters
    assert_never(selector)


def _sql(condition: Condition, parameter: Callable[[object], str]) -> str:
    match condition:
        case Is(key, values) if key == NAME:
            return _either(_sql_name(values, parameter))
        case Is(key, values):
            return _either(_sql_label(key, value, parameter) for value in values)
        case Has(key):
            # A host always has a name.
            return "TRUE" if key == NAME else f"(h.labels ->> {parameter(key)}::text) IS NOT NULL"
        case Not(part):
            return f"NOT ({_sql(part, parameter)})"
        case And(parts):
            return f"({' AND '.join(_sql(part, parameter) for part in parts)})"
        case Or(parts):
            return _either(_sql(part, parameter) for part in parts)
    assert_never(condition)


def _sql_name(values: Sequence[Value], parameter: Callable[[object], str]) -> Iterator[str]:
    if texts := [value for value in values if isinstance(value, str)]:
        yield f"h.name = ANY ({parameter(texts)}::text[])"
    for value in values:
        if isinstance(value, Glob):
            yield f"h.name LIKE {parameter(_like(value))}::text"


def _sql_label(key: str, value: Value, parameter: Callable[[object], str]) -> str:
    if isinstance(value, str):
        # Through text, so that it means the same whatever codec the connection has for jsonb.
        # One containment a value: GIN does not serve `@> ANY (...)`, but joins these by bitmap.
        contained = json.dumps({key: value}, ensure_ascii=False)
        return f"h.labels @> {parameter(contained)}::text::jsonb"
    # Without the label this would be NULL, and so would be its negation, which must be true.
    like = f"(h.labels ->> {parameter(key)}::text) LIKE {parameter(_like(value))}::text"
    return f"coalesce({like}, FALSE)"


def _like(glob: Glob) -> str:
    wildcards = {"*": "%", "?": "_"}
    return "".join(
        wildcards[character] if wild else re.sub(r"[%_\\]", r"\\\g<0>", character)
        for character, wild in glob.pieces
    )


def _either(conditions: Iterable[str]) -> str:
    rendered = list(conditions)
    return rendered[0] if len(rendered) == 1 else f"({' OR '.join(rendered)})"
