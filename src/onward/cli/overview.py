"""`onward overview`: how things stand, on one screen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onward.cli.output import Row, Shape
from onward.cli.shapes import JOB, WORKER
from onward.cli.tree import Given, Reading, given_of, leaf

if TYPE_CHECKING:
    from onward.cli.terminal import Terminal

OVERVIEW: Final = Shape(
    key="at",
    columns=(),
    fields=(
        *("at", "executions", "jobs", "hosts", "blocks", "workers", "open", "waiting"),
        *("attention", "activity"),
    ),
)
_SHOWN: Final = 10  # jobs of each kind

app = leaf()


@app.command(
    "overview",
    cls=Reading,
    epilog="""
    onward overview
    onward overview --watch --every 5
    onward overview --json attention
    """,
)
def overview(
    context: typer.Context,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.2, max=3_600, metavar="SECONDS", help="How often to look.")
    ] = 2.0,
    times: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Look so often.", show_default="until Ctrl-C"),
    ] = None,
) -> None:
    """Show what runs, what waits for somebody, what wants attention, and who works."""
    from onward.cli.client import service
    from onward.cli.terminal import reader

    given, looked = given_of(context), 0
    to, most = reader(given), times if watch else 1
    with service(context) as found:
        while True:
            row = found.get("/overview")
            if watch and to.live and given.form == "table" and not given.quiet:
                to.stream.write("\x1b[H\x1b[2J")
            _show(given, to, row)
            to.stream.flush()
            looked += 1
            if looked == most:
                return
            time.sleep(every)


def _show(given: Given, to: Terminal, row: Row) -> None:
    from onward.cli.output import show_one, show_rows

    if given.quiet or given.form != "table":
        show_one(given, OVERVIEW, row)
        return
    for line in _standing(row):
        to.print(line)
    _show_attention(to, _items(row, "attention"))
    for title, name in (("waits for approval", "waiting"), ("open", "open")):
        if jobs := _items(row, name):
            to.print(f"\n{to.style(title, 'bold')}")
            show_rows(given, JOB, jobs[:_SHOWN])
    to.print(f"\n{to.style('workers', 'bold')}")
    show_rows(given, WORKER, _items(row, "workers"))


def _standing(row: Row) -> Iterator[str]:
    jobs = _counts(row, "jobs")
    yield (
        f"jobs        {jobs.get('open', 0):,} open, {jobs.get('waiting', 0):,} wait for approval, "
        f"{jobs.get('paused', 0):,} paused"
    )
    yield f"executions  {_counted(_counts(row, 'executions'))}"
    yield f"hosts       {_counted(_counts(row, 'hosts'))}; {row.get('blocks')} blocks in force"


def _show_attention(to: Terminal, noticed: Sequence[Row]) -> None:
    from onward.cli.terminal import plain

    to.print(f"\n{to.style('wants attention', 'bold')}")
    if not noticed:
        to.print("Nothing does.")
    for each in noticed:
        to.print(f"{to.style(plain(each['kind']), 'yellow')}  {plain(each['text'])}")


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in counts.items())


def _counts(row: Row, name: str) -> dict[str, int]:
    found = row.get(name)
    return found if isinstance(found, dict) else {}


def _items(row: Row, name: str) -> list[Row]:
    found = row.get(name)
    return found if isinstance(found, list) else []
