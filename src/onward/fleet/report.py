"""Turns what a channel brought back into the event that settles an attempt, or repeats it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final, NamedTuple

from onward.channels.base import Report
from onward.core.retry import AfterFailure, Backoff, Cause, after_failure
from onward.errors import DeliveryUnknown, HostBusy, HostOffline, HostRefused, NotDelivered
from onward.fleet.masking import Hidden
from onward.store.executions import ExecutionEvent

_TIMED_OUT_CODE = 124  # the exit code of a command that its host stopped at the time limit
_WORKER = "worker"  # who says it
_BUSY_S = 1.0  # until a host that was busy with something else is asked again
_OFFLINE_S = 60.0  # until somebody looks again for a host that was not connected

OFFLINE: Final = "OFFLINE"  # the cause of an execution that waits for its host to connect


class Attempt(NamedTuple):
    """An attempt, as far as its report needs to know it."""

    execution_id: int
    epoch: int
    retries: int
    max_retries: int
    hidden: Hidden | None = None  # what must not be in the words for what went wrong


def reported(attempt: Attempt, report: Report, backoff: Backoff, chance: float) -> ExecutionEvent:
    """The event for what the host itself has said."""
    if report.succeeded:
        data = _succeeded(report.exit_code)
        return ExecutionEvent(attempt.execution_id, "succeed", attempt.epoch, _WORKER, data)
    cause = Cause.TIMED_OUT if report.exit_code == _TIMED_OUT_CODE else Cause.FAILED
    return failed(attempt, cause, backoff, chance, exit_code=report.exit_code, error=report.error)


def unreported(
    attempt: Attempt, error: Exception, backoff: Backoff, chance: float
) -> ExecutionEvent:
    """The event for an attempt that brought back no word of the host's."""
    match error:
        case HostBusy():
            # Waiting for a busy host never costs a retry.
            return _event(attempt, "retry", delay_s=_BUSY_S, cause="BUSY", error=str(error))
        case HostOffline():
            # It is woken when its host is there again, and looked at now and then all the same.
            told = {"cause": OFFLINE, "error": str(error)}
            return _event(attempt, "retry", delay_s=_OFFLINE_S, uncounted=1, **told)
        case HostRefused():
            cause = Cause.REFUSED
        case NotDelivered():
            cause = Cause.UNREACHABLE
        case DeliveryUnknown():
            cause = Cause.DELIVERY_UNKNOWN
        case TimeoutError():
            cause = Cause.TIMED_OUT
        case _:
            raise error
    return failed(attempt, cause, backoff, chance, error=str(error))


def handed_back(execution_id: int, epoch: int) -> ExecutionEvent:
    """The event for an attempt that was claimed and never begun."""
    attempt = Attempt(execution_id, epoch, 0, 0)
    return _event(attempt, "retry", uncounted=1, cause="HANDED_BACK")


def failed(
    attempt: Attempt, cause: Cause, backoff: Backoff, chance: float, **data: object
) -> ExecutionEvent:
    """The event for a failed attempt: another one after a while, or the end."""
    data["cause"] = cause.value
    if after_failure(attempt.retries, attempt.max_retries, cause) is AfterFailure.RETRY:
        delay_s = backoff.delay_s(attempt.retries, chance)
        return _event(attempt, "retry", delay_s=delay_s, costs=1, **data)
    return _event(attempt, cause.terminal_event, **data)


def printed(event: ExecutionEvent, output: str | None) -> ExecutionEvent:
    """The event with the digest of what its attempt printed: empty for nothing, none if unknown."""
    if output is None:
        return event
    execution_id, name, epoch, source, data = event
    return ExecutionEvent(execution_id, name, epoch, source, _with_output(data, output))


# Hosts that do the same mostly print the same.
@lru_cache(maxsize=1_024)
def _with_output(data: str | None, output: str) -> str:
    said = json.loads(data) if data else {}
    return json.dumps({**said, "output": output}, ensure_ascii=True)


@lru_cache(maxsize=256)
def _succeeded(exit_code: int | None) -> str | None:
    """What is written of a success: the same few words thousands of times a second."""
    return None if exit_code is None else json.dumps({"exit_code": exit_code})


def _event(attempt: Attempt, name: str, **data: object) -> ExecutionEvent:
    said = {key: value for key, value in data.items() if value is not None}
    if attempt.hidden is not None and "error" in said:
        said["error"] = attempt.hidden.out_of(str(said["error"]))
    return ExecutionEvent(
        attempt.execution_id,
        name,
        attempt.epoch,
        _WORKER,
        json.dumps(said, ensure_ascii=True) if said else None,
    )
