"""A YAML document as a small tree of texts, built from events without making any object of its own.

Rule 1. A scalar is the text that was written; `null`, `~` and nothing are `None`, and so is what
        is encrypted (`!vault`). No other tag than those of YAML itself and `!unsafe` is let in.
Rule 2. An alias is the node that it names, not a copy. A node knows how large and how deep it is
        with all its aliases, so that a bomb is refused while it is built.
Rule 3. A key is text, and occurs once. `<<` merges mappings, and what stands beside it wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

import yaml

from onward.fleet.inventory.gathering import Gathering
from onward.store.inputs import shown

MAX_NODES: Final = 2_000_000
MAX_DEPTH: Final = 64
_MERGE: Final = "<<"
_NOTHING: Final = frozenset({"", "~", "null", "Null", "NULL"})
_ENCRYPTED: Final = frozenset({"!vault", "!vault-encrypted"})
_UNSAFE: Final = "!unsafe"
_OWN_TAGS: Final = "tag:yaml.org,2002:"
_PYTHON_TAGS: Final = f"{_OWN_TAGS}python/"
# The one in C is the same, and some ten times as fast; PyYAML may have been built without it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, or `None`."""

    line: int
    text: str | None
    size: int = 1
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    line: int
    nodes: tuple[Node, ...]
    size: int
    depth: int


@dataclass(frozen=True, slots=True)
class Pairs:
    """A mapping; each key with its line and its node."""

    line: int
    nodes: dict[str, tuple[int, Node]]
    size: int
    depth: int


Node: TypeAlias = Scalar | Items | Pairs


def parse(text: str, gathering: Gathering) -> Node | None:
    """Return the one document of the text, or `None` if there is none."""
    builder = _Builder(yaml.parse(text, Loader=_LOADER), gathering)
    try:
        return builder.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        gathering.stop(line, f"this is not YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        gathering.stop(1, f"this is not YAML: {str(error).splitlines()[0]}")


class _Builder:
    def __init__(self, events: Iterator[yaml.Event], gathering: Gathering) -> None:
        self._events = events
        self._gathering = gathering
        self._anchors: dict[str, Node] = {}
        self._open = 0

    def document(self) -> Node | None:
        root = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._stop(event, "a second document begins; split the file")
                root = self._node(next(self._events))
        return root

    def _node(self, event: yaml.Event) -> Node:
        match event:
            case yaml.AliasEvent():
                return self._named(event)
            case yaml.ScalarEvent():
                node: Node = self._scalar(event)
            case yaml.SequenceStartEvent():
                node = self._items(event)
            case yaml.MappingStartEvent():
                node = self._pairs(event)
            case _:
                self._stop(event, "this is not YAML that can be read here")
        # Only now, when it is whole: a node that holds itself finds no such name.
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _named(self, event: yaml.AliasEvent) -> Node:
        node = self._anchors.get(event.anchor or "")
        if node is None:
            self._stop(event, f"there is no whole &{event.anchor} before this alias; write it out")
        return node

    def _items(self, start: yaml.SequenceStartEvent) -> Items:
        self._enter(start)
        nodes, size, depth = [], 1, 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            node = self._node(event)
            nodes.append(node)
            size, depth = size + node.size, max(depth, node.depth + 1)
            self._check_size(start, size, depth)
        self._open -= 1
        return Items(_line(start), tuple(nodes), size, depth)

    def _pairs(self, start: yaml.MappingStartEvent) -> Pairs:
        self._enter(start)
        own: dict[str, tuple[int, Node]] = {}
        merged: dict[str, tuple[int, Node]] = {}
        size, depth = 1, 1
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, line = self._key(event), _line(event)
            node = self._node(next(self._events))
            size, depth = size + 1 + node.size, max(depth, node.depth + 1)
            self._check_size(start, size, depth)
            if key == _MERGE:
                for name, found in self._merged(event, node):
                    merged.setdefault(name, found)  # the first of several wins
            elif key in own:
                self._gathering.refuse(
                    line, f"the key {shown(key)} is already in line {own[key][0]}; keep one"
                )
            else:
                own[key] = (line, node)
        self._open -= 1
        return Pairs(_line(start), {**merged, **own}, size, depth)

    def _key(self, event: yaml.Event) -> str:
        key = self._node(event)
        if not isinstance(key, Scalar) or key.text is None:
            self._stop(event, "a key has to be text; put it in quotes")
        return key.text

    def _merged(self, event: yaml.Event, node: Node) -> Iterator[tuple[str, tuple[int, Node]]]:
        for mapping in node.nodes if isinstance(node, Items) else [node]:
            if not isinstance(mapping, Pairs):
                self._stop(event, f"{_MERGE} takes a mapping, or a list of them")
            yield from mapping.nodes.items()

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        line, tag = _line(event), event.tag
        written = event.implicit[0]  # neither in quotes nor tagged
        if tag in _ENCRYPTED or (written and event.value in _NOTHING):
            return Scalar(line, None)
        self._check_tag(event, tag)
        return Scalar(line, event.value)

    def _check_tag(self, event: yaml.Event, tag: str | None) -> None:
        if tag in {None, "!", _UNSAFE}:
            return
        if not tag.startswith(_OWN_TAGS) or tag.startswith(_PYTHON_TAGS):
            self._stop(event, f"the tag {shown(tag)} is not known; remove it")

    def _enter(self, event: yaml.CollectionStartEvent) -> None:
        self._check_tag(event, event.tag)
        self._open += 1
        self._check_size(event, 1, self._open)

    def _check_size(self, event: yaml.Event, size: int, depth: int) -> None:
        if size > MAX_NODES:
            self._stop(event, f"this holds more than {MAX_NODES:,} values, aliases included")
        if depth > MAX_DEPTH:
            self._stop(event, f"this is nested deeper than {MAX_DEPTH} levels")

    def _stop(self, event: yaml.Event, problem: str) -> NoReturn:
        self._gathering.stop(_line(event), problem)


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # noqa: S101 - the parser gives every event its place
    return event.start_mark.line + 1
