"""`onward workers`: who runs executions, and whether they breathe."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from onward.cli.finding import Everything, Limit
from onward.cli.shapes import WORKER
from onward.cli.tree import Reading, given_of, noun

app = noun("Who runs executions, and whether they breathe.")


@app.command("list", cls=Reading)
def list_workers(context: typer.Context, limit: Limit = 50, everything: Everything = False) -> None:
    """List the workers of the last day, the newest first."""
    from onward.cli.finding import show_list

    show_list(context, WORKER, "/workers", most=None if everything else limit)


@app.command("show", cls=Reading)
def show(
    context: typer.Context,
    worker: Annotated[int, typer.Argument(metavar="WORKER", help="Its number.", min=1)],
) -> None:
    """Show a worker of the last day, whole."""
    from onward.cli.client import service
    from onward.cli.exits import Exit, Leaving
    from onward.cli.output import show_one

    with service(context) as found:
        rows = found.pages("/workers")
        row = next((each for each in rows if each["worker_id"] == worker), None)
    if row is None:
        raise Leaving(
            Exit.FAILED,
            f"There was no worker {worker} in the last day: `onward workers` lists those that "
            "there were.",
        )
    show_one(given_of(context), WORKER, row)


@app.command("watch", cls=Reading)
def watch(
    context: typer.Context,
    every: Annotated[
        float, typer.Option(min=0.2, max=3_600, metavar="SECONDS", help="How often to look.")
    ] = 1.0,
    times: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Look so often.", show_default="until Ctrl-C"),
    ] = None,
    limit: Limit = 50,
) -> None:
    """Look at the workers again and again, until Ctrl-C."""
    from onward.cli.client import service
    from onward.cli.output import show_rows
    from onward.cli.terminal import reader

    given, looked = given_of(context), 0
    to = reader(given)
    with service(context) as found:
        while True:
            rows, _ = found.more("/workers", most=limit)
            if to.live and given.form == "table" and not given.quiet:
                to.stream.write("\x1b[H\x1b[2J")
            show_rows(given, WORKER, rows)
            to.stream.flush()
            looked += 1
            if looked == times:
                return
            time.sleep(every)
