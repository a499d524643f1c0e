"""`onward types`: what can be asked of hosts, and how carefully."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

import typer

from onward.cli.exits import Exit, Leaving, Usage
from onward.cli.finding import Everything, Limit, Yes
from onward.cli.shapes import TYPE
from onward.cli.tree import Calling, Reading, given_of, noun

app = noun("What can be asked of hosts, and how carefully.")

Name = Annotated[str, typer.Argument(metavar="TYPE", help="Its name.")]
_FIRST: Final[dict[str, object]] = {
    "needs_approval": True,
    "read_only": False,
    "timeout_s": 60.0,
    "max_retries": 3,
    "argv": None,
    "masked": [],
}
_UNKNOWN: Final = 404
_CHANGED: Final = 412


@app.command("list", cls=Reading)
def list_types(context: typer.Context, limit: Limit = 100, everything: Everything = False) -> None:
    """List command types by name."""
    from onward.cli.finding import show_list

    show_list(context, TYPE, "/command-types", most=None if everything else limit)


@app.command("show", cls=Reading)
def show(context: typer.Context, name: Name) -> None:
    """Show a command type."""
    from onward.cli.client import service
    from onward.cli.output import show_one

    with service(context) as found:
        row = found.get(_path(name))
    show_one(given_of(context), TYPE, row)


@app.command(
    "put",
    cls=Reading,
    epilog="""
    onward types put RESTART --timeout 60 -- systemctl restart {service}
    onward types put RUN_SCRIPT --no-approval
    """,
)
def put(
    context: typer.Context,
    name: Name,
    *,
    argv: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD",
            help="What is run, behind --; {name} stands for a parameter of a job.",
        ),
    ] = None,
    approval: Annotated[
        bool | None,
        typer.Option("--approval/--no-approval", help="Whether somebody else has to approve it."),
    ] = None,
    read_only: Annotated[
        bool | None,
        typer.Option("--read-only/--exclusive", help="Whether it may share a host."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="That an attempt may take.")
    ] = None,
    max_retries: Annotated[
        int | None, typer.Option(metavar="N", help="How often a failed attempt is tried again.")
    ] = None,
    masked: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARAM",
            help="A parameter that nobody is to see, in place of any former ones. May be said "
            "often.",
        ),
    ] = None,
    no_masked: Annotated[
        bool, typer.Option("--no-masked", help="Let every parameter be seen.")
    ] = False,
    free: Annotated[
        bool, typer.Option("--free", help="Let each job say itself what is run.")
    ] = False,
) -> None:
    """Make a command type, or change what is named of the one that is there.

    A new one needs approval, has its host for itself, may take a minute and is tried three times
    more, unless you say otherwise. If somebody else changes it at the same moment, nothing is done,
    and it leaves with 6. Only an admin may.
    """
    from onward.cli.client import service
    from onward.cli.output import show_one

    named = {
        "needs_approval": approval,
        "read_only": read_only,
        "timeout_s": timeout,
        "max_retries": max_retries,
        "argv": argv or None,
        "masked": _masked(masked, nothing=no_masked),
    }
    with service(context) as found:
        before = found.send("GET", _path(name))
        if not before.good and before.status != _UNKNOWN:
            before.refuse()
        kept = before.body if before.good else _FIRST
        whole = {field: kept[field] if value is None else value for field, value in named.items()}
        if free:
            whole["argv"] = None
        # What is kept of the former one is what was seen of it.
        seen = before.etag or None if before.good else None
        answer = found.send("PUT", _path(name), body=whole, seen=seen)
    if answer.status == _CHANGED:
        raise Leaving(
            Exit.CONFLICT,
            f"{name} changed under you, and nothing was done. Look at it with "
            f"`onward types show {name}`, and say it again.",
        )
    row = answer.body if answer.good else answer.refuse()
    show_one(given_of(context), TYPE, row)


@app.command("delete", cls=Calling)
def delete(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a command type. Its jobs run to their end, and blocks on its name stay."""
    from onward.cli.client import service
    from onward.cli.terminal import asked, plain, reader

    given = given_of(context)
    if not yes:
        asked(given, f"Delete the type {plain(name)}?", flag="--yes")
    with service(context) as found:
        found.do("DELETE", _path(name))
    reader(given).print(f"{plain(name)} is deleted.")


def _masked(named: list[str] | None, *, nothing: bool) -> list[str] | None:
    """The parameters to mask; none of them for an empty one, as a script may have it."""
    if nothing and named:
        raise Usage("Say --masked PARAM or --no-masked, not both.")
    return [] if nothing else None if named is None else [each for each in named if each]


def _path(name: str) -> str:
    return f"/command-types/{quote(name, safe='')}"
