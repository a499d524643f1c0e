"""`onward audit`: who did what."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from onward.cli.finding import Everything, Limit
from onward.cli.shapes import AUDIT
from onward.cli.tree import Reading, noun

app = noun("Who did what.")

Kind = Literal["job", "host", "block", "command_type", "key", "agent", "session", "item"]


@app.command(
    "list",
    cls=Reading,
    epilog="""
    onward audit --by ann
    onward audit --kind job --subject 17
    """,
)
def list_audit(
    context: typer.Context,
    *,
    by: Annotated[
        str | None, typer.Option(metavar="PERSON", help="Only what this person did.")
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only what was done with these.")] = None,
    subject: Annotated[
        str | None, typer.Option(metavar="SUBJECT", help="Only what was done with this one.")
    ] = None,
    limit: Limit = 50,
    everything: Everything = False,
) -> None:
    """List who did what, the newest first."""
    from onward.cli.finding import show_list

    most = None if everything else limit
    show_list(context, AUDIT, "/audit", most=most, by=by, kind=kind, subject=subject)
