"""`onward lifecycles`: which event leads from where to where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from onward.cli.exits import Exit, Leaving
from onward.cli.output import Row, Shape, column
from onward.cli.tree import Reading, given_of, leaf

LIFECYCLE: Final = Shape(
    key="name", columns=(), fields=("name", "initial", "states", "moves"), nothing="There is none."
)
MOVE: Final = Shape(
    key="event",
    columns=(
        column("lifecycle", whole=True),
        column("status", whole=True, mood=True),
        column("event", whole=True),
        column("to", "goes to", whole=True, mood=True),
    ),
    fields=("lifecycle", "status", "event", "to"),
)

app = leaf()


@app.command(
    "lifecycles",
    cls=Reading,
    epilog="""
    onward lifecycles -q
    onward lifecycles execution
    """,
)
def lifecycles(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this one, such as execution.")
    ] = None,
) -> None:
    """Show the statuses that things have, and which event leads from each to where."""
    from onward.cli.client import service
    from onward.cli.output import show_one, show_rows

    given = given_of(context)
    with service(context) as found:
        items = found.get("/lifecycles").get("items")
    tables: list[Row] = items if isinstance(items, list) else []
    chosen = tables if name is None else [_named(tables, name)]
    if not given.quiet and given.form == "table":
        show_rows(given, MOVE, [move for table in chosen for move in _moves(table)])
    elif name is None:
        show_rows(given, LIFECYCLE, chosen)
    else:
        show_one(given, LIFECYCLE, chosen[0])


def _named(tables: list[Row], name: str) -> Row:
    for table in tables:
        if table["name"] == name:
            return table
    known = ", ".join(str(table["name"]) for table in tables)
    raise Leaving(Exit.FAILED, f"There is no lifecycle {name!a:.80}; there are {known}.")


def _moves(table: Row) -> Iterator[Row]:
    """A line for each status and each event that leads on from it."""
    states, moves = table["states"], table["moves"]
    assert isinstance(states, list)  # noqa: S101 - every lifecycle has them
    assert isinstance(moves, list)  # noqa: S101 - and these
    for state in states:
        for move in moves:
            if state["name"] in move["from"]:
                yield {
                    "lifecycle": table["name"],
                    "status": state["name"],
                    "event": move["event"],
                    "to": move["to"],
                }
        if state["terminal"]:
            yield {"lifecycle": table["name"], "status": state["name"], "to": "its end"}
