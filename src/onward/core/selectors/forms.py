"""The forms in which a selector arrives, and the one in which it is written down again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, assert_never

from onward.core.selectors.conditions import And, Is, check_key, in_brief, refuse
from onward.core.selectors.parser import read_expression
from onward.core.selectors.selector import All, Match, Names, Selector
from onward.core.selectors.writing import MAX_LENGTH

JsonSelector: TypeAlias = dict[str, bool | str | list[str]]
_FORMS: Final = ("all", "hostnames", "labels", "expression")


def parse(value: object) -> Selector:  # noqa: RET503 - `refuse` does not return
    """Read a selector in any of its forms, or raise `InvalidInput` that says what is wrong."""
    match value:
        case str():
            return All() if value.strip().lower() == "all" else Match(read_expression(value))
        case list() | tuple():
            return Names(tuple(value))
        case Mapping():
            return _of_form(value)
        case _:
            refuse(f"expected text, a list of hostnames or an object, not {type(value).__name__}")


def to_json(selector: Selector) -> JsonSelector:
    """Write a selector in its canonical form, which `parse` reads back as an equal one."""
    match selector:
        case All():
            return {"all": True}
        case Names():
            return {"hostnames": list(selector.names)}
        case Match():
            return {"expression": selector.expression}
    assert_never(selector)


def _of_form(value: Mapping[object, object]) -> Selector:  # noqa: RET503 - `refuse` does not return
    if len(value) != 1 or not set(value) <= set(_FORMS):
        given = ", ".join(in_brief(key) for key in list(value)[:5]) or "nothing"
        refuse(f"expected exactly one of {', '.join(_FORMS)}, not {given}")
    [(form, content)] = value.items()
    match form, content:
        case "all", True:
            return All()
        case "all", _:
            refuse("all can only be true; leave it out to select by something else")
        case "hostnames", list() | tuple():
            return Names(tuple(content))
        case "labels", Mapping():
            return _of_labels(content)
        case "expression", str():
            return Match(read_expression(content))
        case _:
            wanted = {"hostnames": "a list", "labels": "an object", "expression": "text"}[str(form)]
            refuse(f"{form} must be {wanted}, not {type(content).__name__}")


def _of_labels(labels: Mapping[object, object]) -> Match:
    if not labels:
        refuse("labels is empty; to select every host, write all")
    # Each takes some characters to write down, so that this many cannot be short enough.
    if len(labels) > MAX_LENGTH:
        refuse(f"{len(labels)} labels are more than can be written in {MAX_LENGTH} characters")
    parts = tuple(_of_label(key, value) for key, value in labels.items())
    return Match(parts[0] if len(parts) == 1 else And(parts))


def _of_label(key: object, value: object) -> Is:
    checked = check_key(key)
    if not isinstance(value, str):
        refuse(f"the value of the label {checked!r} must be text, not {type(value).__name__}")
    return Is(checked, (value,))
