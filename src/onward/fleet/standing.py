"""How a job stands as a whole, and what may be done with it: told from its row and its counters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from onward.core.lifecycles import EXECUTION
from onward.store.jobs import RETRIED

_TERMINAL = frozenset(map(str, EXECUTION.terminal))
_CANCELLED = str(EXECUTION.moves["cancel"].target)


class JobState(StrEnum):
    """One word for a job; the counters say the rest."""

    WAITING_FOR_APPROVAL = "WAITING_FOR_APPROVAL"
    TURNED_DOWN = "TURNED_DOWN"
    PAUSED = "PAUSED"
    UNDER_WAY = "UNDER_WAY"
    CANCELLING = "CANCELLING"
    STOPPED = "STOPPED"  # cancelled, and nothing of it runs any more
    FINISHED = "FINISHED"


class Deed(StrEnum):
    """What somebody can do with a job."""

    APPROVE = "approve"
    REJECT = "reject"
    EDIT = "edit"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"


def live(row: Mapping[str, object]) -> int:
    """How many executions of a job have not ended."""
    return sum(n for status, n in _counts(row).items() if status not in _TERMINAL)


def job_state(row: Mapping[str, object]) -> JobState:
    """Say how a job stands."""
    open_now = live(row)
    if row["cancelled_at"] is not None:
        return _after_cancelling(row, open_now)
    match row["approval_state"]:
        case "WAIT_APPROVAL":
            return JobState.WAITING_FOR_APPROVAL
        case "REJECTED":
            return JobState.TURNED_DOWN
    if not open_now:
        return JobState.FINISHED
    return JobState.PAUSED if row["paused_at"] is not None else JobState.UNDER_WAY


def allowed(row: Mapping[str, object]) -> list[Deed]:
    """Say what may be done with a job as it stands, by somebody who may."""
    if not live(row):
        again = any(n for status, n in _counts(row).items() if status in RETRIED)
        return [Deed.RETRY] if again else []
    if row["cancelled_at"] is not None:
        return []
    waits = row["approval_state"] == "WAIT_APPROVAL"
    decide = [Deed.APPROVE, Deed.REJECT, Deed.EDIT] if waits else []
    return [*decide, Deed.CANCEL, Deed.PAUSE if row["paused_at"] is None else Deed.RESUME]


def _after_cancelling(row: Mapping[str, object], open_now: int) -> JobState:
    if open_now:
        return JobState.CANCELLING
    # Everything may have finished before it could be stopped.
    return JobState.STOPPED if _counts(row).get(_CANCELLED) else JobState.FINISHED


def _counts(row: Mapping[str, object]) -> Mapping[str, int]:
    counts = row["counts"]
    assert isinstance(counts, Mapping)  # noqa: S101 - as `store.browse.job` gives it
    return counts
