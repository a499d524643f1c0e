"""The groups of an Ansible inventory, their variables, and the hosts that come out of them.

What becomes of it, in INI and YAML alike:

1. A host's name is its name in the inventory. Its address is `ansible_host`, and `ansible_port`
   behind it when there is one (behind the name, when there is no `ansible_host`). Its channel is
   `ansible_connection` when that is one of ours.
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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.inventory import checks
from onward.fleet.inventory.checks import CHANNELS, MAX_LABELS
from onward.fleet.inventory.gathering import Gathering
from onward.fleet.inventory.ranges import Pattern, pattern
from onward.store.hosts import NewHost
from onward.store.inputs import shown

ALL: Final = "all"
UNGROUPED: Final = "ungrouped"
_MARK: Final = "group."
_HOST: Final = "ansible_host"
_PORT: Final = "ansible_port"
_CONNECTION: Final = "ansible_connection"
_PRIORITY: Final = "ansible_group_priority"
_FORMER: Final = {"ansible_ssh_host": _HOST, "ansible_ssh_port": _PORT}
_USED: Final = frozenset({_HOST, _PORT, _CONNECTION, _PRIORITY})
# A label that is missing is a nuisance; a secret that everybody can read is a leak.
_SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|private|vault|api_?key"
    r"|(?:^|[_.-])(?:pass|pwd|pw|keys?|pin|auth)(?:[_.-]|$)",
    re.IGNORECASE,
).search
_TEMPLATE = re.compile(r"\{[{%#]").search
_ENCRYPTED: Final = "$ANSIBLE_VAULT"
_PORT_MAX: Final = 65_535


class Variable(NamedTuple):
    """A value as it is written, or `None` for what is not a single text; and where it stands."""

    text: str | None
    place: str


Variables = dict[str, Variable]


@dataclass(slots=True)
class _Group:
    named: str  # where it was first spoken of
    made: bool = False
    variables: Variables = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)  # and where that is said


@dataclass(slots=True)
class _Member:
    place: str
    groups: dict[str, None] = field(default_factory=dict)
    variables: Variables = field(default_factory=dict)


class _Inherited(NamedTuple):
    """What all hosts in the same groups have in common."""

    groups: dict[str, str]  # as labels
    variables: Variables


class Groups:
    """The groups and hosts of one inventory, as far as it is read."""

    def __init__(self, gathering: Gathering, channel: str) -> None:
        self._gathering = gathering
        self._channel = channel
        self._groups = {name: _Group("line 1", made=True) for name in (ALL, UNGROUPED)}
        self._members: dict[str, _Member] = {}
        self._inherited: dict[tuple[str, ...], _Inherited] = {}

    def group(self, place: str, name: str) -> None:
        """Make a group."""
        self._group(place, name).made = True

    def child(self, place: str, name: str, *, of: str) -> None:
        """Put a group into another, which may both come later."""
        if name == ALL:
            raise InvalidInput("children", f"{ALL!r} cannot be in another group; remove it")
        self._group(place, of)
        self._group(place, name).parents.setdefault(of, place)

    def variables(self, place: str, group: str, given: Iterable[tuple[str, Variable]]) -> None:
        """Give variables to a group, which may come later."""
        self._set(self._group(place, group).variables, given)

    def hosts(
        self, place: str, text: str, *, group: str, given: Iterable[tuple[str, Variable]]
    ) -> None:
        """Put the hosts of a pattern into a group, with these variables."""
        found = pattern(text)
        if not self._gathering.has_room(place, found.size, taken=len(self._members)):
            return
        own: Variables = {}
        self._set(own, [*_of_port(place, found), *given])
        for name in found.names():
            member = self._members.get(name)
            if member is None:
                checks.host_name("host", name)
                member = self._members[name] = _Member(place)
            member.groups[group] = None
            if own:
                self._set(member.variables, own.items())

    def finish(self) -> None:
        """Hand every host to the gathering, with what its groups give it."""
        for name, group in self._groups.items():
            if not group.made:
                self._gathering.refuse(group.named, f"there is no group {shown(name)}; make it")
        order = self._ordered()
        for name, member in self._members.items():
            inherited = self._inherited_by(member, order)
            with self._gathering.at(member.place):
                self._gathering.add(member.place, self._host(name, member, inherited))

    def _group(self, place: str, name: str) -> _Group:
        if name not in self._groups:
            checks.label_key("group", f"{_MARK}{name}")
            self._groups[name] = _Group(place)
        return self._groups[name]

    def _set(self, variables: Variables, given: Iterable[tuple[str, Variable]]) -> None:
        for written, variable in given:
            key = _FORMER.get(written, written)
            if key not in _USED and not _may_be_label(key):
                continue
            former = variables.setdefault(key, variable)
            if former.text != variable.text:
                self._gathering.refuse(
                    variable.place,
                    f"{key} is {_said(variable)} here and {_said(former)} in {former.place}; "
                    "keep one",
                )

    def _ordered(self) -> dict[str, tuple[int, set[str]]]:
        """For each group, how deep it is below `all`, and the groups that it is in, itself too.

        Parents come before their children; what is left over then is in a circle.
        """
        waiting = {name: len(group.parents) for name, group in self._groups.items()}
        children: dict[str, list[str]] = {name: [] for name in self._groups}
        for name, group in self._groups.items():
            for parent in group.parents:
                children[parent].append(name)
        found = {name: (int(name != ALL), {name}) for name in self._groups}
        ready = [name for name, count in waiting.items() if not count]
        for name in ready:
            depth, within = found[name]
            for child in children[name]:
                found[child] = (max(found[child][0], depth + 1), found[child][1] | within)
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
            if len(within) > MAX_LABELS:
                raise InvalidInput(
                    self._groups[name].named, f"the group {shown(name)} is in too many groups"
                )
        if circle := [name for name, count in waiting.items() if count]:
            raise InvalidInput(
                self._groups[circle[0]].named,
                f"the group {shown(circle[0])} is, through its children, in itself; "
                "take it out of one",
            )
        return found

    def _inherited_by(
        self, member: _Member, order: Mapping[str, tuple[int, set[str]]]
    ) -> _Inherited:
        direct = tuple(sorted(set(member.groups) - {ALL, UNGROUPED})) or (UNGROUPED,)
        if direct not in self._inherited:
            within = {ALL}.union(*(order[name][1] for name in direct))
            variables: Variables = {}
            for name in sorted(
                within, key=lambda name: (order[name][0], self._priority(name), name)
            ):
                variables.update(self._groups[name].variables)
            labels = {f"{_MARK}{name}": "true" for name in sorted(within - {ALL, UNGROUPED})}
            self._inherited[direct] = _Inherited(labels, variables)
        return self._inherited[direct]

    def _priority(self, name: str) -> int:
        variable = self._groups[name].variables.get(_PRIORITY)
        if variable is None:
            return 1
        priority = 1
        with self._gathering.at(variable.place):
            priority = _number(_PRIORITY, variable, maximum=1_000_000)
        return priority  # noqa: RET504 - what is wrong with a number is gathered, not raised

    def _host(self, name: str, member: _Member, inherited: _Inherited) -> NewHost:
        variables = {**inherited.variables, **member.variables}
        labels = dict(inherited.groups)
        for key, variable in variables.items():
            if key not in _USED and variable.text is not None:
                labels[key] = variable.text
        connection = variables.get(_CONNECTION, Variable(None, "")).text
        return NewHost(
            name,
            checks.labels("labels", labels),
            connection if connection in CHANNELS else self._channel,
            _address(name, variables),
        )


def _of_port(place: str, found: Pattern) -> list[tuple[str, Variable]]:
    return [] if found.port is None else [(_PORT, Variable(found.port, place))]


def plain(text: str) -> str | None:
    """Return a value that a label can hold, or `None`."""
    if text.startswith(_ENCRYPTED) or _TEMPLATE(text) or not checks.is_label_value(text):
        return None
    return text


def _may_be_label(key: str) -> bool:
    if key.startswith(checks.RESERVED) or key == "name" or _SECRET(key):
        return False
    if key.startswith(_MARK):
        raise InvalidInput(shown(key), f"names that begin with {_MARK} are for groups; rename it")
    checks.label_key("variable", key)
    return True


def _address(name: str, variables: Variables) -> str:
    host, port = variables.get(_HOST), variables.get(_PORT)
    address = "" if host is None else _written(_HOST, host)
    checks.address(_HOST, address)
    if port is None:
        return address
    number = _number(_PORT, port, maximum=_PORT_MAX)
    place = address or name
    return f"[{place}]:{number}" if _is_ipv6(place) else f"{place}:{number}"


def _written(key: str, variable: Variable) -> str:
    if variable.text is None:
        raise InvalidInput(
            key, f"the value in {variable.place} is not plain text; write the address itself"
        )
    return variable.text


def _number(key: str, variable: Variable, *, maximum: int) -> int:
    text = variable.text or ""
    if not re.fullmatch(r"[0-9]{1,7}", text) or not 1 <= int(text) <= maximum:
        raise InvalidInput(key, f"the value in {variable.place} is not a number up to {maximum}")
    return int(text)


def _said(variable: Variable) -> str:
    return "no plain text" if variable.text is None else shown(variable.text)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True
