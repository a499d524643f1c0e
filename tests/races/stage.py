"""Plays schedules of two sessions on the real database, statement by statement.

Nothing is slept for. A statement either returns, or PostgreSQL itself says that it waits for the
other session (`pg_blocking_pids`); then the other one goes on, and the turns of the one that waits
come as soon as it has returned. What comes out is compared with what the model foretold.

Cases have rows of their own and are judged in bulk: the rows and the timeline of all of them are
read once, when all have been played.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar, cast

import asyncpg
import uuid_utils

from onward.core.lifecycle import Lifecycle, Timer
from onward.store import transitions
from onward.store.commands import Commands, NewCommand
from onward.store.database import Pool, connect
from onward.store.transitions import Answer, Event
from tests.races.model import (
    STEPS,
    Create,
    End,
    Events,
    Expire,
    Foretold,
    Line,
    Operation,
    Row,
    Rows,
    Schedule,
    Step,
    foretell,
    replay,
)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Item = TypeVar("Item")
# How events are recorded on a connection: the guarded path, or a broken one.
Record: TypeAlias = "Callable[[Connection, Sequence[Event]], Awaitable[Sequence[Answer]]]"

_BOUND_S = 20.0  # no wait takes longer, or the test fails
_TIMEOUT_S = 3_600.0
_SESSIONS = ("first", "second")


class Violation(NamedTuple):
    """Something that came out differently; `kind` is one word."""

    kind: str
    case: str
    detail: str


@dataclass(slots=True)
class Case:
    """Two operations, a schedule, and what became of them."""

    table: Lifecycle
    start: Rows
    operations: tuple[Operation, Operation]
    schedule: Schedule
    ends: tuple[End, End] = (End.COMMIT, End.COMMIT)
    foretold: Foretold = field(init=False)
    ids: list[str] = field(init=False)
    epochs: dict[int, int] = field(default_factory=dict)
    waited: list[bool] = field(default_factory=lambda: [False, False])
    answers: list[Sequence[Answer]] = field(default_factory=lambda: [[], []])
    failed: str | None = None

    def __post_init__(self) -> None:
        self.foretold = foretell(self.table, self.start, self.operations, self.schedule, self.ends)
        self.ids = sorted(str(uuid_utils.uuid4()) for _ in self.start)

    def told(self, key: int, generation: int | None) -> int | None:
        """The epoch of a generation: of the row as it began, or of an attempt before that."""
        return None if generation is None else self.epochs[key] + generation

    def __str__(self) -> str:
        start = ", ".join(row.status if row else "absent" for row in self.start.values())
        first, second = self.operations
        turns = "".join("12"[who] for who in self.schedule)
        ends = "/".join(self.ends)
        return f"{self.table.name} {start}: ({first}) with ({second}), turns {turns}, {ends}"


async def until_blocked(
    observer: Connection, pid: int, by: int, *, unless: asyncio.Future[Item] | None = None
) -> bool:
    """Wait until PostgreSQL says that `pid` waits for `by`; false if `unless` is done before."""
    async with asyncio.timeout(_BOUND_S):
        while unless is None or not unless.done():
            if by in await observer.fetchval("SELECT pg_blocking_pids($1)", pid):
                return True
            # The loop is given a turn by every query; there is nothing to sleep for.
        return False


class Session:
    """One of the two, on its own connection."""

    def __init__(self, connection: Connection, name: str, record: Record) -> None:
        self.connection = connection
        self.name = name
        self.pid = connection.get_server_pid()
        self._record = record
        # Creating and sweeping ask a pool for nothing but `fetch`, which a connection has as well.
        self._commands = Commands(cast("Pool", connection), batch_max=10_000, group_wait_s=0)
        self.waiting: asyncio.Task[Sequence[Answer]] | None = None
        self.postponed: list[Step] = []

    async def run(self, case: Case, operation: Operation) -> Sequence[Answer]:
        match operation:
            case Events(said):
                events = [
                    Event(case.ids[e.key], e.event, case.told(e.key, e.told), self.name)
                    for e in said
                ]
                return await self._record(self.connection, events)
            case Create(other_content):
                return await self._commands.create_all(
                    [
                        NewCommand(
                            case.ids[0],
                            case.table.name,
                            node="",
                            type="other" if other_content else "",
                            task_id=None,
                            params="{}",
                            timeout_s=_TIMEOUT_S,
                            source=self.name,
                        )
                    ]
                )
            case Expire():
                return await self._commands.expire_due()


class Lane:
    """Two sessions and an observer; plays one case after another."""

    def __init__(self, first: Session, second: Session, observer: Connection) -> None:
        self.sessions = (first, second)
        self.observer = observer

    async def play(self, case: Case) -> None:
        turns = [iter(STEPS), iter(STEPS)]
        try:
            for who in case.schedule:
                step = next(turns[who])
                if self.sessions[who].waiting is not None:
                    self.sessions[who].postponed.append(step)
                else:
                    await self._do(case, who, step)
        except (AssertionError, asyncpg.PostgresError, TimeoutError) as error:
            case.failed = f"{type(error).__name__}: {error}"
            await self._clear()

    async def _do(self, case: Case, who: int, step: Step) -> None:
        me, other = self.sessions[who], self.sessions[1 - who]
        match step:
            case Step.BEGIN:
                await me.connection.execute("BEGIN")
            case Step.STATEMENT:
                await self._statement(case, who)
            case Step.END:
                await me.connection.execute(case.ends[who].value)
                if other.waiting is not None:
                    async with asyncio.timeout(_BOUND_S):
                        case.answers[1 - who] = await other.waiting
                    other.waiting = None
                    postponed, other.postponed = other.postponed, []
                    for late in postponed:
                        await self._do(case, 1 - who, late)

    async def _statement(self, case: Case, who: int) -> None:
        me, other = self.sessions[who], self.sessions[1 - who]
        task = asyncio.create_task(me.run(case, case.operations[who]))
        if not case.foretold.waits[who]:
            # It should return by itself; PostgreSQL is only asked why if it does not.
            await asyncio.wait({task}, timeout=0.25)
        if await until_blocked(self.observer, me.pid, other.pid, unless=task):
            me.waiting = task
            case.waited[who] = True
        else:
            case.answers[who] = task.result()

    async def _clear(self) -> None:
        """Bring both sessions back to where they are between cases."""
        for session in sorted(self.sessions, key=lambda session: session.waiting is not None):
            if session.waiting is not None:
                await asyncio.wait({session.waiting})
                session.waiting.exception()
            session.waiting, session.postponed = None, []
            if session.connection.is_in_transaction():
                await session.connection.execute("ROLLBACK")


class Stage:
    """A database on which cases are played, several at a time on lanes of their own."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        # A sweep takes whatever is due, so of all rows only those of one case may be.
        self._sweep = asyncio.Lock()

    async def violations(self, cases: Sequence[Case]) -> list[Violation]:
        """Play the cases, and return everything that came out otherwise than foretold."""
        await self._make_rows(cases)
        todo = iter(cases)
        await asyncio.gather(*(self._play_on(lane, todo) for lane in self._lanes))
        return await self._judge(cases)

    async def _play_on(self, lane: Lane, todo: Iterator[Case]) -> None:
        for case in todo:
            if any(isinstance(operation, Expire) for operation in case.operations):
                async with self._sweep:
                    if case.start[0] is not None and case.start[0].due:
                        await _set_deadline(lane.observer, case.ids[0], "-1 hour")
                    await lane.play(case)
                    await _set_deadline(lane.observer, case.ids[0], "1 hour")
            else:
                await lane.play(case)

    async def _make_rows(self, cases: Sequence[Case]) -> None:
        rows = [
            (case.ids[key], case.table.name, row.status, case.table.timer(row.status))
            for case in cases
            for key, row in case.start.items()
            if row is not None
        ]
        made = await self._lanes[0].observer.fetch(
            """
            INSERT INTO commands (cmd_id, lifecycle, status, timeout_s,
                                  deadline_at, due_at, finished_at)
            SELECT cmd_id, lifecycle, status, $5,
                   CASE timer WHEN $6 THEN now() + '1 hour' END,
                   CASE timer WHEN $7 THEN now() + '1 hour' END,
                   CASE timer WHEN $8 THEN now() END
              FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
                   AS r (cmd_id, lifecycle, status, timer)
            RETURNING cmd_id, epoch
            """,
            *([row[column] for row in rows] for column in range(4)),
            _TIMEOUT_S,
            Timer.DEADLINE,
            Timer.DUE,
            Timer.NONE,
        )
        epochs = {str(cmd_id): epoch for cmd_id, epoch in made}
        for case in cases:
            case.epochs = {key: epochs.get(cmd_id, 0) for key, cmd_id in enumerate(case.ids)}

    async def _judge(self, cases: Sequence[Case]) -> list[Violation]:
        ids = [cmd_id for case in cases for cmd_id in case.ids]
        observer = self._lanes[0].observer
        rows = {
            str(row["cmd_id"]): row
            for row in await observer.fetch(
                "SELECT cmd_id, status, epoch, version, late_result ->> 'event' AS late "
                "FROM commands WHERE cmd_id = ANY ($1)",
                ids,
            )
        }
        lines = defaultdict(list)
        for line in await observer.fetch(
            "SELECT cmd_id, source, event, verdict, from_status, to_status "
            "FROM timeline WHERE cmd_id = ANY ($1) ORDER BY seq",
            ids,
        ):
            lines[str(line["cmd_id"])].append(line)
        return [
            Violation(kind, str(case), detail)
            for case in cases
            for kind, detail in _differences(case, rows, lines)
        ]


def _differences(
    case: Case, rows: dict[str, asyncpg.Record], lines: dict[str, list[asyncpg.Record]]
) -> Iterator[tuple[str, str]]:
    if case.failed is not None:
        yield "error", case.failed
        return
    if case.waited != case.foretold.waits:
        yield "waiting", f"waited {case.waited}, foretold {case.foretold.waits}"
    for who, (answers, foretold) in enumerate(
        zip(case.answers, case.foretold.answers, strict=True)
    ):
        if (told := [_told(case, a) for a in answers]) != (
            due := [_due(line) for line in foretold]
        ):
            yield "verdict", f"{_SESSIONS[who]} was told {told}, foretold {due}"
        if not all(a.changed is (a.result == "OK") for a in answers):
            yield "changed", f"{_SESSIONS[who]} was told {answers}"
        yield from _epochs(case, answers, foretold)
    for key, cmd_id in enumerate(case.ids):
        row, foretold_row = rows.get(cmd_id), case.foretold.rows[key]
        yield from _row_differences(case.epochs[key], row, foretold_row)
        found = [tuple(line)[1:] for line in lines.get(cmd_id, [])]
        expected = [
            (_source(who, case), line.event, line.verdict, line.seen, line.status)
            for who, line in case.foretold.timeline
            if line.key == key
        ]
        if found != expected:
            yield "timeline", f"found {found}, foretold {expected}"
        start = case.start[key]
        end, wrong = replay(case.table, start and start.status, (line[1:] for line in found))
        yield from (("path", problem) for problem in wrong)
        if end != (row and row["status"]):
            yield "path", f"the timeline ends in {end}, the row is {row and row['status']}"


def _row_differences(
    first_epoch: int, row: asyncpg.Record | None, foretold: Row | None
) -> Iterator[tuple[str, str]]:
    if row is None or foretold is None:
        if (row is None) != (foretold is None):
            yield "status", f"found {row}, foretold {foretold}"
        return
    if row["status"] != foretold.status:
        yield "status", f"ended in {row['status']}, foretold {foretold.status}"
    if (row["version"], row["late"]) != (foretold.version, foretold.late):
        yield "row", f"found {row}, foretold {foretold}"
    drawn = row["epoch"] > first_epoch > 0
    if drawn != (foretold.generation > 0) and first_epoch:
        yield "epoch", f"began with {first_epoch}, found {row['epoch']}, foretold {foretold}"


def _epochs(
    case: Case, answers: Sequence[Answer], foretold: Sequence[Line]
) -> Iterator[tuple[str, str]]:
    for answer, line in zip(answers, foretold, strict=False):
        if answer.record is None or line.after is None or not case.epochs[line.key]:
            continue
        newer = answer.record.epoch > case.epochs[line.key]
        if newer != (line.after.generation > 0):
            yield "epoch", f"began with {case.epochs[line.key]}, {answer}, foretold {line}"


def _told(case: Case, answer: Answer) -> tuple[object, ...]:
    if (record := answer.record) is None:
        return (answer.result.value, None, None, None)
    return (answer.result.value, case.ids.index(record.cmd_id), record.status, record.version)


def _due(line: Line) -> tuple[object, ...]:
    if line.after is None:
        return (line.verdict, None, None, None)
    return (line.verdict, line.key, line.after.status, line.after.version)


def _source(who: int, case: Case) -> str:
    # The guarded path writes who asked; a sweep is always the deadline.
    return "deadline" if isinstance(case.operations[who], Expire) else _SESSIONS[who]


async def _set_deadline(observer: Connection, cmd_id: str, offset: str) -> None:
    await observer.execute(
        "UPDATE commands SET deadline_at = now() + $2::text::interval "
        "WHERE cmd_id = $1 AND deadline_at IS NOT NULL",
        cmd_id,
        offset,
    )


@asynccontextmanager
async def staged(
    url: str, *, record: Record = transitions.record, lanes: int = 3
) -> AsyncIterator[Stage]:
    """Open a stage on a database."""
    async with AsyncExitStack() as stack:

        async def opened() -> Connection:
            connection = await connect(url)
            stack.push_async_callback(connection.close)
            return connection

        yield Stage(
            [
                Lane(
                    Session(await opened(), _SESSIONS[0], record),
                    Session(await opened(), _SESSIONS[1], record),
                    await opened(),
                )
                for _ in range(lanes)
            ]
        )
