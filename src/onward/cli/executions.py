"""`onward executions`: one command on one host, where it is, why, and what it printed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onward.cli.exits import Usage
from onward.cli.finding import Everything, ExecutionId, Limit, complete_hosts, complete_jobs
from onward.cli.shapes import EVENT, EXECUTION, LOG_LINE
from onward.cli.statuses import OPEN
from onward.cli.tree import Given, Reading, given_of, noun

if TYPE_CHECKING:
    from onward.cli.client import Client
    from onward.cli.output import Row

_AGAIN_S: Final = 0.5
_AWAY_S: Final = 60.0  # for which a service that does not answer is asked again

app = noun("One command on one host: where it is, why, what it printed.")


@app.command(
    "list",
    cls=Reading,
    epilog="""
    onward executions --job 17 --status FAILED --status TIMEOUT
    onward executions --host web-1
    """,
)
def list_executions(
    context: typer.Context,
    *,
    job: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Of this job.", autocompletion=complete_jobs),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="On this host; of a job: part of its name.",
            autocompletion=complete_hosts,
        ),
    ] = None,
    status: Annotated[
        list[str] | None, typer.Option(metavar="STATUS", help="Only these. May be said often.")
    ] = None,
    cause: Annotated[str | None, typer.Option(metavar="CAUSE", help="Only with this one.")] = None,
    exit_code: Annotated[int | None, typer.Option(metavar="N", help="Only with this one.")] = None,
    same_output: Annotated[
        str | None,
        typer.Option(
            "--same-output",
            metavar="DIGEST",
            help="Only what printed this, of `jobs outputs`; none: nothing.",
        ),
    ] = None,
    late: Annotated[
        bool, typer.Option("--late", help="Only what was heard of after its end.")
    ] = False,
    limit: Limit = 100,
    everything: Everything = False,
) -> None:
    """List the executions of a job by host, or those of a host, the newest first."""
    from onward.cli.client import service
    from onward.cli.finding import host_named, job_id, show_items

    most = None if everything else limit
    only = {
        "cause": cause,
        "output": same_output,
        "exit_code": _text(exit_code),
        "late": _flag(late),
    }
    with service(context) as found:
        if job is not None:
            path = f"/jobs/{job_id(found, job)}/executions"
            show_items(context, EXECUTION, found, path, most=most, status=status, host=host, **only)
        elif host is not None:
            if any(value is not None for value in only.values()):
                raise Usage("--cause, --exit-code, --same-output and --late go with --job.")
            path = f"/hosts/{host_named(found, host)['host_id']}/executions"
            show_items(context, EXECUTION, found, path, most=most, status=status)
        else:
            raise Usage("Say whose: --job JOB, or --host HOST.")


@app.command("show", cls=Reading)
def show(context: typer.Context, execution: ExecutionId) -> None:
    """Show an execution, whole."""
    from onward.cli.client import service
    from onward.cli.output import show_one

    with service(context) as found:
        row = found.get(f"/executions/{execution}")
    show_one(given_of(context), EXECUTION, row)


@app.command("why", cls=Reading)
def why(context: typer.Context, execution: ExecutionId) -> None:
    """Say why an execution is where it is: exactly one reason."""
    from onward.cli.client import service
    from onward.cli.output import Shape, show_one
    from onward.cli.terminal import plain, reader

    given = given_of(context)
    with service(context) as found:
        row = found.get(f"/executions/{execution}/why")
    if given.quiet or given.form != "table":
        fields = ("execution_id", "status", "reason", "text", "facts", "timeline")
        show_one(given, Shape(key="reason", columns=(), fields=fields), row)
    else:
        to = reader(given)
        to.print(f"{to.mood(str(row['status']))}  {row['reason']}  {plain(row['text'])}")


@app.command("timeline", cls=Reading)
def timeline(context: typer.Context, execution: ExecutionId) -> None:
    """Show every event with its verdict, also those that moved nothing."""
    from onward.cli.finding import show_list

    show_list(context, EVENT, f"/executions/{execution}/timeline", most=None)


@app.command(
    "watch",
    cls=Reading,
    epilog="""
    onward executions watch 812
    onward executions watch 812 --timeout 600 --json status,exit_code
    """,
)
def watch(
    context: typer.Context,
    execution: ExecutionId,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Watch no longer than this.")
    ] = None,
) -> None:
    """Watch an execution until it has ended, and tell each change.

    Ctrl-C stops watching, and it goes on. The exit code says how it ended, as that of a job does.
    """
    from onward.cli import execution_watch
    from onward.cli.client import service

    with service(context) as found:
        code = execution_watch.watch(found, given_of(context), execution, timeout_s=timeout)
    raise typer.Exit(code)


@app.command(
    "logs",
    cls=Reading,
    epilog="""
    onward executions logs 812 --follow
    onward executions logs 812 -o jsonl
    """,
)
def logs(
    context: typer.Context,
    execution: ExecutionId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until it has ended.")
    ] = False,
) -> None:
    """Show what a host printed, also while it runs.

    What went to standard error is marked, and so is what Onward itself says about the output.
    """
    from onward.cli.client import service
    from onward.cli.output import show_rows

    given = given_of(context)
    with service(context) as found:
        if follow:
            _follow(found, given, execution)
            return
        rows = list(_lines(found, execution))
    if given.quiet or given.form != "table":
        show_rows(given, LOG_LINE, rows)
    else:
        _show_lines(given, rows)


def _lines(service: Client, execution: int) -> list[Row]:
    found: list[Row] = []
    page = service.get(f"/executions/{execution}/logs")
    while items := _items(page):
        found += items
        page = service.get(f"/executions/{execution}/logs", cursor=str(page["next_cursor"]))
    return found


def _follow(service: Client, given: Given, execution: int) -> None:
    """Show lines as they come; a change of the job says that it is worth asking at once."""
    from onward.cli.exits import Exit, Leaving, ServiceAway, of_error
    from onward.cli.stream import listening

    job = service.get(f"/executions/{execution}")["job_id"]
    cursor: dict[str, str] = {}
    heard_at = time.monotonic()
    with listening(service, {"job_id": str(job)}) as changes:
        while True:
            try:
                page = service.get(f"/executions/{execution}/logs", **cursor)
            except (ServiceAway, Leaving) as error:
                away = of_error(error) is Exit.SERVICE_AWAY
                if not away or time.monotonic() - heard_at > _AWAY_S:
                    raise
                changes.next(_AGAIN_S)
                continue
            heard_at = time.monotonic()
            items = _items(page)
            _show_more(given, items)
            cursor = {"cursor": str(page["next_cursor"])} if page["next_cursor"] else cursor
            # The status was read before the lines: once it is an end, an empty page is the last.
            if page["status"] not in OPEN and not items:
                return
            if not items:
                changes.next(_AGAIN_S)


def _show_more(given: Given, rows: Sequence[Row]) -> None:
    from dataclasses import replace

    from onward.cli.output import show_rows
    from onward.cli.terminal import reader

    if given.quiet or given.form != "table":
        # Without an end there is no whole document.
        show_rows(replace(given, output="jsonl"), LOG_LINE, rows)
        reader(given).stream.flush()
    else:
        _show_lines(given, rows)


def _show_lines(given: Given, rows: Sequence[Row]) -> None:
    from onward.cli.terminal import plain, reader

    to = reader(given)
    for row in rows:
        stream = str(row["stream"])
        mark = "" if stream == "stdout" else to.style(f"{plain(stream)}: ", "dim")
        to.print(f"{mark}{plain(row['text'])}")
    to.stream.flush()


def _items(page: Row) -> list[Row]:
    found = page.get("items")
    return found if isinstance(found, list) else []


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _flag(value: bool) -> str | None:
    return "true" if value else None
