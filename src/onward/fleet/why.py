"""Says why an execution is where it is: exactly one reason, whatever else might hold it up as well.

The reasons are asked in the order in which they would have to be put out of the way. Somebody who
wants the execution to go on reads what to do first, and asks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from onward.core.lifecycles import EXECUTION
from onward.fleet.report import OFFLINE

_NEW = str(EXECUTION.initial)
_RUNNING = str(EXECUTION.moves["claim"].target)
_TERMINAL = frozenset(map(str, EXECUTION.terminal))


class Reason(StrEnum):
    """What holds an execution where it is."""

    ENDED = "ENDED"
    CANCELLING = "CANCELLING"
    WAITING_FOR_APPROVAL = "WAITING_FOR_APPROVAL"
    TURNED_DOWN = "TURNED_DOWN"
    PAUSED = "PAUSED"
    CONCURRENCY_LIMIT = "CONCURRENCY_LIMIT"
    HOST_OFFLINE = "HOST_OFFLINE"
    NEXT_RETRY = "NEXT_RETRY"
    NO_WORKER = "NO_WORKER"
    BLOCKED_BY_RULE = "BLOCKED_BY_RULE"
    HOST_DISABLED = "HOST_DISABLED"
    HOST_HELD = "HOST_HELD"
    BEHIND_ANOTHER = "BEHIND_ANOTHER"
    TO_BE_PLANNED = "TO_BE_PLANNED"
    TO_BE_CLAIMED = "TO_BE_CLAIMED"
    WORKER_LOST = "WORKER_LOST"
    OVERDUE = "OVERDUE"
    UNDER_WAY = "UNDER_WAY"


@dataclass(frozen=True, slots=True)
class Why:
    """The one reason, as a sentence for people and as facts for programs."""

    reason: Reason
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)


def why(row: Mapping[str, object]) -> Why:
    """Choose the reason from everything that `store.browse.why` has found."""
    if row["status"] in _TERMINAL:
        return _ended(row)
    if row["cancelled_at"] is not None:
        return Why(
            Reason.CANCELLING,
            f"Its job was cancelled by {row['cancelled_by']}; it ends as soon as it can.",
            {"since": row["cancelled_at"], "by": row["cancelled_by"]},
        )
    if row["status"] == _RUNNING:
        return _running(row)
    return _held_by_job(row) or (_unplanned(row) if row["status"] == _NEW else _queued(row))


def _ended(row: Mapping[str, object]) -> Why:
    # Without a cause it went well in the end, and the error is what a former attempt said.
    told = f": {row['error']}" if row["error"] and row["cause"] else ""
    attempts = "1 attempt" if row["attempt"] == 1 else f"{row['attempt']} attempts"
    return Why(
        Reason.ENDED,
        f"It ended as {row['status']} after {attempts}{told}.",
        {"since": row["finished_at"], "status": row["status"], "cause": row["cause"]},
    )


def _running(row: Mapping[str, object]) -> Why:
    facts = {
        "since": row["updated_at"],
        "until": row["deadline_at"],
        "worker_id": row["worker_id"],
        "worker": row["worker"],
    }
    if not row["own_worker_lives"]:
        return Why(Reason.WORKER_LOST, "Its worker is gone; it will be queued again.", facts)
    if row["overdue"]:
        return Why(Reason.OVERDUE, "Its deadline has passed; it will be timed out.", facts)
    return Why(Reason.UNDER_WAY, f"It runs on {row['host']}, attempt {row['attempt']}.", facts)


def _held_by_job(row: Mapping[str, object]) -> Why | None:
    match row["approval_state"]:
        case "WAIT_APPROVAL":
            return Why(
                Reason.WAITING_FOR_APPROVAL,
                "Its job waits for somebody's approval.",
                {"since": row["submitted_at"], "job_id": row["job_id"]},
            )
        case "REJECTED":
            return Why(
                Reason.TURNED_DOWN,
                f"Its job was rejected by {row['decided_by']}; it will be cancelled.",
                {"since": row["decided_at"], "by": row["decided_by"]},
            )
    if row["paused_at"] is not None:
        return Why(Reason.PAUSED, "Its job is paused.", {"since": row["paused_at"]})
    return None


def _unplanned(row: Mapping[str, object]) -> Why:
    if row["at_limit"]:
        return Why(
            Reason.CONCURRENCY_LIMIT,
            f"Its job has as many under way as it may: {row['max_concurrency']}.",
            {"max_concurrency": row["max_concurrency"]},
        )
    if not row["worker_lives"]:
        return _NO_WORKER
    return Why(Reason.TO_BE_PLANNED, "It is about to be queued.")


_NO_WORKER = Why(Reason.NO_WORKER, "No worker is alive to take it: start one with `onward up`.")


def _queued(row: Mapping[str, object]) -> Why:
    if row["not_due"] and row["cause"] == OFFLINE:
        return Why(
            Reason.HOST_OFFLINE,
            f"{row['host']} is not connected; it goes on as soon as the host is there.",
            {"since": row["updated_at"]},
        )
    if row["not_due"]:
        return Why(
            Reason.NEXT_RETRY,
            f"It is tried again later; the last attempt ended with {row['cause'] or 'nothing'}.",
            {"until": row["due_at"], "cause": row["cause"], "retries": row["retries"]},
        )
    if not row["worker_lives"]:
        return _NO_WORKER
    return _held_by_host(row) or Why(Reason.TO_BE_CLAIMED, "It is next on its host.")


def _held_by_host(row: Mapping[str, object]) -> Why | None:
    if row["held_by"] is not None:
        return Why(
            Reason.HOST_HELD,
            f"{row['host']} is held by execution {row['held_by']} of job {row['held_by_job']}.",
            {
                "since": row["held_since"],
                "execution_id": row["held_by"],
                "job_id": row["held_by_job"],
            },
        )
    if row["behind"] is not None:
        return Why(
            Reason.BEHIND_ANOTHER,
            f"Execution {row['behind']} came first, and waits for {row['host']} as well.",
            {"execution_id": row["behind"]},
        )
    if row["blocked_type"] is not None:
        return _blocked(row)
    if row["host_state"] != "ACTIVE":
        return Why(Reason.HOST_DISABLED, f"{row['host'] or 'Its host'} is not active.")
    return None


def _blocked(row: Mapping[str, object]) -> Why:
    reason = f": {row['blocked_reason']}" if row["blocked_reason"] else ""
    return Why(
        Reason.BLOCKED_BY_RULE,
        f"{row['blocked_by'] or 'Somebody'} has blocked {row['blocked_type']} on "
        f"{row['host']}{reason}.",
        {
            "until": row["blocked_until"],
            "command_type": row["blocked_type"],
            "owner": row["blocked_by"],
            "rule": row["blocked_reason"],
        },
    )
