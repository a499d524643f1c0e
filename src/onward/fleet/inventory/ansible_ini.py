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

import io
import re
import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.inventory.gathering import Gathering
from onward.fleet.inventory.groups import UNGROUPED, Groups, Variable, plain
from onward.store.inputs import shown

_SECTION = re.compile(r"\[([^:\]\s]+)(?::([^:\]\s]+))?\]\s*(?:#.*)?").fullmatch
_HEADING = re.compile(r"\[[^\]]*\]?\s*(?:#.*)?").fullmatch
_KINDS: Final = ("hosts", "vars", "children")
_LINE_MAX: Final = 65_536


class _Section(NamedTuple):
    group: str
    kind: str | None  # None when it cannot be read, and what stands below it is passed over


def read(text: str, groups: Groups, gathering: Gathering) -> None:
    """Tell the groups what an inventory in INI says."""
    section = _Section(UNGROUPED, "hosts")
    for number, written in enumerate(io.StringIO(text, newline=None), start=1):
        place, line = f"line {number}", written.strip()
        if not line or line[0] in "#;":
            continue
        with gathering.at(place):
            if len(line) > _LINE_MAX:
                raise InvalidInput("line", f"{len(line)} characters are more than {_LINE_MAX}")
            if _SECTION(line) or _HEADING(line):
                section = _Section(section.group, None)
                section = _opened(place, line, groups)
            else:
                _take(place, line, section, groups)


def _opened(place: str, line: str, groups: Groups) -> _Section:
    found = _SECTION(line)
    if not found:
        raise InvalidInput("section", f"{shown(line)} is none; write [group] or [group:vars]")
    group, kind = found[1], found[2] or "hosts"
    if kind not in _KINDS:
        raise InvalidInput("section", f"{shown(kind)} is not one of {', '.join(_KINDS)}")
    # A group that is only given variables has to be made elsewhere: it may be misspelt.
    if kind != "vars":
        groups.group(place, group)
    return _Section(group, kind)


def _take(place: str, line: str, section: _Section, groups: Groups) -> None:
    match section.kind:
        case "hosts":
            text, *words = _words(line)
            given = [_variable(place, word) for word in words]
            groups.hosts(place, text, group=section.group, given=given)
        case "vars":
            key, variable = _variable(place, line)
            groups.variables(place, section.group, [(key, _unquoted(variable))])
        case "children":
            groups.child(place, line.partition("#")[0].strip(), of=section.group)
        case _:
            pass


def _words(line: str) -> list[str]:
    # Most lines have nothing that a shell would see, and reading it as one does is slow.
    if not any(sign in line for sign in "\"'\\#"):
        return line.split()
    try:
        return list(_shell_words(line))
    except ValueError as error:
        raise InvalidInput(
            "host", f"{error}; close the quote, or put the value in quotes"
        ) from None


def _shell_words(line: str) -> Iterator[str]:
    words = shlex.split(line, comments=True)
    if not words:
        raise InvalidInput("host", f"{shown(line)} names no host")
    return iter(words)


def _variable(place: str, word: str) -> tuple[str, Variable]:
    key, equals, value = word.partition("=")
    if not equals or not key.strip():
        raise InvalidInput("variable", f"{shown(word)} is none; write it as key=value")
    return key.strip(), Variable(_single(value.strip()), place)


def _single(value: str) -> str | None:
    """The value, unless it is a list or a mapping."""
    return None if value[:1] in {"[", "{", "("} else plain(value)


def _unquoted(variable: Variable) -> Variable:
    text = variable.text
    if text and len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return variable._replace(text=text[1:-1])
    return variable
