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
from typing import Final, TypeAlias

import yaml

from onward.errors import InvalidInput
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
        place = f"line {mark.line + 1}" if mark else "inventory"
        raise InvalidInput(place, f"is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InvalidInput("inventory", f"is not YAML: {str(error).splitlines()[0]}") from None


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
                    raise InvalidInput(_place(event), "a second document begins; split the file")
                root = self._node(next(self._events))
        return root

    def _node(self, event: yaml.Event) -> Node:
        match event:
            case yaml.AliasEvent():
                return self._named(event)
            case yaml.ScalarEvent():
                node: Node = _scalar(event)
            case yaml.SequenceStartEvent():
                node = self._items(event)
            case yaml.MappingStartEvent():
                node = self._pairs(event)
            case _:
                raise InvalidInput(_place(event), "is not YAML that can be read here")
        # Only now, when it is whole: a node that holds itself finds no such name.
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _named(self, event: yaml.AliasEvent) -> Node:
        node = self._anchors.get(event.anchor or "")
        if node is None:
            raise InvalidInput(
                _place(event), f"there is no whole &{event.anchor} before this alias; write it out"
            )
        return node

    def _items(self, start: yaml.SequenceStartEvent) -> Items:
        self._enter(start)
        nodes, size, depth = [], 1, 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            node = self._node(event)
            nodes.append(node)
            size, depth = size + node.size, max(depth, node.depth + 1)
            _check_size(start, size, depth)
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
            _check_size(start, size, depth)
            if key == _MERGE:
                for mapping in _mappings(event, node):
                    merged = {**mapping.nodes, **merged}  # the first of several wins
            elif key in own:
                self._gathering.refuse(
                    f"line {line}",
                    f"the key {shown(key)} is already in line {own[key][0]}; keep one",
                )
            else:
                own[key] = (line, node)
        self._open -= 1
        return Pairs(_line(start), {**merged, **own}, size, depth)

    def _key(self, event: yaml.Event) -> str:
        key = self._node(event)
        if not isinstance(key, Scalar) or key.text is None:
            raise InvalidInput(_place(event), "a key has to be text; put it in quotes")
        return key.text

    def _enter(self, event: yaml.Event) -> None:
        self._open += 1
        if self._open > MAX_DEPTH:
            raise _too_deep(event)


def _mappings(event: yaml.Event, node: Node) -> list[Pairs]:
    found = list(node.nodes) if isinstance(node, Items) else [node]
    pairs = [item for item in found if isinstance(item, Pairs)]
    if len(pairs) < len(found):
        raise InvalidInput(_place(event), f"{_MERGE} takes a mapping, or a list of them")
    return pairs


def _scalar(event: yaml.ScalarEvent) -> Scalar:
    line, tag = _line(event), event.tag
    written = event.implicit[0]  # neither in quotes nor tagged
    if tag in _ENCRYPTED or (written and event.value in _NOTHING):
        return Scalar(line, None)
    ours = tag in {None, "!", _UNSAFE} or tag.startswith(_OWN_TAGS)
    if not ours or (tag or "").startswith(_PYTHON_TAGS):
        raise InvalidInput(_place(event), f"the tag {shown(tag)} is not known; remove it")
    return Scalar(line, event.value)


def _check_size(event: yaml.Event, size: int, depth: int) -> None:
    if size > MAX_NODES:
        raise InvalidInput(
            _place(event), f"holds more than {MAX_NODES:,} values, aliases included; split it"
        )
    if depth > MAX_DEPTH:
        raise _too_deep(event)


def _too_deep(event: yaml.Event) -> InvalidInput:
    return InvalidInput(_place(event), f"is nested deeper than {MAX_DEPTH} levels")


def _place(event: yaml.Event) -> str:
    return f"line {_line(event)}"


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # noqa: S101 - the parser gives every event its place
    return event.start_mark.line + 1
