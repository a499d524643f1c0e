"""Inventories in JSON: a list of hosts, or an object with `hosts`.

    name      text; it must be there
    address   text
    channel   text
    labels    an object of texts, numbers and booleans; the last two are kept as they are written

As in the API, nothing else may be there, no key may occur twice, and NaN is not a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NoReturn

from onward.errors import InvalidInput
from onward.fleet.inventory import checks
from onward.fleet.inventory.gathering import Gathering
from onward.store.hosts import NewHost
from onward.store.inputs import shown

_FIELDS: Final = ("name", "address", "channel", "labels")
_ANSIBLE: Final = "_meta"  # what `ansible-inventory --list` prints has it, and is not read here


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Object(dict[str, object]):
    """An object that remembers which of its keys occur twice."""

    __slots__ = ("twice",)

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        seen: set[str] = set()
        self.twice = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]  # it returns None, which is not true


def read(text: str, gathering: Gathering, channel: str) -> None:
    """Gather the hosts of a list of objects."""
    for at, item in enumerate(_items(_parsed(text))):
        place = f"hosts[{at}]"
        with gathering.at(place):
            gathering.add(place, _host(item, channel))


def _parsed(text: str) -> object:
    try:
        return json.loads(
            text,
            object_pairs_hook=_Object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"line {error.lineno}", f"is not JSON: {error.msg} at column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidInput("inventory", "is nested too deep to be a list of hosts") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise InvalidInput("inventory", f"{constant} is not a number that JSON has; write it as text")


def _items(root: object) -> list[object]:
    if isinstance(root, _Object):
        if _ANSIBLE in root:
            raise InvalidInput(
                _ANSIBLE,
                "is of ansible-inventory; let it print YAML instead (--list --yaml) and read that",
            )
        _check_keys("inventory", root, ("hosts",))
        root = root.get("hosts")
    if not isinstance(root, list):
        raise InvalidInput(
            "inventory", 'expected a list of hosts, or an object such as {"hosts": [...]}'
        )
    return root


def _host(item: object, channel: str) -> NewHost:
    if not isinstance(item, _Object):
        raise InvalidInput("host", f"expected an object with {', '.join(_FIELDS)}")
    _check_keys("host", item, _FIELDS)
    if "name" not in item:
        raise InvalidInput("name", "is missing")
    return NewHost(
        checks.host_name("name", _text("name", item["name"])),
        checks.labels("labels", _labels(item.get("labels", _Object([])))),
        checks.channel("channel", _text("channel", item.get("channel", channel))),
        checks.address("address", _text("address", item.get("address", ""))),
    )


def _labels(value: object) -> Mapping[str, str]:
    if not isinstance(value, _Object):
        raise InvalidInput("labels", f"expected an object, not {_kind(value)}")
    _check_twice("labels", value)
    return {key: _label(f"labels.{key}", item) for key, item in value.items()}


def _label(field: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise InvalidInput(field, f"expected text, a number or a boolean, not {_kind(value)}")
    return str(value)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise InvalidInput(field, f"expected text, not {_kind(value)}")
    return value


def _check_keys(field: str, value: _Object, known: tuple[str, ...]) -> None:
    _check_twice(field, value)
    for key in value:
        if key not in known:
            raise InvalidInput(field, f"{shown(key)} is not one of {', '.join(known)}")


def _check_twice(field: str, value: _Object) -> None:
    if value.twice:
        raise InvalidInput(field, f"the key {shown(value.twice[0])} is there twice; keep one")


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case _Number():
            return "a number"
        case str():
            return "text"
        case _Object():
            return "an object"
        case _:
            return "a list"
