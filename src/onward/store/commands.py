"""Commands in PostgreSQL: made once, moved by the guarded path, timed out by their deadline."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

import asyncpg

from onward.core.lifecycles import lifecycle_named
from onward.core.verdicts import Transition, TransitionResult
from onward.errors import GuardDrift
from onward.store import transitions
from onward.store.database import Pool, answering
from onward.store.group_commit import GroupCommit
from onward.store.tasks import Called, Command, Task, Tasks, said
from onward.store.transitions import SQL, Answer, CommandState, Event

_SWEEP: Final = 1_000  # commands that one statement of a sweep times out
_DEADLOCKS: Final = 10  # in a row, before a caller is told
_LOOKED_AT: Final = 50_000  # commands that a page of a filtered list looks at
_FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"

_UNKNOWN: Final[Answer] = Transition(None, TransitionResult.UNKNOWN_COMMAND, changed=False)

Row = dict[str, object]


class NewCommand(NamedTuple):
    """A command to be made; every field has been checked by `inputs`."""

    cmd_id: str
    lifecycle: str
    node: str
    type: str
    task_id: str | None
    params: str  # JSON
    timeout_s: float
    source: str
    epoch: int | None = None  # of the attempt that it is; a new one is drawn if it is of none
    hold_s: float = 0.0  # how long its maker may try to hand it over, before others do


class Page(NamedTuple):
    """A part of the list of commands, and the id below which the next one begins."""

    items: list[Row]
    before: str | None


class Commands:
    """The commands of one database, for the tasks of one event loop."""

    def __init__(self, pool: Pool, *, batch_max: int, group_wait_s: float) -> None:
        self.pool = pool
        self._batch_max = batch_max
        self._events = GroupCommit(self.record_all, wait_s=group_wait_s, group_max=batch_max)
        self._new = GroupCommit(self.create_all, wait_s=group_wait_s, group_max=batch_max)
        self._callbacks = GroupCommit(
            self.record_all_called, wait_s=group_wait_s, group_max=batch_max
        )
        self._tasks = Tasks(pool)

    async def close(self) -> None:
        """Answer everybody who still waits."""
        await self._new.drain()
        await self._callbacks.drain()
        await self._events.drain()

    async def create(self, command: NewCommand) -> Answer:
        """Make one command, sharing the COMMIT with whoever makes one now."""
        return await self._new.submit(command)

    async def record(self, event: Event) -> Answer:
        """Record one event, sharing the COMMIT with whoever records one now."""
        return await self._events.submit(event)

    async def record_called(self, called: Called) -> Answer | None:
        """Record what a platform says, sharing look-up and COMMIT with whoever does so now.

        The answer is `None` if the platform has yet to tell us which command it means: what it said
        is kept until then.
        """
        return await self._callbacks.submit(called)

    async def record_all_called(self, callbacks: Sequence[Called]) -> list[Answer | None]:
        """Record what a platform says about many tasks, and answer each in its place."""
        commands = await self._tasks.find({called.task for called in callbacks})
        kept: Collection[Task] = ()
        if missing := [called for called in callbacks if called.task not in commands]:
            by_now, kept = await self._tasks.keep(missing)
            commands |= by_now
        answers: list[Answer | None] = [None if c.task in kept else _UNKNOWN for c in callbacks]
        await self._record_called(callbacks, commands, answers)
        # Whose name has passed on in the meantime hears nothing more: the later attempt does.
        if passed_on := await self._tasks.passed_on(commands):
            await self._record_called(callbacks, passed_on, answers)
        return answers

    async def _record_called(
        self,
        callbacks: Sequence[Called],
        commands: Mapping[Task, Command],
        answers: list[Answer | None],
    ) -> None:
        """Record what is said about these commands, and put the answers in their places."""
        events: list[Event] = []
        places: list[int] = []
        for place, called in enumerate(callbacks):
            if found := commands.get(called.task):
                events.append(said(called, *found))
                places.append(place)
        for place, answer in zip(places, await self.record_all(events), strict=True):
            answers[place] = answer

    async def name_task(self, cmd_id: str, task_id: str) -> bool:
        """Give a command the name by which its platform will speak of it: see `Tasks.name`."""
        return await self._tasks.name(cmd_id, task_id)

    async def record_all(
        self, events: Sequence[Event], *, now: datetime | None = None
    ) -> list[Answer]:
        """Record many events, and answer each in its place."""
        return await transitions.record_all(self.pool, events, batch_max=self._batch_max, now=now)

    async def create_all(
        self, commands: Sequence[NewCommand], *, now: datetime | None = None
    ) -> list[Answer]:
        """Make many commands, and answer each in its place: made, known already, or in conflict."""
        answers: list[Answer] = []
        for start in range(0, len(commands), self._batch_max):
            part = commands[start : start + self._batch_max]
            with answering():
                answers += await self._create_part(part, now)
        return answers

    async def _create_part(
        self, commands: Sequence[NewCommand], now: datetime | None
    ) -> list[Answer]:
        # The first of those with one id is inserted; the rest are compared with it like any other.
        first = {command.cmd_id: command for command in reversed(commands)}
        made: dict[str, Answer] = {}
        for maker in {(command.source, command.hold_s) for command in first.values()}:
            wanted = [each for each in first.values() if (each.source, each.hold_s) == maker]
            for row in await self._insert(wanted, now, *maker):
                made[str(row["cmd_id"])] = _made(first[str(row["cmd_id"])], row)
        # A platform will soon speak of what was made for it.
        self._tasks.remember(
            {
                (command.task_id, command.node): (cmd_id, command.lifecycle)
                for cmd_id in made
                if (command := first[cmd_id]).task_id is not None
            }
        )

        answers: list[Answer | None] = [
            made.pop(command.cmd_id, None) if command is first[command.cmd_id] else None
            for command in commands
        ]
        known = [position for position, answer in enumerate(answers) if answer is None]
        if known:
            compared = await self._compare([commands[position] for position in known], now)
            for position, answer in zip(known, compared, strict=True):
                answers[position] = answer
        return [answer for answer in answers if answer is not None]

    async def _insert(
        self, commands: Sequence[NewCommand], now: datetime | None, source: str, hold_s: float
    ) -> list[asyncpg.Record]:
        # The ids are inserted in order, but the tasks that a platform gave them may cross. Then
        # PostgreSQL takes one of the two back as a whole, and it has only to be said again.
        given = (*_columns(commands), now, source, hold_s)
        for _ in range(_DEADLOCKS):
            with suppress(asyncpg.DeadlockDetectedError):
                return await self.pool.fetch(SQL["create"], *given)
        return await self.pool.fetch(SQL["create"], *given)

    async def _compare(self, commands: Sequence[NewCommand], now: datetime | None) -> list[Answer]:
        rows = await self.pool.fetch(
            SQL["compare"],
            [command.cmd_id for command in commands],
            [command.lifecycle for command in commands],
            [command.node for command in commands],
            [command.type for command in commands],
            [command.task_id for command in commands],
            [command.params for command in commands],
            [command.timeout_s for command in commands],
            [command.source for command in commands],
            now,
        )
        return [_known(row) for row in rows]

    async def expire_due(self, *, now: datetime | None = None) -> list[Answer]:
        """Time out every command whose deadline has passed; returns the moves that were made."""
        moved: list[Answer] = []
        while True:
            some = await expire_some(self.pool, now=now)
            moved += some
            if len(some) < _SWEEP:
                return moved

    async def get(self, cmd_id: str) -> Row | None:
        """Return the row of a command, as it is now."""
        with answering():
            row = await self.pool.fetchrow(SQL["get"], cmd_id)
        return None if row is None else _plain(row)

    async def page(
        self,
        *,
        before: str = _LAST_ID,
        limit: int,
        lifecycle: str | None = None,
        node: str | None = None,
        status: str | None = None,
    ) -> Page:
        """Return commands below an id, the newest first; with a filter, a page may be short."""
        until = None
        with answering():
            if (lifecycle, node, status) != (None, None, None):
                until = await self.pool.fetchval(SQL["far_enough"], before, _LOOKED_AT - 1)
            rows = await self.pool.fetch(
                SQL["list"], before, until or _FIRST_ID, limit + 1, lifecycle, node, status
            )
        page = [_plain(row) for row in rows[:limit]]
        if len(rows) > limit:
            return Page(page, str(page[-1]["cmd_id"]))
        return Page(page, None if until is None else str(until))

    async def timeline(self, cmd_id: str, *, after: int = 0, limit: int | None = None) -> list[Row]:
        """Return every event that was ever addressed to a command, in the order of its judging."""
        with answering():
            rows = await self.pool.fetch(SQL["timeline"], cmd_id, after, limit)
        return [_plain(row) for row in rows]


async def expire_some(pool: Pool, *, now: datetime | None = None) -> list[Answer]:
    """Time out some of what `expire_due` would: the most overdue, as many as one statement can."""
    with answering():
        rows = await pool.fetch(SQL["expire_due"], now, _SWEEP)
    return [transitions.judged(Event(str(row["cmd_id"]), "timeout"), row) for row in rows]


def _plain(row: asyncpg.Record) -> Row:
    """Turn a row into plain values: ids as text, JSON as what it means."""
    plain: Row = dict(row)
    if "cmd_id" in plain:
        plain["cmd_id"] = str(plain["cmd_id"])
    for column in ("params", "result", "late_result", "detail"):
        if isinstance(value := plain.get(column), str):
            plain[column] = json.loads(value)
    return plain


def _columns(commands: Sequence[NewCommand]) -> tuple[list[object], ...]:
    tables = [lifecycle_named(command.lifecycle) for command in commands]
    return (
        [command.cmd_id for command in commands],
        [command.lifecycle for command in commands],
        [str(table.initial) for table in tables],
        [table.timer(table.initial).value for table in tables],
        [command.node for command in commands],
        [command.type for command in commands],
        [command.task_id for command in commands],
        [command.params for command in commands],
        [command.timeout_s for command in commands],
        [command.epoch for command in commands],
    )


def _made(command: NewCommand, row: asyncpg.Record) -> Answer:
    state = CommandState(
        command.cmd_id, command.lifecycle, row["status"], row["epoch"], row["version"]
    )
    return Transition(state, TransitionResult.OK, changed=True)


def _known(row: asyncpg.Record) -> Answer:
    cmd_id, verdict, lifecycle, status, epoch, version = row
    result = TransitionResult(verdict)
    if status is None:
        if result is not TransitionResult.CONFLICT:
            raise GuardDrift(f"{cmd_id}: {verdict} of a command that does not exist")
        return Transition(None, result, changed=False)
    state = CommandState(str(cmd_id), lifecycle, status, epoch, version)
    return Transition(state, result, changed=False)
