"""What can be done with a command, as plain functions, inside `async with onward.open():`.

The names and signatures of `mark_command_*` and of the callback handler are those that the services
which asked for them already call. Each returns a `Transition`; none throws because of what the
network did. Bad input is another matter: it raises `InvalidInput` before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
import structlog
import uuid_utils

from onward.core.lifecycles import LIFECYCLES, lifecycle_named
from onward.core.verdicts import Transition, TransitionResult
from onward.errors import InvalidInput
from onward.store import inputs
from onward.store.commands import NewCommand, Row
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

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.callbacks")

CommandId = str | UUID

_ID_BITS: Final = 256  # of a number that is taken for an id; a larger one is none
_EVENTS = frozenset(name for table in LIFECYCLES.values() for name in table.moves)


def new_command_id() -> str:
    """Make an id for a command: a UUIDv7, so that ids made later sort later."""
    return str(uuid_utils.uuid7())


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
    settings = current().settings
    return await current().commands.create(
        NewCommand(
            cmd_id=new_command_id() if cmd_id is None else inputs.command_id(cmd_id),
            lifecycle=lifecycle_named(lifecycle).name,
            node=inputs.name("node", _worded(node), empty=True),
            type=inputs.name("type", type, empty=True),
            task_id=None if task_id is None else inputs.name("task_id", _worded(task_id)),
            params=inputs.json_object(
                "params", {} if params is None else params, max_bytes=settings.payload_max_bytes
            ),
            timeout_s=(
                settings.command_timeout_s
                if timeout_s is None
                else inputs.seconds("timeout_s", timeout_s)
            ),
            source=inputs.name("source", source, empty=True),
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
    return Event(
        inputs.command_id(cmd_id),
        _event_name(name),
        None if epoch is None else inputs.integer("epoch", epoch),
        inputs.name("source", source, empty=True) if source != "" else "",
        _checked_data(data) if data else None,
    )


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
    word = _short(status)
    found = await _find_task(task_id, device_id)
    if found is None:
        answer: Answer = Transition(None, TransitionResult.UNKNOWN_COMMAND, changed=False)
    else:
        cmd_id, lifecycle = found
        # A word that is no status must not pass for one of our own events, either.
        name = lifecycle_named(lifecycle).event_called(status) or f"callback {word}"
        answer = await current().commands.record(Event(cmd_id, name, source="platform"))
    _log_refusal(answer, task_id=_short(task_id), device_id=_short(device_id), new_status=word)
    return answer


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
    return await current().commands.pool.execute(query, *args)


async def fetch(query: str, *args: object) -> list[asyncpg.Record]:
    """Run a query of your own on Onward's database."""
    return await current().commands.pool.fetch(query, *args)


async def _refused_by_node(
    cmd_id: CommandId, name: str, error_code: object, error_message: object, result_code: object
) -> Answer:
    return await record_event(
        cmd_id, name, error_code=error_code, error_message=error_message, result_code=result_code
    )


async def _find_task(task_id: object, device_id: object) -> tuple[str, str] | None:
    try:
        task = inputs.name("task_id", _worded(task_id))
        node = inputs.name("device_id", _worded(device_id), empty=True)
    except InvalidInput:
        return None  # no command was ever made under such a name
    return await current().commands.find_task(task, node)


_LOGGED = {
    TransitionResult.DUPLICATE: ("callback_duplicate", "收到重复的状态回调，忽略"),
    TransitionResult.TERMINAL: ("callback_after_end", "指令已处于终态，忽略状态更新"),
    TransitionResult.STALE: ("callback_out_of_order", "状态回退或乱序，忽略更新"),
    TransitionResult.INVALID_STATE: ("callback_invalid", "非法的状态流转，忽略更新"),
    TransitionResult.UNKNOWN_COMMAND: ("callback_unknown", "未知的指令，忽略状态更新"),
}


def _log_refusal(answer: Answer, *, task_id: str, device_id: str, new_status: str) -> None:
    if answer.result not in _LOGGED:
        return
    action, line = _LOGGED[answer.result]
    say = log.info if answer.result is TransitionResult.DUPLICATE else log.warning
    say(
        action,
        line=line,
        verdict=answer.result.value,
        task_id=task_id,
        device_id=device_id,
        current_status=answer.record.status if answer.record else None,
        new_status=new_status,
    )


def _checked_data(data: Mapping[str, object]) -> str | None:
    settings = current().settings
    checked = {
        key: _CHECKS.get(key, _as_is)(value) for key, value in data.items() if value is not None
    }
    if not checked:
        return None
    return inputs.json_value("data", checked, max_bytes=settings.payload_max_bytes)


def _event_name(value: object) -> str:
    return value if isinstance(value, str) and value in _EVENTS else inputs.name("event", value)


def _duration(value: object) -> object:
    return inputs.integer("duration_ms", value)


def _as_is(value: object) -> object:
    return value


def _worded(value: object) -> object:
    """Take a number for an id as its digits; anything else as it is, to be checked."""
    if isinstance(value, bool) or not isinstance(value, int) or value.bit_length() > _ID_BITS:
        return value
    return str(value)


_CHECKS = {"duration_ms": _duration, "result_code": _worded, "error_code": _worded}


def _short(value: object) -> str:
    """Show whatever a stranger sent: printable, and no longer than an event's name may be."""
    if isinstance(value, int) and value.bit_length() > _ID_BITS:
        return f"a number of {value.bit_length()} bits"
    shown = value if isinstance(value, str) and value.isprintable() else ascii(value)
    return shown[:100].encode("utf-8", "replace").decode()
