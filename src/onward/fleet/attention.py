"""Says what of all that is open somebody should look at, each in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from onward.fleet.ready import STUCK_AFTER_S
from onward.store.browse import Row
from onward.store.overview import DUE_MAX, Standing


class Concern(StrEnum):
    """Why somebody should look."""

    NO_WORKER = "NO_WORKER"
    WORKER_LOST = "WORKER_LOST"
    OVERDUE = "OVERDUE"  # runs past their deadline, which nobody has ended
    OUTBOX_STUCK = "OUTBOX_STUCK"  # what is to be begun is not taken up
    FAILING = "FAILING"  # much of an open job goes wrong
    PAUSED = "PAUSED"  # a job has been held back for long
    DUE = "DUE"  # commands that nothing but an event can move on


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that somebody should look at, in one sentence."""

    kind: Concern
    text: str
    count: int
    job_id: int | None = None


def attention(standing: Standing, workers: Sequence[Row]) -> list[Attention]:
    """Say what somebody should look at, the most pressing first."""
    return [*_of_workers(standing, workers), *_of_work(standing), *_of_jobs(standing)]


def _of_workers(standing: Standing, workers: Sequence[Row]) -> Iterator[Attention]:
    if not any(worker["lives"] for worker in workers):
        waiting = sum(standing.executions.values())
        told = f" {_of(waiting, 'execution')} cannot go on without." if waiting else ""
        yield Attention(Concern.NO_WORKER, f"No worker is there; start one.{told}", waiting)
    if lost := [worker for worker in workers if not worker["lives"]]:
        last = max(lost, key=_beat_at)
        told = (
            f"{_of(len(lost), 'worker')} stopped breathing within the hour, "
            f"{last['name']} last; what ran there is begun anew."
        )
        yield Attention(Concern.WORKER_LOST, told, len(lost))


def _of_work(standing: Standing) -> Iterator[Attention]:
    for row in standing.overdue:
        job_id, n = _number(row, "job_id"), _number(row, "n")
        told = f"Job {job_id}: {_of(n, 'run')} past the deadline, ended by nobody."
        yield Attention(Concern.OVERDUE, told, n, job_id)
    waited_s = standing.outbox["oldest_s"]
    if waited_s > STUCK_AFTER_S:
        n = int(standing.outbox["n"])
        told = f"{_of(n, 'job')} to be planned, and nobody has begun for {_time(waited_s)}."
        yield Attention(Concern.OUTBOX_STUCK, told, n)
    if n := standing.commands_due:
        told = f"{_of(n, 'command')}{' or more' * (n >= DUE_MAX)} past the time for a word."
        yield Attention(Concern.DUE, told, n)


def _of_jobs(standing: Standing) -> Iterator[Attention]:
    for row in standing.failing:
        job_id, wrong, ended = (_number(row, name) for name in ("job_id", "wrong", "ended"))
        share = 100 * wrong // ended
        told = f"Job {job_id}: {wrong:,} of {ended:,} that ended went wrong ({share} %)."
        yield Attention(Concern.FAILING, told, wrong, job_id)
    for row in standing.paused:
        job_id, n = _number(row, "job_id"), _number(row, "open")
        paused = _time(_number(row, "for_s"))
        told = f"Job {job_id} has been paused for {paused}, with {_of(n, 'execution')} to go."
        yield Attention(Concern.PAUSED, told, n, job_id)


def _of(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _time(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _number(row: Row, name: str) -> int:
    value = row[name]
    assert isinstance(value, int | float)  # noqa: S101 - as SQL has counted it
    return int(value)


def _beat_at(worker: Row) -> datetime:
    found = worker["beat_at"]
    assert isinstance(found, datetime)  # noqa: S101 - a column of times
    return found
