"""Inventories in JSON: a list of hosts, or an object with `hosts`.

    name      text; it must be there
    address   text
    channel   text
    labels    an object of texts, numbers and booleans; the last two are kept as they are written

As in the API, nothing else may be there, no key may occur twice, and NaN is not a number.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.hosts import Channel, new_host
from onward.fleet.inventory.gathering import Gathering
from onward.store.hosts import NewHost
from onward.store.inputs import shown

_FIELDS: Final = ("name", "address", "channel", "labels")
_ANSIBLE: Final = "_meta"  # what `ansible-inventory --list` prints has it, and is not read here
_BETWEEN = re.compile(r"[\s,]*").match
# Looks for the end of a value, and does not mind what it is.
_SKIPPING: Final = json.JSONDecoder(parse_int=str, parse_float=str)


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Constant(NamedTuple):
    """What Python's JSON has, and JSON has not: NaN and infinities."""

    name: str


class _Object(dict[str, object]):
    """An object that remembers a key that occurs twice."""

    __slots__ = ("twice",)

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        self.twice: str | None = None
        if len(self) < len(pairs):
            self.twice = Counter(key for key, _ in pairs).most_common(1)[0][0]


_KINDS: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    _Number: "a number",
    str: "text",
    list: "a list",
    _Object: "an object",
}


def read(text: str, gathering: Gathering, channel: Channel) -> None:
    """Gather the hosts of a list of objects."""
    root = _parsed(text, gathering)
    try:
        items = _items(root)
    except InvalidInput as error:
        gathering.stop(1, str(error))
    for at, (line, item) in enumerate(zip(_lines(text, len(items)), items, strict=True)):
        with gathering.at(line):
            gathering.add(line, _host(f"hosts[{at}]", item, channel))


def _parsed(text: str, gathering: Gathering) -> object:
    try:
        return json.loads(
            text,
            object_pairs_hook=_Object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_Constant,
        )
    except json.JSONDecodeError as error:
        gathering.stop(error.lineno, f"this is not JSON: {error.msg} at column {error.colno}")
    except RecursionError:
        gathering.stop(1, "it is nested too deep to be a list of hosts")


def _items(root: object) -> list[object]:
    if isinstance(root, _Object):
        if _ANSIBLE in root:
            raise InvalidInput(
                _ANSIBLE,
                "this is of ansible-inventory; let it print YAML (--list --yaml) and import that",
            )
        _check_keys("inventory", root, ("hosts",))
        root = root.get("hosts")
    if not isinstance(root, list):
        raise InvalidInput(
            "inventory", 'expected a list of hosts, or an object such as {"hosts": [...]}'
        )
    return root


def _lines(text: str, count: int) -> Iterator[int]:
    """The line in which each item of the list begins."""
    # No key before the list has a bracket in it, so the first one begins the list.
    line, counted, at = 1, 0, text.find("[") + 1
    for _ in range(count):
        found = _BETWEEN(text, at)
        begin = found.end() if found else at
        line, counted = line + text.count("\n", counted, begin), begin
        yield line
        _, at = _SKIPPING.raw_decode(text, begin)


def _host(where: str, item: object, channel: Channel) -> NewHost:
    if not isinstance(item, _Object):
        raise InvalidInput(
            where, f"expected an object with {', '.join(_FIELDS)}, not {_kind(item)}"
        )
    _check_keys(where, item, _FIELDS)
    if "name" not in item:
        raise InvalidInput(f"{where}.name", "is missing")
    labels = _labels(f"{where}.labels", item.get("labels", _Object([])))
    name, address, wanted = (
        _text(f"{where}.{field}", item.get(field, default))
        for field, default in (("name", ""), ("address", ""), ("channel", channel))
    )
    try:
        return new_host(name, labels=labels, channel=wanted, address=address)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.{error.field}", error.problem) from None


def _labels(where: str, value: object) -> Mapping[str, str]:
    if not isinstance(value, _Object):
        raise InvalidInput(where, f"expected an object, not {_kind(value)}")
    _check_twice(where, value)
    return {key: _label(where, key, item) for key, item in value.items()}


def _label(where: str, key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise InvalidInput(
            where, f"{shown(key)} is {_kind(value)}; a label is text, a number or a boolean"
        )
    return str(value)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise InvalidInput(where, f"expected text, not {_kind(value)}")
    return value


def _check_keys(where: str, value: _Object, known: tuple[str, ...]) -> None:
    _check_twice(where, value)
    for key in value:
        if key not in known:
            raise InvalidInput(where, f"{shown(key)} is not one of {', '.join(known)}")


def _check_twice(where: str, value: _Object) -> None:
    if value.twice is not None:
        raise InvalidInput(where, f"the key {shown(value.twice)} is there twice; keep one")


def _kind(value: object) -> str:
    if isinstance(value, _Constant):
        return f"{value.name}, which JSON has not"
    return _KINDS[type(value)]
