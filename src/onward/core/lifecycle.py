"""A lifecycle, as data.

Theory. A command is in one *status*. An *event* asks it to move: each event has one target and a
set of statuses that it may leave. Whatever the event finds, it gets a verdict (`verdicts`), and the
verdict depends on nothing but the status, the event and this table. So the whole law of a lifecycle
is a finite table, computed once when the lifecycle is loaded; the registry, the SQL guard, the
database's constraints, the diagrams and the exhaustive tests all read that same table.

Rule 1. What may happen is written in a `Lifecycle` and nowhere else. A variant is another table.
Rule 2. Terminal is derived: a status that no move leaves. Nobody types it, so nobody mistypes it.
Rule 3. A refusal is explained by the first reason that holds, in the order that the table gives.
        S1 asks "has it ended?" before "was it said before?", S3 the other way round.
Rule 4. Nothing here knows the time. That a deadline has passed is an event like any other.
Rule 5. A table that contradicts itself does not load, and says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from onward.core.verdicts import TransitionResult
from onward.errors import InvalidLifecycle

_CHECKS = (
    TransitionResult.TERMINAL,
    TransitionResult.DUPLICATE,
    TransitionResult.STALE,
    TransitionResult.INVALID_STATE,
)


class Timer(StrEnum):
    """Which clock watches over a status, so that nothing is open without one."""

    DEADLINE = "deadline"  # when it passes, the command times out by itself
    DUE = "due"  # nothing but an event can move it on; when it passes, somebody should look
    NONE = "none"  # it has ended


@dataclass(frozen=True, slots=True)
class Move:
    """The statuses that an event may leave, and the one that it leads to."""

    sources: tuple[str, ...]
    target: str
    # A move that begins an attempt, or takes one away, draws a new epoch: whoever still speaks for
    # the former attempt is then refused as stale.
    draws_epoch: bool = False


class Decision(NamedTuple):
    """What an event means in a status; `target` is the status after it."""

    result: TransitionResult
    target: str


def move(*sources: str, to: str, draws_epoch: bool = False) -> Move:
    """Make a move. Without sources it is an event that can only ever be refused."""
    return Move(sources, to, draws_epoch)


def ranked(*states: str, first: int = 0) -> Mapping[str, int]:
    """Number the states in the order in which a command passes them."""
    return {state: rank for rank, state in enumerate(states, start=first)}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Lifecycle:
    """The states of a kind of command, the moves between them, and how refusals are explained."""

    name: str
    states: Mapping[str, int]  # state -> rank
    initial: str
    moves: Mapping[str, Move]  # event -> move
    refuse_in_order: tuple[TransitionResult, ...]
    timeout_event: str = "timeout"
    # What looks like a mistake in a table, and is meant: each must be declared to load.
    unreachable: frozenset[str] = frozenset()  # no event leads there from the initial state
    untimed: frozenset[str] = frozenset()  # live, and no timeout leaves it
    dead_ends: frozenset[str] = frozenset()  # no way out, though it ranks among the live states
    # A status that we presumed without hearing from the host, and the events that carry what the
    # host did: the latter are kept as a late result when they find the former.
    presumed: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()

    terminal: frozenset[str] = field(init=False)
    table: Mapping[tuple[str, str], Decision] = field(init=False)  # (status, event) -> decision

    def __post_init__(self) -> None:
        _check_names(self)
        sources = {source for move in self.moves.values() for source in move.sources}
        object.__setattr__(self, "terminal", frozenset(self.states) - sources)
        _check_ways(self)
        table = {
            (status, event): self._judge(status, event)
            for status in self.states
            for event in self.moves
        }
        object.__setattr__(self, "table", MappingProxyType(table))

    def decide(self, status: str, event: str) -> Decision:
        """Say what `event` means to a command in `status`; an unknown event fits no status."""
        return self.table.get((status, event)) or Decision(TransitionResult.INVALID_STATE, status)

    def allowed(self, status: str) -> tuple[str, ...]:
        """Name the events that would move a command on from `status`."""
        return tuple(event for event, move in self.moves.items() if status in move.sources)

    def event_called(self, status: object) -> str | None:
        """Name the one event that leads to a status, which is called by its name or its rank."""
        if type(status) not in (str, int):  # True is not 1, nor is 1.0
            return None
        wanted = {name for name, rank in self.states.items() if status in (name, rank)}
        events = [event for event, move in self.moves.items() if move.target in wanted]
        return events[0] if len(events) == 1 else None

    def timer(self, status: str) -> Timer:
        """Say which clock watches over `status`."""
        if status in self.terminal:
            return Timer.NONE
        return Timer.DEADLINE if status in self.timed else Timer.DUE

    @property
    def timed(self) -> frozenset[str]:
        """The statuses that end by themselves when their deadline passes."""
        timeout = self.moves.get(self.timeout_event)
        return frozenset(timeout.sources) if timeout else frozenset()

    def keeps_late(self, status: str, event: str) -> bool:
        """Whether `event`, refused in `status`, is evidence that must be kept on the command."""
        return status in self.presumed and event in self.results

    def _judge(self, status: str, event: str) -> Decision:
        move = self.moves[event]
        if status in move.sources:
            return Decision(TransitionResult.OK, move.target)
        holds = {
            TransitionResult.TERMINAL: status in self.terminal,
            TransitionResult.DUPLICATE: status == move.target,
            TransitionResult.STALE: self.states[move.target] < self.states[status],
            TransitionResult.INVALID_STATE: True,
        }
        return Decision(next(why for why in self.refuse_in_order if holds[why]), status)


def _check_names(table: Lifecycle) -> None:
    """Refuse a table that speaks of states or verdicts which it does not have."""
    named = {"the initial state": {table.initial}}
    for event, move in table.moves.items():
        named[f"the event {event!r}"] = {*move.sources, move.target}
    for declaration in ("unreachable", "untimed", "dead_ends", "presumed"):
        named[declaration] = set(getattr(table, declaration))
    for where, states in named.items():
        if unknown := states - set(table.states):
            _refuse(table, f"{where} names {_listed(unknown)}, which is not a state of it")
    if strange := table.results - set(table.moves):
        _refuse(table, f"results names {_listed(strange)}, which is not an event of it")
    if len(set(table.states.values())) != len(table.states):
        _refuse(table, "two states have the same rank")
    order = table.refuse_in_order
    if not set(order) <= set(_CHECKS) or len(set(order)) != len(order):
        _refuse(table, f"refuse_in_order takes {_listed(_CHECKS)}, each at most once")
    if order[-1:] != (TransitionResult.INVALID_STATE,):
        _refuse(table, "refuse_in_order must end with INVALID_STATE, which always holds")


def _check_ways(table: Lifecycle) -> None:
    """Refuse a table in which a command could get stuck, or a state could never be seen."""
    reached = _closure({table.initial}, _successors(table))
    if lost := set(table.states) - reached - table.unreachable:
        _refuse(
            table,
            f"nothing leads to {_listed(lost)} from {table.initial}; "
            "add a move, or declare it unreachable",
        )
    if found := table.unreachable & reached:
        _refuse(table, f"{_listed(found)} is declared unreachable, but a move leads there")

    live = set(table.states) - table.terminal
    ending = _closure(set(table.terminal), _predecessors(table))
    if endless := live - ending:
        _refuse(table, f"there is no way out of {_listed(endless)}: no move leads to an end")
    # Live states come first in every table, so an end among them is a state whose moves were
    # forgotten rather than one that is meant to be final.
    last_live = max((table.states[state] for state in live), default=-1)
    stuck = {state for state in table.terminal if table.states[state] < last_live}
    if stuck != table.dead_ends:
        _refuse(
            table,
            f"there is no way out of {_listed(stuck ^ table.dead_ends)}; "
            "add a move, rank it after the live states, or declare it in dead_ends",
        )
    if untimed := (live - table.timed) ^ table.untimed:
        _refuse(
            table,
            f"{_listed(untimed)}: either {table.timeout_event!r} leaves a live state, "
            "or it is declared untimed, and never both",
        )


def _successors(table: Lifecycle) -> dict[str, set[str]]:
    ways: dict[str, set[str]] = {state: set() for state in table.states}
    for way in table.moves.values():
        for source in way.sources:
            ways[source].add(way.target)
    return ways


def _predecessors(table: Lifecycle) -> dict[str, set[str]]:
    ways: dict[str, set[str]] = {state: set() for state in table.states}
    for way in table.moves.values():
        ways[way.target].update(way.sources)
    return ways


def _closure(start: set[str], ways: dict[str, set[str]]) -> set[str]:
    seen, todo = set(start), list(start)
    while todo:
        todo.extend(new := ways[todo.pop()] - seen)
        seen |= new
    return seen


def _listed(names: object) -> str:
    assert isinstance(names, (set, frozenset, tuple))  # noqa: S101 - for the reader and mypy
    return ", ".join(sorted(str(name) for name in names))


def _refuse(table: Lifecycle, problem: str) -> None:
    raise InvalidLifecycle(f"lifecycle {table.name!r}", problem)
