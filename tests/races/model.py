"""What two sessions over the same commands must see, said without a database.

The model knows the core's `decide`, and three facts about PostgreSQL in READ COMMITTED:

1. An event locks the row that it finds, and keeps it until its transaction ends. Another event for
   that row waits, and is then judged against what was committed. So events take effect in the order
   in which their locks were granted.
2. A sweep never waits: a row that another session holds is not the sweep's business.
3. A creation waits for an uncommitted change of its id, be it another creation or a move, but not
   for a mere lock. A row that is already there is then read without locking it; a row that is not
   committed yet is seen by nobody else.

From these it foretells, for any schedule, who waits, every answer, every line of the timeline and
the final row. `replay` asks less and assumes nothing about locks: whatever the timeline says must
be a path that the core allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from onward.core.lifecycle import Lifecycle, Timer
from onward.core.verdicts import TransitionResult as Result

# Epochs by generation: the row starts with the epoch of generation 0, and every draw adds one.
STALE_GENERATION = -1


class Said(NamedTuple):
    """One event: of which command of the case, and on behalf of which attempt."""

    key: int
    event: str
    told: int | None = None  # generation of the epoch that goes along


@dataclass(frozen=True, slots=True)
class Events:
    """An operation: one statement that records events, one or many."""

    said: tuple[Said, ...]

    def __str__(self) -> str:
        return " ".join(
            f"{e.event}{'' if e.told is None else '@stale' if e.told < 0 else '@right'}#{e.key}"
            for e in self.said
        )


@dataclass(frozen=True, slots=True)
class Create:
    """An operation: make command 0, with the content that it has, or with another."""

    other_content: bool = False

    def __str__(self) -> str:
        return "create_other" if self.other_content else "create"


@dataclass(frozen=True, slots=True)
class Expire:
    """An operation: time out whatever is due."""

    def __str__(self) -> str:
        return "expire"


Operation = Events | Create | Expire


class End(StrEnum):
    """How a session ends its transaction."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


class Row(NamedTuple):
    """A command, as far as the law is concerned."""

    status: str
    generation: int = 0
    version: int = 1
    due: bool = False  # its deadline has passed
    late: str | None = None  # the event that was kept as the late result
    other_content: bool = False


class Line(NamedTuple):
    """A line of the timeline, and at the same time what the caller is told."""

    key: int
    event: str
    verdict: str
    seen: str | None
    status: str | None
    after: Row | None  # the whole row after it


class Step(StrEnum):
    """What a session does, in this order."""

    BEGIN = "BEGIN"
    STATEMENT = "STATEMENT"
    END = "END"


STEPS = tuple(Step)
Rows = Mapping[int, Row | None]
Schedule = tuple[int, ...]  # whose turn it is; each session has three turns


@dataclass(slots=True)
class Foretold:
    """What must come out of a schedule."""

    rows: Rows
    waits: list[bool] = field(default_factory=lambda: [False, False])
    answers: list[list[Line]] = field(default_factory=lambda: [[], []])
    timeline: list[tuple[int, Line]] = field(default_factory=list)  # (session, line), as judged


def judge(table: Lifecycle, row: Row | None, said: Said) -> Line:
    """Apply one event to a row."""
    if row is None:
        return Line(said.key, said.event, Result.UNKNOWN_COMMAND, None, None, None)
    if said.told is not None and said.told != row.generation:
        return Line(said.key, said.event, Result.STALE_EPOCH, row.status, row.status, row)
    result, target = table.decide(row.status, said.event)
    after = row
    if result is Result.OK:
        after = row._replace(
            status=str(target),
            version=row.version + 1,
            generation=row.generation + table.moves[said.event].draws_epoch,
            # A deadline that runs goes on running; one that is set anew lies ahead.
            due=row.due and table.timer(target) is Timer.DEADLINE,
        )
    elif table.keeps_late(row.status, said.event) and row.late is None:
        after = row._replace(version=row.version + 1, late=said.event)
    return Line(said.key, said.event, result, row.status, str(target), after)


class _Session:
    def __init__(self, operation: Operation, end: End) -> None:
        self.operation = operation
        self.end = end
        self.waiting = False
        self.postponed: list[Step] = []
        self.turns = iter(STEPS)
        self.holds: frozenset[int] = frozenset()
        self.changes: dict[int, Row] = {}


def foretell(
    table: Lifecycle,
    start: Rows,
    operations: Sequence[Operation],
    schedule: Schedule,
    ends: Sequence[End],
) -> Foretold:
    """Play a schedule on paper. A turn of a session that waits comes when it no longer does."""
    committed = dict(start)
    sessions = [_Session(*pair) for pair in zip(operations, ends, strict=True)]
    told = Foretold(committed)
    lines: list[tuple[int, Line]] = []

    def do(who: int, step: Step) -> None:
        me, other = sessions[who], sessions[1 - who]
        if step is Step.STATEMENT:
            if _must_wait(me.operation, committed, other):
                me.waiting = told.waits[who] = True
                return
            me.waiting = False
            me.changes, me.holds, answers = _execute(table, me.operation, committed, other.holds)
            told.answers[who] = answers
            lines.extend((who, line) for line in answers)
        elif step is Step.END:
            if me.end is End.COMMIT:
                committed.update(me.changes)
            me.changes, me.holds = {}, frozenset()
            if other.waiting:
                do(1 - who, Step.STATEMENT)
                for late in other.postponed:
                    do(1 - who, late)

    for who in schedule:
        step = next(sessions[who].turns)
        if sessions[who].waiting:
            sessions[who].postponed.append(step)
        else:
            do(who, step)
    told.timeline = [(who, line) for who, line in lines if sessions[who].end is End.COMMIT]
    return told


def _must_wait(operation: Operation, committed: Rows, other: _Session) -> bool:
    match operation:
        case Events(said):
            return any(e.key in other.holds and committed[e.key] is not None for e in said)
        case Create():
            return 0 in other.changes
        case Expire():
            return False


def _execute(
    table: Lifecycle, operation: Operation, committed: Rows, held: frozenset[int]
) -> tuple[dict[int, Row], frozenset[int], list[Line]]:
    rows = dict(committed)
    lines: list[Line] = []
    match operation:
        case Events(said):
            for event in said:
                lines.append(judge(table, rows[event.key], event))
                rows[event.key] = lines[-1].after
        case Create(other_content):
            lines.append(_create(table, rows[0], other_content=other_content))
            rows[0] = lines[-1].after
        case Expire():
            row = rows[0]
            if row is not None and row.due and row.status in table.timed and 0 not in held:
                lines.append(judge(table, row, Said(0, "timeout")))
                rows[0] = lines[-1].after
    locks = not isinstance(operation, Create)
    return (
        {key: row for key, row in rows.items() if row is not None and row != committed[key]},
        frozenset(line.key for line in lines if locks and line.seen is not None),
        lines,
    )


def _create(table: Lifecycle, row: Row | None, *, other_content: bool) -> Line:
    if row is None:
        made = Row(str(table.initial), other_content=other_content)
        return Line(0, "create", Result.OK, None, made.status, made)
    same = row.other_content == other_content
    verdict = Result.DUPLICATE if same else Result.CONFLICT
    return Line(0, "create", verdict, row.status, row.status, row)


def replay(
    table: Lifecycle, start: str | None, lines: Iterable[tuple[str, str, str | None, str | None]]
) -> tuple[str | None, list[str]]:
    """Walk a timeline (event, verdict, from, to); return where it ends and what is wrong with it.

    What a former attempt said is only required to have changed nothing: which epoch was valid when
    is not written in the timeline. A command that nobody knew could not be locked either, so that
    line may stand anywhere around the creation.
    """
    status, wrong = start, []
    for event, verdict, seen, target in lines:
        if verdict == Result.UNKNOWN_COMMAND and seen is target is None:
            continue
        if event == "create":
            if verdict == Result.OK and status is not None:
                wrong.append(f"made again in {status}")
            status = target if verdict == Result.OK else status
            continue
        due: tuple[str, str | None] = (Result.UNKNOWN_COMMAND, None)
        if verdict == Result.STALE_EPOCH:
            due = (verdict, status)
        elif status is not None:
            due = table.decide(status, event)
        if (verdict, target) != due or seen != status:
            wrong.append(
                f"{event} found {seen} and was {verdict} → {target}; "
                f"after {status} it had to be {due[0]} → {due[1]}"
            )
        status = target
    return status, wrong


def in_status(table: Lifecycle, status: str, *, due: bool = False) -> Row:
    """A row in a status; `due` takes effect where a deadline runs."""
    return Row(status, due=due and table.timer(status) is Timer.DEADLINE)
