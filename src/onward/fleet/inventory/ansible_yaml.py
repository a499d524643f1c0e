"""Ansible inventories in YAML: groups with `hosts`, `children` and `vars`.

all:
  hosts:
    lone.example.com:
  children:
    web:
      hosts:
        web[01:20].example.com: {rack: 7}
      vars: {zone: eu}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onward.errors import InvalidInput
from onward.fleet.hosts import Channel
from onward.fleet.inventory import yaml_tree
from onward.fleet.inventory.ansible_ways import Variable
from onward.fleet.inventory.gathering import Gathering
from onward.fleet.inventory.groups import Groups, plain
from onward.fleet.inventory.yaml_tree import Node, Pairs, Scalar
from onward.store.inputs import shown

_PARTS: Final = ("hosts", "children", "vars")
_PLUGIN: Final = "plugin"


def read(text: str, gathering: Gathering, channel: Channel) -> None:
    """Gather the hosts of an inventory in YAML."""
    root = yaml_tree.parse(text, gathering)
    if root is None:
        return
    groups = Groups(gathering, channel)
    reader = _Reader(groups, gathering)
    with gathering.at(root.line):
        named = _pairs("inventory", root, "groups, each with hosts, children or vars")
        if _PLUGIN in named:
            raise InvalidInput(
                _PLUGIN,
                "this is the configuration of a plugin; import what "
                "`ansible-inventory --list --yaml` prints with it",
            )
        for name, (line, node) in named.items():
            reader.group(line, name, node)
        groups.finish()


class _Reader:
    def __init__(self, groups: Groups, gathering: Gathering) -> None:
        self._groups = groups
        self._gathering = gathering

    def group(self, line: int, name: str, node: Node) -> None:
        with self._gathering.at(line):
            self._groups.make(line, name)
            for part, (at, content) in _pairs("group", node, ", ".join(_PARTS)).items():
                with self._gathering.at(at):
                    self._part(at, name, part, content)

    def _part(self, line: int, group: str, part: str, content: Node) -> None:
        match part:
            case "hosts":
                self._hosts(group, _pairs(part, content, "hosts, each with a colon behind it"))
            case "children":
                named = _pairs(part, content, "groups, each with a colon behind it")
                for name, (at, node) in named.items():
                    with self._gathering.at(at):
                        self._groups.child(at, name, of=group)
                        self.group(at, name, node)
            case "vars":
                given = _variables(_pairs(part, content, "variables"))
                self._groups.variables(line, group, given)
            case _:
                raise InvalidInput("group", f"{shown(part)} is not one of {', '.join(_PARTS)}")

    def _hosts(self, group: str, named: dict[str, tuple[int, Node]]) -> None:
        for text, (line, node) in named.items():
            with self._gathering.at(line):
                given = list(_variables(_pairs("host", node, "variables")))
                self._groups.hosts(line, text, group=group, given=given)


def _pairs(what: str, node: Node, wanted: str) -> dict[str, tuple[int, Node]]:
    """The pairs of a mapping; nothing at all is an empty one."""
    match node:
        case Pairs():
            return node.nodes
        case Scalar(text=None):
            return {}
        case _:
            raise InvalidInput(what, f"expected a mapping of {wanted}")


def _variables(named: dict[str, tuple[int, Node]]) -> Iterator[tuple[str, Variable]]:
    for key, (line, node) in named.items():
        text = node.text if isinstance(node, Scalar) else None
        yield key, Variable(None if text is None else plain(text), line)
