"""The tasks of platforms: which command is meant by one, and what was said before that was known.

A platform may call back about a task before it has told us what it calls it. What it says then is
kept, and judged when the task has its name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import asyncpg

from onward.core.lifecycles import LIFECYCLES, lifecycle_named
from onward.store import queries, transitions
from onward.store.database import Connection, Pool, answering
from onward.store.transitions import Event

SQL = queries.load("tasks.sql")

SOURCE: Final = "platform"  # of events that platforms have told

_KNOWN_MAX: Final = 100_000  # tasks whose command is remembered, to spare a look-up
_LOCKS: Final = 0x7A5C  # the first half of our advisory locks; those of hosts have no halves
_KEPT_S: Final = 86_400.0
_FORGOTTEN_AT_ONCE: Final = 1_000
_VERSION_AT: Final = 14  # in the text of a UUID
_OF_AN_ATTEMPT: Final = "8"

# What a platform's word or code for a status means, in every lifecycle: this is on the hot path.
_CALLED: Final[Mapping[tuple[str, object], str | None]] = {
    (table.name, word): table.event_called(word)
    for table in LIFECYCLES.values()
    for words in table.states.items()
    for word in words
}
_WORDS: Final = frozenset(word for _, word in _CALLED)

# What a platform calls it, and the node that it is for; or what a platform of the file calls it,
# the device as that platform knows it, and the platform.
Task = tuple[str, str] | tuple[str, str, str]
Command = tuple[str, str]  # its id and its lifecycle


class Called(NamedTuple):
    """What a platform says about a task of its own; the names have been checked by `inputs`."""

    task: Task
    status: object  # its word or its code, whatever it is
    otherwise: str  # the event that it is where no status is called so
    data: str | None = None  # JSON: what came along with it


class Tasks:
    """The tasks of one database, and which of them this process knows already."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # What a platform calls a task never comes to mean another command, except an attempt's.
        self._known: dict[Task, Command] = {}

    async def find(self, tasks: set[Task]) -> dict[Task, Command]:
        """Return the commands that a platform calls by these tasks."""
        found = {task: known for task in tasks if (known := self._known.get(task))}
        if wanted := tasks - found.keys():
            with answering():
                async with self._pool.acquire() as connection:
                    new = await _looked_up(connection, wanted)
            self.remember(new)
            found |= new
        return found

    def remember(self, tasks: Mapping[Task, Command]) -> None:
        """Spare the look-up of these tasks from now on."""
        if len(self._known) + len(tasks) > _KNOWN_MAX:
            self._known.clear()
        self._known |= {
            task: command for task, command in tasks.items() if not _of_an_attempt(command)
        }

    def clear(self) -> None:
        """Forget which tasks are known."""
        self._known.clear()

    async def passed_on(self, tasks: Mapping[Task, Command]) -> dict[Task, Command]:
        """Return those of the tasks that are the name of another command by now."""
        asked = {task for task, command in tasks.items() if _of_an_attempt(command)}
        found = await self.find(asked) if asked else {}
        return {task: command for task, command in found.items() if command != tasks[task]}

    async def keep(self, callbacks: Sequence[Called]) -> tuple[dict[Task, Command], set[Task]]:
        """Keep what is said about hosts of platforms whose tasks are not known yet.

        Returns the tasks that are known by now after all, and those of which something was kept.
        """
        with answering():
            nodes = await _hosts_called(self._pool, {called.task for called in callbacks})
            if not nodes:
                return {}, set()
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute(SQL["lock_tasks"], _LOCKS, [task[0] for task in nodes])
                found = await _looked_up(connection, nodes.keys())
                kept = nodes.keys() - found.keys()
                early = [called for called in callbacks if called.task in kept]
                await connection.execute(SQL["keep_early"], *_columns(early, nodes))
                await connection.execute(SQL["forget_early"], _KEPT_S, _FORGOTTEN_AT_ONCE)
        return found, kept

    async def name(self, cmd_id: str, task_id: str) -> bool:
        """Give a command the name by which its platform will speak of it; false if it cannot be.

        What the platform has said of the task already is judged in the same transaction. The name
        is given once. A platform that is asked again, for a later attempt, answers with the task
        that it has: then the name passes on, and with it what was said to the former attempt.
        """
        try:
            with answering():
                async with self._pool.acquire() as connection, connection.transaction():
                    await connection.execute(SQL["lock_tasks"], _LOCKS, [task_id])
                    return await _name(connection, cmd_id, task_id)
        except asyncpg.UniqueViolationError:
            # Somebody has made a command under this name at the same moment.
            return False


def _of_an_attempt(command: Command) -> bool:
    """Whether the name of a command may pass on: to the next attempt at the same execution."""
    return command[0][_VERSION_AT] == _OF_AN_ATTEMPT


def said(called: Called, cmd_id: str, lifecycle: str) -> Event:
    """Return the event that a platform's word stands for; True is not 1, nor is 1.0."""
    plain = type(called.status) in (str, int)
    name = _CALLED.get((lifecycle, called.status)) if plain else None
    return Event(cmd_id, name or called.otherwise, None, SOURCE, called.data)


async def _name(connection: Connection, cmd_id: str, task_id: str) -> bool:
    row = await connection.fetchrow(SQL["to_be_named"], cmd_id)
    if row is None or row["task_id"] not in (None, task_id):
        return False
    events: list[Event] = []
    if row["task_id"] is None:
        holder = await connection.fetchrow(SQL["holder"], task_id, row["node"])
        if holder is not None:
            if holder["epoch"] >= row["epoch"]:
                return False
            # Locked from here on: what is said to it now is said to it afterwards.
            await connection.execute(SQL["set_name"], holder["cmd_id"], None)
            events += await _said_before(connection, holder["cmd_id"], cmd_id, row["lifecycle"])
        await connection.execute(SQL["set_name"], cmd_id, task_id)
    early = await connection.fetch(SQL["take_early"], task_id, row["node"])
    events += [
        said(_kept(each["status"]), cmd_id, row["lifecycle"])
        for each in sorted(early, key=lambda each: int(each["id"]))
    ]
    if events:
        await transitions.record(connection, events)
    return True


async def _said_before(
    connection: Connection, former: object, cmd_id: str, lifecycle: str
) -> list[Event]:
    rows = await connection.fetch(SQL["said_before"], former, SOURCE)
    moves = lifecycle_named(lifecycle).moves
    return [Event(cmd_id, event, None, SOURCE, detail) for event, detail in rows if event in moves]


async def _looked_up(connection: Connection, tasks: Collection[Task]) -> dict[Task, Command]:
    found: dict[Task, Command] = {}
    # Unpacked by hand, because the type does not say which of the two a tuple is.
    plain = [task for task in tasks if len(task) == 2]  # noqa: PLR2004 - without a platform
    if plain:
        columns = [task[0] for task in plain], [task[1] for task in plain]
        for task_id, node, cmd_id, lifecycle in await connection.fetch(SQL["find_tasks"], *columns):
            found[task_id, node] = (str(cmd_id), lifecycle)
    if at := [task for task in tasks if len(task) == 3]:  # noqa: PLR2004 - with one
        columns_at = [[task[part] for task in at] for part in range(3)]
        for ord_, cmd_id, lifecycle in await connection.fetch(SQL["find_tasks_at"], *columns_at):
            found[at[ord_ - 1]] = (str(cmd_id), lifecycle)
    return found


async def _hosts_called(pool: Pool, tasks: Collection[Task]) -> dict[Task, list[str]]:
    asked = list(tasks)
    platforms = [task[2] if len(task) == 3 else None for task in asked]  # noqa: PLR2004 - as above
    rows = await pool.fetch(SQL["hosts_called"], [task[1] for task in asked], platforms)
    nodes: dict[Task, list[str]] = {}
    for ord_, name in rows:
        nodes.setdefault(asked[ord_ - 1], []).append(name)
    return nodes


def _columns(
    early: Sequence[Called], nodes: Mapping[Task, Sequence[str]]
) -> tuple[list[str], list[str], list[str]]:
    """What is kept: one row for each host that may be meant."""
    rows = [(called, node) for called in early for node in nodes[called.task]]
    return (
        [called.task[0] for called, _ in rows],
        [node for _, node in rows],
        [_to_keep(called) for called, _ in rows],
    )


def _to_keep(called: Called) -> str:
    # A word that is nobody's may be anything; what it is called otherwise is fit to be stored.
    plain = type(called.status) in (str, int) and called.status in _WORDS
    return json.dumps(
        {
            "status": called.status if plain else None,
            "otherwise": called.otherwise,
            "data": None if called.data is None else json.loads(called.data),
        }
    )


def _kept(text: str) -> Called:
    kept = json.loads(text)
    data = None if kept["data"] is None else json.dumps(kept["data"])
    return Called(("", ""), kept["status"], kept["otherwise"], data)
