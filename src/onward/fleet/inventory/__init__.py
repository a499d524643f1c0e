"""Reads lists of hosts that people already have: CSV, JSON, Ansible's and OpenSSH's.

Theory. An inventory is text in, hosts out, and nothing else happens. Whoever has read one hands
the hosts to `onward.store.hosts.import_all`.

    csv   name,address,channel,labels,role         a row a host; other columns are labels
          web1,10.0.0.1,ssh,zone=eu;rack=7,web
    json  [{"name": "web1", "address": "10.0.0.1", "channel": "ssh", "labels": {"rack": 7}}]
          {"hosts": [...]}
    ini   [web]                                    as Ansible has it, and
          web[01:20].example.com ansible_port=2222 rack=7
    yaml  all: {hosts: ..., children: ..., vars: ...}
    ssh_config  Host web1                          as OpenSSH has it
                    HostName 10.0.0.1

Rule 1. All or nothing: a list of hosts, or everything that is wrong, each with its line and what
        to do about it. An inventory without a host is wrong.
Rule 2. Whatever the bytes, nothing is raised, and the work is bounded by `MAX_BYTES` of text,
        `MAX_HOSTS` hosts, `MAX_STEPS` and `MAX_LABEL_CHARACTERS`, however small the text that asks
        for more.
Rule 3. A value is kept as it is written: `1.10` does not become `1.1`, nor `yes` `true`.
Rule 4. A host that occurs twice and says the same is one host. One that contradicts itself is a
        mistake that names both lines.
Rule 5. A host that names no channel gets the one that the caller names.
Rule 6. No secret becomes a label. No variable `ansible_*` does, nor does one whose name speaks of
        passwords, keys or tokens, nor an encrypted value. In the forms of our own, which say
        `labels`, only names that begin with `ansible_` are refused.

What a form means in detail is said where it is read: `tables` (CSV), `objects` (JSON),
`ssh_config`, and for Ansible `groups`, which also says what labels the groups of a host become.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, Literal

from onward.fleet.hosts import Channel
from onward.fleet.inventory import ansible_ini, ansible_yaml, objects, ssh_config, tables
from onward.fleet.inventory.gathering import (
    MAX_HOSTS,
    MAX_LABEL_CHARACTERS,
    MAX_MISTAKES,
    MAX_STEPS,
    MISTAKES_SHOWN,
    Gathering,
    Inventory,
    Mistake,
    Stopped,
)

__all__ = [
    "MAX_BYTES",
    "MAX_HOSTS",
    "MAX_LABEL_CHARACTERS",
    "MAX_MISTAKES",
    "MAX_STEPS",
    "MISTAKES_SHOWN",
    "Form",
    "Inventory",
    "Mistake",
    "read",
]

Form = Literal["csv", "json", "ini", "yaml", "ssh_config"]
Reader = Callable[[str, Gathering, Channel], None]

MAX_BYTES: Final = 16 * 1024 * 1024
_ENCRYPTED: Final = "$ANSIBLE_VAULT"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]").search

_READERS: Final[Mapping[Form, Reader]] = MappingProxyType(
    {
        "csv": tables.read,
        "json": objects.read,
        "ini": ansible_ini.read,
        "yaml": ansible_yaml.read,
        "ssh_config": ssh_config.read,
    }
)


def read(content: bytes, form: Form, *, channel: Channel = "simulated") -> Inventory:
    """Return the hosts of an inventory, or what is wrong with it.

    `channel` is for hosts that name none.
    """
    gathering = Gathering()
    with suppress(Stopped):
        _READERS[form](_plain(content, gathering), gathering, channel)
    return gathering.inventory()


def _plain(content: bytes, gathering: Gathering) -> str:
    """Return the text with one kind of line ends, and refuse what no form can hold."""
    if len(content) > MAX_BYTES:
        gathering.stop(1, f"{len(content):,} bytes are more than {MAX_BYTES:,}; split it")
    text = _decoded(content, gathering).removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.startswith(_ENCRYPTED):
        gathering.stop(1, "it is encrypted; decrypt it first with `ansible-vault decrypt`")
    if found := _CONTROL(text):
        gathering.stop(
            _line_at(text, found.start()), f"there is a control character, {found[0]!a}; remove it"
        )
    return text


def _decoded(content: bytes, gathering: Gathering) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        gathering.stop(line, "it is not UTF-8; save the file as UTF-8")


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
