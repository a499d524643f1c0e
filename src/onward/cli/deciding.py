"""What people do with a job: each deed names the version that was shown, or shows what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import typer

from onward.cli.exits import Exit, Leaving
from onward.cli.finding import job_id
from onward.cli.output import numbered
from onward.cli.planned import job_of, show_differences, show_job_plan
from onward.cli.statuses import OPEN, RETRIED
from onward.cli.terminal import asked, plain, reader, somebody, watcher
from onward.cli.tree import Given, given_of
from onward.cli.watching import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onward.cli.client import Answer, Client
    from onward.cli.output import Row

_CHANGED: Final = 412


def decide(
    context: typer.Context,
    job: str,
    deed: Literal["approve", "reject"],
    *,
    reason: str,
    yes: bool,
) -> None:
    """Decide about the plan that is shown; if it changes under us, show how and ask again."""
    from onward.cli.client import service

    given = given_of(context)
    with service(context) as found:
        number = job_id(found, job)
        seen = _plan(found, number)
        show_job_plan(watcher(given), seen.body)
        if not yes:
            asked(given, f"{deed.capitalize()} it?", flag="--yes")
        while True:
            answer = found.send(
                "POST", f"/jobs/{number}/{deed}", body={"reason": reason}, seen=seen.etag
            )
            if answer.status != _CHANGED:
                break
            seen = _changed(found, given, number, seen)
            asked(given, f"{deed.capitalize()} it as it is now?", flag="--yes")
        _done(given, answer)


def hold_back(context: typer.Context, job: str, deed: Literal["pause", "resume"]) -> None:
    """Pause or resume a job as it was seen a moment ago."""
    from onward.cli.client import service

    given = given_of(context)
    with service(context) as found:
        number = job_id(found, job)
        seen = found.look(f"/jobs/{number}")
        _done(given, found.send("POST", f"/jobs/{number}/{deed}", seen=seen.etag))


def cancel(context: typer.Context, job: str, *, reason: str, yes: bool) -> None:
    """Cancel a job, after showing how much of it is left."""
    from onward.cli.client import service

    given = given_of(context)
    with service(context) as found:
        number = job_id(found, job)
        row = found.get(f"/jobs/{number}")
        _show(given, row)
        left = sum(_count(row, status) for status in OPEN)
        if not yes and left:
            asked(given, f"Cancel what is left of it, on {numbered(left, 'host')}?", flag="--yes")
        answer = found.send("POST", f"/jobs/{number}/cancel", body={"reason": reason})
        _done(given, answer)
        if still := answer.body.get("still_running"):
            watcher(given).print(f"{still} were asked to stop; any of them may finish first.")


def edit(
    context: typer.Context, job: str, params: dict[str, object], *, max_concurrency: int | None
) -> None:
    """Change the parameters of a waiting job that are named, and its limit."""
    from onward.cli.client import service
    from onward.cli.exits import Usage

    given = given_of(context)
    if not params and max_concurrency is None:
        raise Usage("Say what to change: --param NAME=TEXT, or --max-concurrency N.")
    with service(context) as found:
        number = job_id(found, job)
        seen = found.look(f"/jobs/{number}")
        body: dict[str, object] = {}
        if params:
            before = seen.body.get("params")
            body["params"] = {**(before if isinstance(before, dict) else {}), **params}
        if max_concurrency is not None:
            body["max_concurrency"] = max_concurrency or None
        _done(given, found.send("PATCH", f"/jobs/{number}", body=body, seen=seen.etag))


def retry(
    context: typer.Context,
    service: Client,
    job: str,
    *,
    statuses: Sequence[str] | None,
    external_id: str | None,
    yes: bool,
) -> Answer:
    """Run again what failed, after showing how much that is."""
    given = given_of(context)
    number = job_id(service, job)
    row = service.get(f"/jobs/{number}")
    wanted = list(statuses or RETRIED)
    count = sum(_count(row, status) for status in wanted)
    _show(given, row)
    above = service.target.confirm_above if service.target else 0
    if not yes and count > above:
        asked(given, f"Run it again on up to {numbered(count, 'host')}?", flag="--yes")
    body: dict[str, object] = {"statuses": wanted}
    if external_id is not None:
        body["external_id"] = external_id
    answer = service.do("POST", f"/jobs/{number}/retry", body=body)
    was = "was made of it before" if answer.body.get("duplicate") else "is made of it"
    waits = ", and waits for approval" if answer.body.get("approval_state") else ""
    watcher(given).print(
        f"Job {answer.body['job_id']} {was}, for "
        f"{numbered(int(str(answer.body['total'])), 'host')}{waits}."
    )
    return answer


def _plan(service: Client, number: int) -> Answer:
    return service.look(f"/jobs/{number}/plan", named="1000")


def _changed(service: Client, given: Given, number: int, seen: Answer) -> Answer:
    """Show what has changed; without anybody to ask, nothing is done."""
    now = _plan(service, number)
    to = watcher(given)
    show_differences(to, seen.body, now.body)
    if not somebody(given):
        version = job_of(now.body).get("version")
        raise Leaving(
            Exit.CONFLICT,
            f"Nothing was done: job {number} is at version {version} now. Look at it with "
            f"`onward jobs plan {number}`, and decide again.",
        )
    show_job_plan(to, now.body)
    return now


def _done(given: Given, answer: Answer) -> None:
    if not answer.good:
        answer.refuse()
    _show(given, answer.body, on_stdout=True)


def _show(given: Given, job: Row, *, on_stdout: bool = False) -> None:
    to = reader(given) if on_stdout else watcher(given)
    to.print(
        f"Job {job['job_id']} of {plain(job['requested_by'])} is "
        f"{to.mood(str(job['state']))}: {told(job)}."
    )


def _count(job: Row, status: str) -> int:
    counts = job.get("counts")
    return int(counts.get(status, 0)) if isinstance(counts, dict) else 0
