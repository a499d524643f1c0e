"""What is said about commands, checked: new ones, their events, and what platforms call back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import structlog
import uuid_utils

from onward.core.lifecycles import LIFECYCLES, lifecycle_named
from onward.core.verdicts import Transition, TransitionResult
from onward.errors import InvalidInput
from onward.settings import Settings
from onward.store import inputs
from onward.store.commands import Called, Commands, NewCommand
from onward.store.transitions import Answer, Event

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.callbacks")

CommandId = str | UUID

_ID_BITS: Final = 256  # of a number that is taken for an id; a larger one is none
_EVENTS = frozenset(name for table in LIFECYCLES.values() for name in table.moves)
_UNKNOWN: Final[Answer] = Transition(None, TransitionResult.UNKNOWN_COMMAND, changed=False)


class Callback(NamedTuple):
    """What a platform says, as it says it."""

    task_id: object
    device_id: object
    status: object


def new_command_id() -> str:
    """Make an id for a command: a UUIDv7, so that ids made later sort later."""
    return str(uuid_utils.uuid7())


def new_command(
    settings: Settings,
    *,
    cmd_id: CommandId | None,
    lifecycle: str,
    node: object,
    type: object,  # noqa: A002 - the word of the table, the API and the documents
    task_id: object,
    params: Mapping[str, object] | None,
    timeout_s: float | None,
    source: str,
) -> NewCommand:
    """Check a command that is to be made; what is not said comes from the settings."""
    return NewCommand(
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


def differences(new: NewCommand, row: Mapping[str, object]) -> list[str]:
    """Name the fields in which a command that was to be made differs from the one that is there."""
    wanted: dict[str, object] = {**new._asdict(), "params": json.loads(new.params)}
    found = [
        name
        for name in ("lifecycle", "node", "type", "task_id", "params", "timeout_s")
        if wanted[name] != row[name]
    ]
    # To Python, `true` equals 1; to the database it does not.
    return found or ["params"]


def event(
    settings: Settings,
    cmd_id: CommandId,
    name: str,
    *,
    epoch: int | None,
    source: str,
    data: Mapping[str, object],
) -> Event:
    """Check an event, with what came along with it."""
    return Event(
        inputs.command_id(cmd_id),
        _event_name(name),
        None if epoch is None else inputs.integer("epoch", epoch),
        inputs.name("source", source, empty=True) if source != "" else "",
        _checked_data(settings, data) if data else None,
    )


async def handle_callback(
    commands: Commands, task_id: object, device_id: object, status: object
) -> Answer:
    """Take what a third-party platform calls back: this task of this device is now in `status`.

    `status` is the platform's word or code. Callbacks come late, twice and out of order, so nothing
    throws: a word that nobody knows fits no status, and a task that nobody knows is
    `UNKNOWN_COMMAND`. Each refusal is logged with both ids.
    """
    called = _called(task_id, device_id, status)
    answer = _UNKNOWN if called is None else await commands.record_called(called)
    if not answer.changed:
        _log_refusal(answer, Callback(task_id, device_id, status))
    return answer


async def handle_callbacks(commands: Commands, callbacks: Sequence[Callback]) -> list[Answer]:
    """Take many callbacks as one batch, and answer each in its place."""
    called = [_called(*callback) for callback in callbacks]
    taken = iter(await commands.record_all_called([each for each in called if each is not None]))
    answers = [_UNKNOWN if each is None else next(taken) for each in called]
    for callback, answer in zip(callbacks, answers, strict=True):
        if not answer.changed:
            _log_refusal(answer, callback)
    return answers


def _called(task_id: object, device_id: object, status: object) -> Called | None:
    """Check what a platform says; `None` if no command was ever made under such a name."""
    try:
        task = inputs.name("task_id", _worded(task_id))
        node = inputs.name("device_id", _worded(device_id), empty=True)
    except InvalidInput:
        return None
    # A word that is no status must not pass for one of our own events, either.
    return Called((task, node), status, otherwise=f"callback {_short(status)}")


_LOGGED = {
    TransitionResult.DUPLICATE: ("callback_duplicate", "收到重复的状态回调，忽略"),
    TransitionResult.TERMINAL: ("callback_after_end", "指令已处于终态，忽略状态更新"),
    TransitionResult.STALE: ("callback_out_of_order", "状态回退或乱序，忽略更新"),
    TransitionResult.INVALID_STATE: ("callback_invalid", "非法的状态流转，忽略更新"),
    TransitionResult.UNKNOWN_COMMAND: ("callback_unknown", "未知的指令，忽略状态更新"),
}


def _log_refusal(answer: Answer, callback: Callback) -> None:
    if answer.result not in _LOGGED:
        return
    action, line = _LOGGED[answer.result]
    say = log.info if answer.result is TransitionResult.DUPLICATE else log.warning
    say(
        action,
        line=line,
        verdict=answer.result.value,
        task_id=_short(callback.task_id),
        device_id=_short(callback.device_id),
        current_status=answer.record.status if answer.record else None,
        new_status=_short(callback.status),
    )


def _checked_data(settings: Settings, data: Mapping[str, object]) -> str | None:
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
