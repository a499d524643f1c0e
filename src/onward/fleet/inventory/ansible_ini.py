"""Ansible inventories in INI: hosts by section, and sections for the children and variables.

    lone.example.com                                   in no group
    [web]
    web[01:20].example.com rack=7 title="front door"   # a comment
    [web:vars]
    zone=eu
    [prod:children]
    web

A line that begins with # or ; is a comment. Behind a host, a # begins one as well; behind a
variable of a group it is part of the value, as it is for Ansible.
"""

from __future__ import annotations

import re
import shlex
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.hosts import Channel
from onward.fleet.inventory.ansible_ways import Variable
from onward.fleet.inventory.gathering import Gathering
from onward.fleet.inventory.groups import UNGROUPED, Groups, plain
from onward.store.inputs import shown

_HEADING = re.compile(r"\[[^\]]*\]?\s*(?:#.*)?").fullmatch
_SECTION = re.compile(r"\[([^:\]\s]+)(?::([^:\]\s]+))?\]\s*(?:#.*)?").fullmatch
_KINDS: Final = ("hosts", "vars", "children")
_LINE_MAX: Final = 65_536
_SHELL: Final = "\"'\\#"  # what a shell would see something in


class _Section(NamedTuple):
    group: str
    kind: str | None  # None when it cannot be read, and what stands below it is passed over


def read(text: str, gathering: Gathering, channel: Channel) -> None:
    """Gather the hosts of an inventory in INI."""
    groups = Groups(gathering, channel)
    section = _Section(UNGROUPED, "hosts")
    for number, written in enumerate(text.split("\n"), start=1):
        line = written.strip()
        if not line or line[0] in "#;":
            continue
        with gathering.at(number):
            if len(line) > _LINE_MAX:
                raise InvalidInput("line", f"{len(line)} characters are more than {_LINE_MAX}")
            if _HEADING(line):
                section = _Section(section.group, None)
                section = _opened(number, line, groups)
            else:
                _take(number, line, section, groups)
    groups.finish()


def _opened(number: int, line: str, groups: Groups) -> _Section:
    found = _SECTION(line)
    if not found:
        raise InvalidInput("section", f"{shown(line)} is none; write [group] or [group:vars]")
    group, kind = found[1], found[2] or "hosts"
    if kind not in _KINDS:
        raise InvalidInput("section", f"{shown(kind)} is not one of {', '.join(_KINDS)}")
    # A group that is only given variables has to be made elsewhere: it may be misspelt.
    if kind != "vars":
        groups.make(number, group)
    return _Section(group, kind)


def _take(number: int, line: str, section: _Section, groups: Groups) -> None:
    match section.kind:
        case "hosts":
            text, *words = _words(line)
            _refuse_yaml(text)
            given = [_variable(number, word) for word in words]
            groups.hosts(number, text, group=section.group, given=given)
        case "vars":
            key, variable = _variable(number, line)
            groups.variables(number, section.group, [(key, _unquoted(variable))])
        case "children":
            groups.child(number, line.partition("#")[0].strip(), of=section.group)
        case _:
            pass


def _words(line: str) -> list[str]:
    # Most lines have nothing that a shell would see, and reading it as one does is slow.
    if not any(sign in line for sign in _SHELL):
        return line.split()
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise InvalidInput(
            "host", f"{error}; close the quote, or put the value in quotes"
        ) from None
    if not words or not words[0]:
        raise InvalidInput("host", f"{shown(line)} names no host")
    return words


def _refuse_yaml(text: str) -> None:
    # The keys of a YAML file would pass for hosts with a colon in their names.
    if text.endswith(":") and not text.endswith("::"):
        raise InvalidInput("host", f"{shown(text)} ends with a colon; is the file in YAML?")


def _variable(number: int, word: str) -> tuple[str, Variable]:
    key, equals, value = word.partition("=")
    if not equals or not key.strip():
        raise InvalidInput("variable", f"{shown(word)} is none; write it as key=value")
    return key.strip(), Variable(_single(value.strip()), number)


def _single(value: str) -> str | None:
    """The value, unless it is a list or a mapping."""
    return None if value[:1] in {"[", "{", "("} else plain(value)


def _unquoted(variable: Variable) -> Variable:
    text = variable.text
    if text and len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return variable._replace(text=text[1:-1])
    return variable
