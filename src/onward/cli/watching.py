"""Watches a job: what has changed is heard, how it stands is asked, and that is shown.

The stream only says that it is worth asking again. So nothing is counted twice after a break, and
whatever was missed is there with the next answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from onward.cli.exits import Exit, Leaving, ServiceAway, of_error
from onward.cli.output import Row, numbered
from onward.cli.shapes import counted, counts_of
from onward.cli.statuses import BAD, OPEN
from onward.cli.stream import listening
from onward.cli.terminal import Terminal, plain, watcher
from onward.cli.tree import Given
from onward.errors import OnwardError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from onward.cli.client import Client
    from onward.cli.stream import Change

_OVER: Final = frozenset({"FINISHED", "STOPPED", "TURNED_DOWN"})
_APART_S: Final = 0.25  # between two questions, however much changes
_AT_LATEST_S: Final = 5.0  # also if nothing is heard
_TOLD_MOST: Final = 20  # failures that are told as they come
_LINES_APART_S: Final = 2.0
_AWAY_S: Final = 120.0  # for which a service that does not answer is asked again
_AWAY_APART_S: Final = 1.0
_ANSWER_S: Final = 5.0  # that an answer may take, also if the time is over
_STILL_S: Final = 15.0  # without a change, after which it is told why


class Until(Enum):
    """Why nobody watches any more."""

    OVER = auto()
    TIME = auto()
    APPROVAL = auto()


class Watched(NamedTuple):
    """How a job stood when nobody watched it any more, and why."""

    job: Row
    until: Until


class View(Protocol):
    """Where progress is shown."""

    def stands(self, job: Row) -> None:
        """Show how the job stands."""

    def tell(self, line: str) -> None:
        """Say something above that."""


def watch(
    service: Client,
    given: Given,
    job_id: int,
    *,
    timeout_s: float | None,
    approval: bool,
    since: str | None = None,
) -> Watched:
    """Watch a job until it is over, or the time is; with `approval`, also while it waits for it.

    `since` is a position of the stream, from which on failures are told.
    """
    ends_at = None if timeout_s is None else time.monotonic() + timeout_s
    to = watcher(given)
    heard = {"job_id": str(job_id)} | ({} if since is None else {"after": since})
    with listening(service, heard) as changes, _view(to, job_id) as view:
        failures, still = _Failures(service, view), _Still(service, view)
        asking = _Asking(service, view, job_id, ends_at)
        while True:
            asked_at = time.monotonic()
            job = asking.job()
            if job is None:
                changes.next(min(_AWAY_APART_S, _wait_s(ends_at)))
                continue
            view.stands(job)
            still.look(job)
            if (until := _until(job, ends_at, approval=approval)) is not None:
                failures.tell(changes.next(0))
                return Watched(job, until)
            first = changes.next(_wait_s(ends_at))
            failures.tell(list(_heard(first, changes, asked_at, ends_at)))


def ended(job: Row) -> int:
    """How many executions of a job have ended."""
    return sum(count for status, count in counts_of(job).items() if status not in OPEN)


def told(job: Row) -> str:
    """How a job stands, on one line."""
    return f"{ended(job):,} of {numbered(int(str(job['total'])), 'host')}: {counted(job)}"


def _until(job: Row, ends_at: float | None, *, approval: bool) -> Until | None:
    if job["state"] in _OVER:
        return Until.OVER
    if job["state"] == "WAITING_FOR_APPROVAL" and not approval:
        return Until.APPROVAL
    if ends_at is not None and time.monotonic() >= ends_at:
        return Until.TIME
    return None


def _heard(
    first: Iterable[Change],
    changes: _Changes,
    asked_at: float,
    ends_at: float | None,
) -> Iterator[Change]:
    """What was heard, and what else comes before it is worth asking again."""
    yield from first
    while (left_s := asked_at + _APART_S - time.monotonic()) > 0:
        if ends_at is not None and time.monotonic() >= ends_at:
            return
        yield from changes.next(left_s)


class _Changes(Protocol):
    def next(self, wait_s: float) -> Iterable[Change]: ...


def _wait_s(ends_at: float | None) -> float:
    return _AT_LATEST_S if ends_at is None else min(_AT_LATEST_S, ends_at - time.monotonic())


class _Asking:
    """Asks how a job stands, also of a service that is away for a while."""

    def __init__(
        self, service: Client, view: View, job_id: int, ends_at: float | None = None
    ) -> None:
        self._service = service
        self._view = view
        self._job_id = job_id
        self._ends_at = math.inf if ends_at is None else ends_at
        self._away_at: float | None = None

    def job(self) -> Row | None:
        """How the job stands; nothing, if nobody answers just now."""
        try:
            left_s = max(self._ends_at - time.monotonic(), _ANSWER_S)
            found = self._service.once(left_s).get(f"/jobs/{self._job_id}")
        except (ServiceAway, Leaving) as error:
            if of_error(error) is not Exit.SERVICE_AWAY:
                raise
            self._wait(error)
            return None
        if self._away_at is not None:
            self._view.tell("The service answers again.")
            self._away_at = None
        return found

    def _wait(self, error: OnwardError) -> None:
        now = time.monotonic()
        if self._away_at is None:
            self._view.tell(
                "The service does not answer; the job goes on without us. Trying again."
            )
            self._away_at = now
        if now - self._away_at > _AWAY_S or now >= self._ends_at:
            raise error


class _Still:
    """Tells once why a job is where it is, if nothing of it has changed for a while."""

    def __init__(self, service: Client, view: View) -> None:
        self._service = service
        self._view = view
        self._seen: object = None
        self._since = time.monotonic()
        self._told = False

    def look(self, job: Row) -> None:
        seen, now = (job["state"], job["counts"]), time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        waits = job["state"] in _OVER or _waits(job)
        if not self._told and not waits and now - self._since >= _STILL_S:
            self._told = True
            self._tell(job["job_id"])

    def _tell(self, job_id: object) -> None:
        from onward.cli.outcome import reasons

        # Whoever does not answer this is asked how the job stands in a moment.
        with suppress(ServiceAway, Leaving):
            lines = list(reasons(self._service, job_id))
            self._view.tell(f"Nothing has changed for {_STILL_S:.0f} s:")
            for line in lines:
                self._view.tell(f"  {line}")


class _Failures:
    """Tells failures as they come, the first of them each, and then only that there are more."""

    def __init__(self, service: Client, view: View) -> None:
        self._service = service
        self._view = view
        self._told: set[object] = set()

    def tell(self, found: Iterable[Change]) -> None:
        for change in found:
            if change.get("status") in BAD and change.get("execution_id") not in self._told:
                self._told.add(change.get("execution_id"))
                self._one(change)

    def _one(self, change: Change) -> None:
        if len(self._told) == _TOLD_MOST + 1:
            self._view.tell("More of them are not told one by one; the end counts them.")
        if len(self._told) > _TOLD_MOST:
            return
        try:
            row = self._service.get(f"/executions/{change['execution_id']}")
        except (ServiceAway, Leaving):
            # The end counts it with the others; watching goes on.
            self._view.tell(f"{change['status']}  execution {change['execution_id']}")
            return
        code = f"exit code {row['exit_code']}" if row.get("exit_code") else ""
        why = row.get("error") or code
        self._view.tell(
            f"{change['status']}  {plain(row.get('host'))}  {row.get('cause') or ''}: {plain(why)}"
        )


@contextmanager
def _view(to: Terminal, job_id: int) -> Iterator[View]:
    if not to.live:
        yield _Lines(to, job_id)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(
        file=to.stream,
        force_terminal=True,
        no_color=not to.colours,
        width=to.width,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with Progress(
        TextColumn(f"job {job_id}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[told]}", markup=False),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        refresh_per_second=8,
    ) as progress:
        yield _Bar(progress, progress.add_task("", total=None, told="", rate=""), to)


class _Bar:
    """Progress that moves, on a terminal."""

    def __init__(self, progress: Progress, task: TaskID, to: Terminal) -> None:
        self._progress = progress
        self._task = task
        self._to = to
        self._began: tuple[float, int] | None = None

    def stands(self, job: Row) -> None:
        done, now = ended(job), time.monotonic()
        self._began = self._began or (now, done)
        seconds = now - self._began[0]
        rate = f"{(done - self._began[1]) / seconds:,.0f}/s" if seconds > 1 else ""
        self._progress.update(
            self._task,
            total=int(str(job["total"])),
            completed=done,
            told=" ".join([counted(job), *_waits(job)]),
            rate=rate,
        )

    def tell(self, line: str) -> None:
        from rich.text import Text

        word, _, rest = line.partition("  ")
        style = "red" if word in BAD else ""
        self._progress.console.print(Text.assemble((word, style), f"  {rest}" if rest else ""))


class _Lines:
    """Progress where nothing can move: a line now and then, and only if something has changed."""

    def __init__(self, to: Terminal, job_id: int) -> None:
        self._to = to
        self._job_id = job_id
        self._last = ""
        self._last_at = 0.0

    def stands(self, job: Row) -> None:
        line = " ".join([f"job {self._job_id}: {told(job)}", *_waits(job)])
        over = job["state"] in _OVER
        now = time.monotonic()
        if line != self._last and (over or now - self._last_at >= _LINES_APART_S):
            self._to.print(line)
            self._last, self._last_at = line, now

    def tell(self, line: str) -> None:
        self._to.print(line)


def _waits(job: Row) -> list[str]:
    words = {
        "WAITING_FOR_APPROVAL": "(waits for approval)",
        "PAUSED": "(paused)",
        "CANCELLING": "(cancelling)",
    }
    return [words[str(job["state"])]] if job["state"] in words else []
