"""How a job stands as a whole, told from its own row and its counters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from onward.core.lifecycles import EXECUTION

_TERMINAL = frozenset(map(str, EXECUTION.terminal))


class JobState(StrEnum):
    """One word for a job; the counters say the rest."""

    WAITING_FOR_APPROVAL = "WAITING_FOR_APPROVAL"
    TURNED_DOWN = "TURNED_DOWN"
    PAUSED = "PAUSED"
    UNDER_WAY = "UNDER_WAY"
    CANCELLING = "CANCELLING"
    STOPPED = "STOPPED"  # cancelled, and nothing of it runs any more
    FINISHED = "FINISHED"


def live(row: Mapping[str, object]) -> int:
    """How many executions of a job have not ended."""
    counts = row["counts"]
    assert isinstance(counts, Mapping)  # noqa: S101 - as `store.browse.job` gives it
    return sum(n for status, n in counts.items() if status not in _TERMINAL)


def job_state(row: Mapping[str, object]) -> JobState:
    """Say how a job stands."""
    open_now = live(row)
    if row["cancelled_at"] is not None:
        return JobState.CANCELLING if open_now else JobState.STOPPED
    match row["approval_state"]:
        case "WAIT_APPROVAL":
            return JobState.WAITING_FOR_APPROVAL
        case "REJECTED":
            return JobState.TURNED_DOWN
    if not open_now:
        return JobState.FINISHED
    return JobState.PAUSED if row["paused_at"] is not None else JobState.UNDER_WAY
