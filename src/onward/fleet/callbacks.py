"""What third-party platforms call back, checked and recorded.

Callbacks come late, twice and out of order, so nothing throws: a word that nobody knows fits no
status, and a task that nobody knows is `UNKNOWN_COMMAND`. Each refusal is logged with both ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from onward.channels.platform.description import Platform, Said, Word
from onward.core.verdicts import Transition, TransitionResult
from onward.errors import InvalidInput
from onward.fleet.carry import CANCELLED
from onward.fleet.commands import ID_BITS, worded
from onward.store import inputs
from onward.store.commands import Commands
from onward.store.tasks import Called
from onward.store.transitions import Answer

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.callbacks")

_MESSAGE_MAX: Final = 2_000  # characters of what a platform says went wrong
_UNKNOWN: Final[Answer] = Transition(None, TransitionResult.UNKNOWN_COMMAND, changed=False)


class Callback(NamedTuple):
    """What a platform says, as it says it."""

    task_id: object
    device_id: object
    status: object
    # Of a platform that has a description: its name, what its word means, and what came along.
    platform: str | None = None
    meaning: str | None = None
    data: str | None = None


def callback_of(platform: Platform, said: Said, *, max_bytes: int) -> Callback:
    """Make a callback of what was read with a platform's description."""
    return Callback(
        said.task_id,
        said.device_id,
        said.word,
        platform.name,
        None if said.meaning is None else said.meaning.status,
        _data(said, max_bytes),
    )


async def handle_callback(commands: Commands, callback: Callback) -> Answer | None:
    """Take what a platform calls back: this task of this device is now in this status.

    The answer is `None` if the platform has yet to tell us which command it means: what it said is
    kept, and gets its verdict then.
    """
    called = _called(callback)
    answer = _UNKNOWN if called is None else await commands.record_called(called)
    if answer is None or not answer.changed:
        _log(answer, callback)
    return answer


async def handle_callbacks(
    commands: Commands, callbacks: Sequence[Callback]
) -> list[Answer | None]:
    """Take many callbacks as one batch, and answer each in its place."""
    called = [_called(callback) for callback in callbacks]
    taken = iter(await commands.record_all_called([each for each in called if each is not None]))
    answers = [_UNKNOWN if each is None else next(taken) for each in called]
    for callback, answer in zip(callbacks, answers, strict=True):
        if answer is None or not answer.changed:
            _log(answer, callback)
    return answers


def _called(callback: Callback) -> Called | None:
    """Check what a platform says; `None` if no command was ever made under such a name."""
    task_id, device_id, status, platform, meaning, data = callback
    try:
        task = inputs.name("task_id", worded(task_id))
        node = inputs.name("device_id", worded(device_id), empty=True)
    except InvalidInput:
        return None
    # A word that is no status must not pass for one of our own events, either.
    otherwise = f"callback {_short(status)}"
    if platform is None:
        return Called((task, node), status, otherwise)
    return Called((task, node, platform), meaning, otherwise, data)


def _data(said: Said, max_bytes: int) -> str | None:
    """What came along with a callback, as the columns and the timeline take it."""
    told: dict[str, object] = {"word": _short(said.word), **_failure(said, said.meaning)}
    whole = told if said.result is None else told | {"result": said.result}
    try:
        return inputs.json_value("result", whole, max_bytes=max_bytes)
    except InvalidInput as error:
        # The callback counts all the same; what cannot be stored is told in its place.
        told["result_left_out"] = error.problem[:_MESSAGE_MAX]
        return inputs.json_value("result", told, max_bytes=max_bytes)


def _failure(said: Said, meaning: Word | None) -> dict[str, object]:
    if meaning is None or not (meaning.failed or meaning.cancelled):
        return {}
    failure: dict[str, object] = {"error_code": _short(said.word)}
    if isinstance(said.error, str):
        failure["error_message"] = _plain(said.error)
    if meaning.cancelled:
        failure["result_code"] = CANCELLED
    return failure


def _plain(text: str) -> str:
    """A text for people that PostgreSQL can store, and not too long."""
    return text[:_MESSAGE_MAX].replace("\x00", " ").encode("utf-8", "replace").decode()


_KEPT: Final = ("callback_early", "平台任务尚未登记，暂存回调")
_LOGGED: Final = {
    TransitionResult.DUPLICATE: ("callback_duplicate", "收到重复的状态回调，忽略"),
    TransitionResult.TERMINAL: ("callback_after_end", "指令已处于终态，忽略状态更新"),
    TransitionResult.STALE: ("callback_out_of_order", "状态回退或乱序，忽略更新"),
    TransitionResult.INVALID_STATE: ("callback_invalid", "非法的状态流转，忽略更新"),
    TransitionResult.UNKNOWN_COMMAND: ("callback_unknown", "未知的指令，忽略状态更新"),
}


def _log(answer: Answer | None, callback: Callback) -> None:
    """Tell of a callback that moved nothing."""
    logged = _KEPT if answer is None else _LOGGED.get(answer.result)
    if logged is None:
        return
    quiet = answer is None or answer.result is TransitionResult.DUPLICATE
    say = log.info if quiet else log.warning
    say(
        logged[0],
        line=logged[1],
        verdict=answer.result.value if answer else None,
        task_id=_short(callback.task_id),
        device_id=_short(callback.device_id),
        current_status=answer.record.status if answer and answer.record else None,
        new_status=_short(callback.status),
    )


def _short(value: object) -> str:
    """Show whatever a stranger sent: printable, and no longer than an event's name may be."""
    if isinstance(value, int) and value.bit_length() > ID_BITS:
        return f"a number of {value.bit_length()} bits"
    shown = value if isinstance(value, str) and value.isprintable() else ascii(value)
    return shown[:100].encode("utf-8", "replace").decode()
