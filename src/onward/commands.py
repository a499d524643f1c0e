"""What can be done with a command, as plain functions, inside `async with onward.open():`.

The names and signatures of `mark_command_*` and of the callback handler are those that the services
which asked for them already call. Each returns a `Transition`; none throws because of what the
network did. Bad input is another matter: it raises `InvalidInput` before anything is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

import asyncpg

from onward.core.verdicts import Transition, TransitionResult
from onward.fleet import callbacks
from onward.fleet import commands as fleet
from onward.fleet.commands import CommandId, new_command_id
from onward.store import inputs
from onward.store.commands import Row
from onward.store.database import Connection
from onward.store.transitions import Answer, CommandState, Event
from onward.wiring import current

__all__ = [
    "CommandState",
    "Event",
    "create_command",
    "event",
    "execute",
    "expire_due",
    "fetch",
    "get_command",
    "get_timeline",
    "handle_callback",
    "mark_command_ack",
    "mark_command_busy",
    "mark_command_done",
    "mark_command_failed",
    "mark_command_invalid",
    "mark_command_no_effect",
    "mark_command_send_failed",
    "mark_command_sent",
    "mark_command_timeout",
    "new_command_id",
    "record_event",
    "record_events",
]


async def create_command(
    cmd_id: CommandId | None = None,
    *,
    type: str = "",  # noqa: A002 - the word of the table, the API and the documents
    params: Mapping[str, object] | None = None,
    node: str = "",
    lifecycle: str = "node",
    task_id: object = None,
    timeout_s: float | None = None,
    source: str = "",
) -> Answer:
    """Make a command in the first status of its lifecycle; the record carries its id.

    Doing so again is `DUPLICATE`, with another content under the same id `CONFLICT`; neither
    touches what is there. `task_id` is the name that a third-party platform has for it.
    """
    return await current().commands.create(
        fleet.new_command(
            current().settings,
            cmd_id=cmd_id,
            lifecycle=lifecycle,
            node=node,
            type=type,
            task_id=task_id,
            params=params,
            timeout_s=timeout_s,
            source=source,
        )
    )


def event(
    cmd_id: CommandId,
    name: str,
    *,
    epoch: int | None = None,
    source: str = "",
    **data: object,
) -> Event:
    """Make an event for `record_events`, checked, with what came along with it.

    `data` may have `duration_ms`, `result_code`, `error_code`, `error_message`, and `result`, which
    go to the columns of these names; anything else stays in the timeline.
    """
    return fleet.event(current().settings, cmd_id, name, epoch=epoch, source=source, data=data)


async def record_event(
    cmd_id: CommandId, name: str, *, epoch: int | None = None, source: str = "", **data: object
) -> Answer:
    """Record one event of any lifecycle, and say what became of it."""
    return await current().commands.record(event(cmd_id, name, epoch=epoch, source=source, **data))


async def record_events(events: Iterable[Event]) -> list[Answer]:
    """Record many events over many commands, and answer each in its place.

    Events of one command are applied in the order given. Each is judged on its own merit: the
    batch shares round trips and commits, but is not a transaction.
    """
    return await current().commands.record_all(list(events))


async def mark_command_sent(cmd_id: CommandId, allow_resend: bool = True) -> Answer:  # noqa: FBT001, FBT002 - the signature that callers have
    """Say that the command was sent; again after a failed send unless `allow_resend` is false."""
    return await record_event(cmd_id, "send" if allow_resend else "send_once")


async def mark_command_ack(cmd_id: CommandId) -> Answer:
    """Say that the node has the command."""
    return await record_event(cmd_id, "ack")


async def mark_command_done(
    cmd_id: CommandId, duration_ms: int | None = None, result_code: object = None
) -> Answer:
    """Say that the node has done it."""
    return await record_event(cmd_id, "done", duration_ms=duration_ms, result_code=result_code)


async def mark_command_no_effect(cmd_id: CommandId, duration_ms: int | None = None) -> Answer:
    """Say that the node did it and nothing changed."""
    return await record_event(cmd_id, "no_effect", duration_ms=duration_ms)


async def mark_command_failed(
    cmd_id: CommandId,
    error_code: object = None,
    error_message: str | None = None,
    result_code: object = None,
) -> Answer:
    """Say that the node tried and failed: `ERROR`."""
    return await _refused_by_node(cmd_id, "fail", error_code, error_message, result_code)


async def mark_command_invalid(
    cmd_id: CommandId,
    error_code: object = None,
    error_message: str | None = None,
    result_code: object = None,
) -> Answer:
    """Say that the node could not make sense of it: `INVALID`."""
    return await _refused_by_node(cmd_id, "invalid", error_code, error_message, result_code)


async def mark_command_busy(
    cmd_id: CommandId,
    error_code: object = None,
    error_message: str | None = None,
    result_code: object = None,
) -> Answer:
    """Say that the node was busy with something else: `BUSY`."""
    return await _refused_by_node(cmd_id, "busy", error_code, error_message, result_code)


async def mark_command_timeout(cmd_id: CommandId) -> Answer:
    """Say that nothing was heard in time: `TIMEOUT`."""
    return await record_event(cmd_id, "timeout")


async def mark_command_send_failed(cmd_id: CommandId, error_message: str | None = None) -> Answer:
    """Say that the command could not be sent: `SEND_FAILED`, from where it may be sent again."""
    return await record_event(cmd_id, "send_fail", error_message=error_message)


async def handle_callback(task_id: object, device_id: object, status: object) -> Answer:
    """Take what a third-party platform calls back: this task of this device is now in `status`.

    `status` is the platform's word or code. Callbacks come late, twice and out of order, so nothing
    throws: a word that nobody knows fits no status, and a task that nobody knows is
    `UNKNOWN_COMMAND`. Each refusal is logged with both ids.
    """
    answer = await callbacks.handle_callback(
        current().commands, callbacks.Callback(task_id, device_id, status)
    )
    # What is kept because its task has no name yet is about a command that nobody knows so far.
    return answer or Transition(None, TransitionResult.UNKNOWN_COMMAND, changed=False)


async def expire_due(*, now: datetime | None = None) -> list[Answer]:
    """Time out every command whose deadline has passed, and return the moves that were made.

    Any number of processes may do this at once; they share the work and never wait for each other.
    """
    return await current().commands.expire_due(now=now)


async def get_command(cmd_id: CommandId) -> Row | None:
    """Return the row of a command, or `None`."""
    return await current().commands.get(inputs.command_id(cmd_id))


async def get_timeline(cmd_id: CommandId) -> list[Row]:
    """Return every event that was ever addressed to a command, with its verdict, oldest first."""
    return await current().commands.timeline(inputs.command_id(cmd_id))


async def execute(query: str, *args: object) -> str:
    """Run SQL of your own on Onward's database; returns PostgreSQL's word for what it did."""
    async with _own_words() as connection:
        return await connection.execute(query, *args)


async def fetch(query: str, *args: object) -> list[asyncpg.Record]:
    """Run a query of your own on Onward's database."""
    async with _own_words() as connection:
        return await connection.fetch(query, *args)


@asynccontextmanager
async def _own_words() -> AsyncIterator[Connection]:
    """Lend a connection to somebody else's SQL, and undo what it did to the session."""
    async with current().commands.pool.acquire() as connection:
        try:
            yield connection
        finally:
            await connection.reset()


async def _refused_by_node(
    cmd_id: CommandId, name: str, error_code: object, error_message: object, result_code: object
) -> Answer:
    return await record_event(
        cmd_id, name, error_code=error_code, error_message=error_message, result_code=result_code
    )
