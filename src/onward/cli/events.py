"""`onward events`: what changes, as it changes, or as pages that go on from each other."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onward.cli.exits import Exit, Leaving
from onward.cli.output import Column, Row, Shape, column
from onward.cli.tree import Given, Reading, given_of, leaf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onward.cli.client import Client
    from onward.cli.stream import Change, Listening

_WAIT_S: Final = 1.0


class Kind(StrEnum):
    """What can change."""

    JOB = "job"
    EXECUTION = "execution"
    COMMAND = "command"


def subject_of(row: Row) -> str:
    """What has changed, in a word or two."""
    match row.get("kind"):
        case "job":
            return f"job {row.get('job_id')}"
        case "execution":
            return f"execution {row.get('execution_id')} of job {row.get('job_id')}"
        case _:
            return f"command {row.get('cmd_id')}"


CHANGE: Final = Shape(
    key="seq",
    columns=(
        column("at", whole=True),
        Column("what", subject_of, whole=True),
        column("event", whole=True),
        column("status", whole=True, mood=True),
    ),
    fields=(
        *("id", "kind", "at", "job_id", "execution_id", "host_id", "cmd_id", "event", "status"),
        "seq",
    ),
    nothing="Nothing has changed since.",
)

app = leaf()


@app.command(
    "events",
    cls=Reading,
    epilog="""
    onward events --follow --job 17
    onward events --follow -o jsonl | jq .status
    onward events --after ID --limit 1000
    """,
)
def events(
    context: typer.Context,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, a line each as they come.")
    ] = False,
    job: Annotated[
        str | None, typer.Option(metavar="JOB", help="Only of this job and its executions.")
    ] = None,
    kind: Annotated[
        list[Kind] | None, typer.Option(help="Only of this kind. May be said often.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="ID", help="What came after this one.", show_default="now"),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, help="How many, at most, without --follow.")
    ] = 100,
) -> None:
    """Show what changes: with --follow as it comes, otherwise what came after an id.

    Where to go on from is said on standard error; without --after that is all there is to say.
    """
    from onward.cli.client import service
    from onward.cli.finding import job_id

    given = given_of(context)
    with service(context) as found:
        params: dict[str, str | Sequence[str]] = {}
        if job is not None:
            params["job_id"] = str(job_id(found, job))
        if kind:
            params["kind"] = [str(each) for each in kind]
        if after is not None:
            params["after"] = after
        if follow:
            _follow(found, given, params)
        else:
            _page(found, given, {**params, "limit": str(limit)})


def _page(service: Client, given: Given, params: dict[str, str | Sequence[str]]) -> None:
    from onward.cli.output import show_rows

    page = _asked(service, params)
    items = page.get("items")
    show_rows(given, CHANGE, items if isinstance(items, list) else [])
    _say_where(str(page.get("next_cursor")))


def _follow(service: Client, given: Given, params: dict[str, str | Sequence[str]]) -> None:
    """Show changes until somebody has seen enough; whoever is refused is told before it begins."""
    from onward.cli.stream import listening

    # From here on, so that nothing is missed between the question and the stream.
    begun = str(_asked(service, {**params, "limit": "1"}).get("next_cursor"))
    shown = _Shown(given, str(params.get("after") or begun))
    try:
        with listening(service, {"after": shown.last_id, **params}, ids=True) as changes:
            while True:
                for change in _next(service, changes, params):
                    shown.tell(change)
    finally:
        _say_where(shown.last_id)


def _next(
    service: Client, changes: Listening, params: dict[str, str | Sequence[str]]
) -> Sequence[Change]:
    found = changes.next(_WAIT_S)
    if not found and not changes.going_on:
        # The stream does not say why; whoever asks for a page is told.
        _asked(service, {**params, "limit": "1"})
        raise Leaving(Exit.SERVICE_AWAY, "The stream has ended.")
    return found


class _Shown:
    """What was shown of the stream, and from where it would go on."""

    def __init__(self, given: Given, last_id: str) -> None:
        self.last_id = last_id
        self._given = given
        self._broken = False

    def tell(self, change: Change) -> None:
        """Show a change, or say what became of the stream."""
        from onward.cli.stream import ANEW, GONE, LOST

        if change is GONE:
            _say("there is no way on from the last one; what came since is missing here")
        elif change is LOST and not self._broken:
            self._broken = True
            _say("the stream broke; trying again")
        elif change is ANEW and self._broken:
            self._broken = False
            _say("the stream goes on")
        elif change is not LOST and change is not ANEW:
            self._show(change)
            self.last_id = str(change.get("id") or self.last_id)

    def _show(self, change: Change) -> None:
        from dataclasses import replace

        from onward.cli.output import show_rows
        from onward.cli.terminal import plain, reader

        to = reader(self._given)
        if self._given.quiet or self._given.form != "table":
            # Without an end there is no whole document.
            show_rows(replace(self._given, output="jsonl"), CHANGE, [change])
        else:
            status = to.mood(str(change.get("status") or ""))
            what = f"{change.get('at')}  {plain(subject_of(change))}  {plain(change['event'])}"
            to.print(f"{what}  {status}".rstrip())
        to.stream.flush()


def _asked(service: Client, params: dict[str, str | Sequence[str]]) -> Row:
    return service.get("/events/page", **params)


def _say_where(cursor: str) -> None:
    _say(f"--after {cursor} goes on from here")


def _say(told: str) -> None:
    typer.echo(f"onward: {told}.", err=True)
