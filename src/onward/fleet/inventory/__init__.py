"""Reads lists of hosts that people already have: CSV, JSON, and Ansible's inventories.

Theory. An inventory is text in, hosts out, and nothing else happens. Whoever has read one hands
the hosts to `onward.store.hosts.import_all`.

    csv      name,address,channel,labels,role         a row a host; other columns are labels
             web1,10.0.0.1,ssh,zone=eu;rack=7,web
    json     [{"name": "web1", "address": "10.0.0.1", "channel": "ssh", "labels": {"rack": 7}}]
             {"hosts": [...]}
    ansible  [web]                                    INI, or YAML with all: hosts, children, vars
             web[01:20].example.com ansible_port=2222 rack=7

Rule 1. All or nothing: a list of hosts, or one `InvalidInput` with everything that is wrong, each
        with its place (`line 7`, `hosts[6]`) and what to do, the first twenty of them.
Rule 2. Whatever the bytes, there is no other exception, and the work is bounded by `MAX_CHARACTERS`
        of text, `MAX_HOSTS` hosts and `MAX_ALL_LABELS` labels, however small the text that asks
        for more.
Rule 3. A value is kept as it is written: `1.10` does not become `1.1`, nor `yes` `true`.
Rule 4. A host that occurs twice and says the same is one host. One that contradicts itself is an
        error that names both places.
Rule 5. A host that names no channel gets the one that the caller names.
Rule 6. No secret becomes a label. No variable `ansible_*` does, nor does one whose name speaks of
        passwords, keys or tokens, nor an encrypted value. In the forms of our own, which say
        `labels`, only names that begin with `ansible_` are refused.

What a form means in detail is said where it is read: `tables` (CSV), `objects` (JSON), and for
Ansible `groups`, which also says what labels the groups of a host become.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from onward.errors import InvalidInput
from onward.fleet.inventory import ansible_ini, ansible_yaml, checks, objects, tables
from onward.fleet.inventory.checks import CHANNELS, MAX_ALL_LABELS, MAX_HOSTS
from onward.fleet.inventory.gathering import Gathering
from onward.fleet.inventory.groups import Groups
from onward.fleet.inventory.guessing import guess, is_yaml
from onward.store.hosts import NewHost

__all__ = [
    "CHANNELS",
    "FORMS",
    "MAX_ALL_LABELS",
    "MAX_CHARACTERS",
    "MAX_HOSTS",
    "NewHost",
    "read",
]

MAX_CHARACTERS: Final = 16 * 1024 * 1024
_NO_TEXT = re.compile("[\0\ud800-\udfff]").search


def read(
    text: str | bytes, form: str | None = None, *, channel: str = "simulated"
) -> list[NewHost]:
    """Return the hosts of an inventory in the order in which they occur, or say what is wrong.

    Without a form it is guessed from the content. `channel` is for hosts that name none.
    """
    checks.channel("channel", channel)
    if form is not None and form not in FORMS:
        raise InvalidInput("form", f"{form!a} is not one of {', '.join(FORMS)}")
    plain = _plain(text)
    gathering = Gathering()
    _READERS[form or guess(plain)](plain, gathering, channel)
    return gathering.hosts()


def _plain(text: str | bytes) -> str:
    """Return the text without a byte order mark, or refuse what no form can hold."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(
            "inventory", f"{len(text)} characters are more than {MAX_CHARACTERS}; split it"
        )
    plain = (_decoded(text) if isinstance(text, bytes) else text).removeprefix("\ufeff")
    if found := _NO_TEXT(plain):
        raise InvalidInput(
            _line_of(plain, found.start()),
            f"has {found[0]!a}, which is no text; save the file as UTF-8",
        )
    return plain


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        before = text[: error.start].decode()
        raise InvalidInput(
            _line_of(before, len(before)), "is not UTF-8; save the file as UTF-8"
        ) from None


def _line_of(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1}"


def _read_ansible(text: str, gathering: Gathering, channel: str) -> None:
    groups = Groups(gathering, channel)
    (ansible_yaml if is_yaml(text) else ansible_ini).read(text, groups, gathering)
    groups.finish()


_READERS: Final[Mapping[str, Callable[[str, Gathering, str], None]]] = MappingProxyType(
    {"csv": tables.read, "json": objects.read, "ansible": _read_ansible}
)
FORMS: Final = tuple(_READERS)
