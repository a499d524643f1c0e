r"""Selectors: who a job is for.

Theory. A selector picks hosts by their name and labels. It arrives as JSON in one of four forms, or
in the shorthand of one, and becomes a small tree that is asked about one host (`matches`), rendered
for the database (`to_sql`), shown to people (`describe`) or written down again (`to_json`).

    "all"               {"all": true}
    ["a", "b"]          {"hostnames": ["a", "b"]}                     exact names
                        {"labels": {"role": "web", "zone": "eu"}}     exact values, all must match
    "role=web"          {"expression": "role=web and not zone=eu"}

    expression  any { "or" any }            any   term { ("and" | ",") term }
    term        "not" term | "(" expression ")" | "has" key
              | key ("=" | "==" | "!=") value | key ["not"] "in" "(" value { "," value } ")"
    key         letters, digits and _ . - /
    value       a word in which * stands for any characters and ? for one, or a text in quotes
                (and, or, not, in and has, in any case, are keys and values only in quotes)

Rule 1. The key `name` is the name of the host, in every form. A label of that name is not seen.
Rule 2. A host without the label has no value: `key=value` is false of it, and `key!=value` and
        `key not in (...)` are true. `not` is plain negation; there is no third truth value.
Rule 3. Quotes take everything literally, as in a shell: `name="web-*"` is a host with a star in its
        name. A backslash does the same for one sign: `name=web-\*`, `title=front\ door*`.
Rule 4. Nothing selects everything by accident: an empty list, mapping or expression is refused, and
        so is "," beside "or" without parentheses, which people read in two ways.
Rule 5. A selector that exists is valid, and `parse(to_json(selector)) == selector`.
Rule 6. No text of the caller's becomes SQL: it travels in parameters.
"""

from __future__ import annotations

from onward.core.selectors.conditions import And, Condition, Glob, Has, Is, Not, Or, Value
from onward.core.selectors.forms import JsonSelector, parse, to_json
from onward.core.selectors.selector import (
    MAX_NAMES,
    NAME_MAX,
    All,
    Match,
    Names,
    Selector,
    describe,
    matches,
)
from onward.core.selectors.sql import to_sql
from onward.core.selectors.writing import MAX_DEPTH, MAX_LENGTH

__all__ = [
    "MAX_DEPTH",
    "MAX_LENGTH",
    "MAX_NAMES",
    "NAME_MAX",
    "All",
    "And",
    "Condition",
    "Glob",
    "Has",
    "Is",
    "JsonSelector",
    "Match",
    "Names",
    "Not",
    "Or",
    "Selector",
    "Value",
    "describe",
    "matches",
    "parse",
    "to_json",
    "to_sql",
]
