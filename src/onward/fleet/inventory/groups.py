"""The groups of an Ansible inventory, their variables, and the hosts that come out of them.

What becomes of it, in INI and YAML alike:

1. A host's name is its name in the inventory. Its address is `ansible_host`, and `ansible_port`
   behind it when there is one (behind the name, when there is no `ansible_host`). Its channel is
   `ansible_connection` when that is one of ours. Over SSH, `ansible_user` and the machines on the
   way (`-J` or `ProxyJump` in `ansible_ssh_common_args`) are a part of the address.
2. Every group that a host is in, through child groups as well, is a label `group.<name>` with the
   value `true`: select them by `has group.web`. `all` and `ungrouped` are none.
3. Every other variable is a label, if it is a single value that a label can hold. Lists, mappings,
   templates ({{ … }}), encrypted values and texts of many lines or characters are left out: they
   were written for another program. So are the variables that may be secret.
4. The value of a variable is the host's own, or that of the nearest group: a child goes before its
   parents, then a higher `ansible_group_priority`, then the later name.
5. A host may be named many times, and has the groups and variables of all of them. Two values for
   one variable are a contradiction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.hosts import (
    CHANNELS,
    MAX_LABELS,
    RESERVED,
    Channel,
    checked_channel,
    host_name,
    is_label_value,
    label_key,
    new_host,
)
from onward.fleet.inventory.ansible_ways import FORMER, PORT, WAYS, Variable, address, number
from onward.fleet.inventory.gathering import Gathering
from onward.fleet.inventory.ranges import Pattern, pattern
from onward.store.hosts import NewHost
from onward.store.inputs import shown

ALL: Final = "all"
UNGROUPED: Final = "ungrouped"
_MARK: Final = "group."
_CONNECTION: Final = "ansible_connection"
_PRIORITY: Final = "ansible_group_priority"
_USED: Final = WAYS | {_CONNECTION, _PRIORITY}
# A label that is missing is a nuisance; a secret that everybody can read is a leak.
_SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|private|vault|api_?key"
    r"|(?:^|[_.-])(?:pass|pwd|pw|keys?|pin|auth)(?:[_.-]|$)",
    re.IGNORECASE,
).search
_TEMPLATE = re.compile(r"\{[{%#]").search
_ENCRYPTED: Final = "$ANSIBLE_VAULT"


Variables = dict[str, Variable]


@dataclass(slots=True)
class _Group:
    line: int  # where it was first spoken of
    made: bool = False
    variables: Variables = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Member:
    line: int
    groups: set[str] = field(default_factory=set)
    variables: Variables = field(default_factory=dict)


@dataclass(slots=True)
class _Place:
    """Where a group stands: how deep below `all`, and the groups that it is in, itself too."""

    depth: int
    within: set[str]


class _Inherited(NamedTuple):
    """What all hosts in the same groups have in common."""

    groups: dict[str, str]  # as labels
    variables: Variables


class Groups:
    """The groups and hosts of one inventory, as far as it is read."""

    def __init__(self, gathering: Gathering, channel: Channel) -> None:
        self._gathering = gathering
        self._channel = channel
        self._groups = {name: _Group(1, made=True) for name in (ALL, UNGROUPED)}
        self._members: dict[str, _Member] = {}
        self._inherited: dict[tuple[str, ...], _Inherited] = {}

    def make(self, line: int, name: str) -> None:
        """Make a group."""
        self._group(line, name).made = True

    def child(self, line: int, name: str, *, of: str) -> None:
        """Put a group into another, which may both come later."""
        if name == ALL:
            raise InvalidInput("children", f"{ALL!r} cannot be in another group; remove it")
        self._group(line, of)
        self._group(line, name).parents.add(of)

    def variables(self, line: int, group: str, given: Iterable[tuple[str, Variable]]) -> None:
        """Give variables to a group, which may come later."""
        self._merge(self._group(line, group).variables, _chosen(given))

    def hosts(
        self, line: int, text: str, *, group: str, given: Iterable[tuple[str, Variable]]
    ) -> None:
        """Put the hosts of a pattern into a group, with these variables."""
        found = pattern(text)
        self._gathering.check_count(line, found.size)
        own: Variables = {}
        self._merge(own, _chosen([*_of_port(line, found), *given]))
        self._gathering.spend(line, found.size * (1 + len(own)))
        for name in found.names():
            member = self._members.get(name)
            if member is None:
                member = self._members[host_name("host", name)] = _Member(line)
            member.groups.add(group)
            self._merge(member.variables, own.items())
        self._gathering.check_count(line, len(self._members))

    def finish(self) -> None:
        """Hand every host to the gathering, with what its groups give it."""
        for name, group in self._groups.items():
            if not group.made:
                self._gathering.refuse(group.line, f"there is no group {shown(name)}; make it")
        places = self._places()
        for name, member in self._members.items():
            inherited = self._inherited_by(member, places)
            with self._gathering.at(member.line):
                self._gathering.add(member.line, self._host(name, member, inherited))

    def _group(self, line: int, name: str) -> _Group:
        if name not in self._groups:
            label_key("group", f"{_MARK}{name}")
            self._groups[name] = _Group(line)
        return self._groups[name]

    def _merge(self, variables: Variables, given: Iterable[tuple[str, Variable]]) -> None:
        for key, variable in given:
            former = variables.setdefault(key, variable)
            if former.text != variable.text:
                self._gathering.refuse(
                    variable.line,
                    f"{key} is {_said(variable)} here and {_said(former)} in line {former.line}; "
                    "keep one",
                )

    def _places(self) -> dict[str, _Place]:
        """Parents come before their children; what is left over then is in a circle."""
        waiting = {name: len(group.parents) for name, group in self._groups.items()}
        children: dict[str, list[str]] = {name: [] for name in self._groups}
        for name, group in self._groups.items():
            for parent in group.parents:
                children[parent].append(name)
        places = {name: _Place(int(name != ALL), {name}) for name in self._groups}
        ready = [name for name, count in waiting.items() if not count]
        for name in ready:
            self._check_within(name, places[name])
            for child in children[name]:
                self._gathering.spend(self._groups[child].line, len(places[name].within))
                places[child].depth = max(places[child].depth, places[name].depth + 1)
                places[child].within |= places[name].within
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
        self._refuse_circles(name for name, count in waiting.items() if count)
        return places

    def _check_within(self, name: str, place: _Place) -> None:
        if len(place.within) > MAX_LABELS:
            self._gathering.stop(
                self._groups[name].line, f"the group {shown(name)} is in too many groups"
            )

    def _refuse_circles(self, names: Iterable[str]) -> None:
        for name in names:
            self._gathering.stop(
                self._groups[name].line,
                f"the group {shown(name)} is, through its children, in itself; take it out of one",
            )

    def _inherited_by(self, member: _Member, places: Mapping[str, _Place]) -> _Inherited:
        direct = tuple(sorted(member.groups - {ALL, UNGROUPED})) or (UNGROUPED,)
        if direct not in self._inherited:
            self._gathering.spend(member.line, sum(len(places[name].within) for name in direct))
            within = {ALL}.union(*(places[name].within for name in direct))
            order = sorted((places[name].depth, self._priority(name), name) for name in within)
            variables: Variables = {}
            for _, _, name in order:
                self._gathering.spend(member.line, len(self._groups[name].variables))
                variables.update(self._groups[name].variables)
            labels = {f"{_MARK}{name}": "true" for name in sorted(within - {ALL, UNGROUPED})}
            self._inherited[direct] = _Inherited(labels, variables)
        return self._inherited[direct]

    def _priority(self, name: str) -> int:
        priority = 1
        if variable := self._groups[name].variables.get(_PRIORITY):
            with self._gathering.at(variable.line):
                priority = number(_PRIORITY, variable, maximum=1_000_000)
        return priority

    def _host(self, name: str, member: _Member, inherited: _Inherited) -> NewHost:
        self._gathering.spend(member.line, len(inherited.variables) + len(member.variables))
        variables = {**inherited.variables, **member.variables}
        labels = dict(inherited.groups)
        for key, variable in variables.items():
            if key not in _USED and variable.text is not None:
                labels[key] = variable.text
        connection = variables.get(_CONNECTION, Variable(None, 0)).text
        known = connection in CHANNELS
        channel = checked_channel(_CONNECTION, connection) if known else self._channel
        return new_host(
            name, labels=labels, channel=channel, address=address(name, variables, channel=channel)
        )


def _chosen(given: Iterable[tuple[str, Variable]]) -> Iterator[tuple[str, Variable]]:
    """The variables that mean something to us, by their present names."""
    for written, variable in given:
        key = FORMER.get(written, written)
        if key in _USED or _may_be_label(key):
            yield key, variable


def _of_port(line: int, found: Pattern) -> list[tuple[str, Variable]]:
    return [] if found.port is None else [(PORT, Variable(found.port, line))]


def plain(text: str) -> str | None:
    """Return a value that a label can hold, or `None`."""
    if text.startswith(_ENCRYPTED) or _TEMPLATE(text) or not is_label_value(text):
        return None
    return text


def _may_be_label(key: str) -> bool:
    if key.startswith(RESERVED) or key == "name" or _SECRET(key):
        return False
    if key.startswith(_MARK):
        raise InvalidInput(shown(key), f"names that begin with {_MARK} are for groups; rename it")
    label_key("variable", key)
    return True


def _said(variable: Variable) -> str:
    return "no plain text" if variable.text is None else shown(variable.text)
