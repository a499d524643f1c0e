"""Watches one execution until it has ended, and tells each change as it comes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from onward.cli.exits import Exit, Leaving, ServiceAway, of_counts, of_error
from onward.cli.output import show_one
from onward.cli.shapes import EXECUTION
from onward.cli.statuses import OPEN
from onward.cli.stream import ANEW, listening
from onward.cli.terminal import plain, reader, watcher

if TYPE_CHECKING:
    from onward.cli.client import Client
    from onward.cli.output import Row
    from onward.cli.stream import Listening
    from onward.cli.terminal import Terminal
    from onward.cli.tree import Given

_AT_LATEST_S: Final = 5.0  # also if nothing is heard
_AWAY_S: Final = 60.0  # for which a service that does not answer is asked again
_AGAIN_S: Final = 0.5


def watch(service: Client, given: Given, execution: int, *, timeout_s: float | None) -> Exit:
    """Watch an execution to its end or until the time is over; says what to leave with."""
    ends_at = None if timeout_s is None else time.monotonic() + timeout_s
    job, to = service.get(f"/executions/{execution}")["job_id"], watcher(given)
    with listening(service, {"job_id": str(job), "kind": "execution"}) as changes:
        row: Row = service.get(f"/executions/{execution}")
        to.print(_standing(row, to))
        while row["status"] in OPEN and not _over(ends_at):
            if _heard(changes, execution, to, wait_s=_wait_s(ends_at)):
                row = _asked(service, changes, execution)
    return _ended(service, given, row)


def _heard(changes: Listening, execution: int, to: Terminal, *, wait_s: float) -> bool:
    """Tell what has changed of it, and say whether it is worth asking how it stands."""
    found = changes.next(wait_s)
    ours = [change for change in found if change.get("execution_id") == execution]
    for change in ours:
        to.print(f"{change['at']}  {plain(change['event'])}  {to.mood(str(change['status']))}")
    return bool(ours) or not found or ANEW in found


def _asked(service: Client, changes: Listening, execution: int) -> Row:
    """How it stands; a service that is away for a while is asked again."""
    until = time.monotonic() + _AWAY_S
    while True:
        try:
            return service.get(f"/executions/{execution}")
        except (ServiceAway, Leaving) as error:
            if of_error(error) is not Exit.SERVICE_AWAY or time.monotonic() > until:
                raise
            changes.next(_AGAIN_S)


def _ended(service: Client, given: Given, row: Row) -> Exit:
    execution, status = row["execution_id"], str(row["status"])
    if given.quiet or given.form != "table":
        show_one(given, EXECUTION, row)
    elif status not in OPEN:
        to = reader(given)
        to.print(_standing(row, to))
    if status not in OPEN:
        unreachable = int((status, row["cause"]) == ("FAILED", "UNREACHABLE"))
        return of_counts({status: 1}, unreachable=unreachable)
    why = service.get(f"/executions/{execution}/why")
    watcher(given).print(
        f"onward: {plain(why['text'])} `onward executions watch {execution}` comes back to it."
    )
    waits = why["reason"] == "WAITING_FOR_APPROVAL"
    return Exit.WAITING_FOR_APPROVAL if waits else Exit.STILL_RUNNING


def _standing(row: Row, to: Terminal) -> str:
    code = f", exit code {row['exit_code']}" if row.get("exit_code") is not None else ""
    told_already = row.get("cause") in {None, row["status"]}
    cause = "" if told_already else f", {row['cause']}"
    error = f": {plain(row['error'])}" if row.get("error") else ""
    status = to.mood(str(row["status"]))
    return (
        f"Execution {row['execution_id']} on {plain(row['host'])} is {status}{code}{cause}{error}."
    )


def _over(ends_at: float | None) -> bool:
    return ends_at is not None and time.monotonic() >= ends_at


def _wait_s(ends_at: float | None) -> float:
    return _AT_LATEST_S if ends_at is None else min(_AT_LATEST_S, ends_at - time.monotonic())
