"""`onward blocks`: what is forbidden on which host, by whom, why, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from onward.cli import asking
from onward.cli.exits import Usage
from onward.cli.finding import Everything, Limit, Yes, complete_hosts, complete_types
from onward.cli.shapes import BLOCK
from onward.cli.tree import Calling, Reading, given_of, noun

if TYPE_CHECKING:
    from onward.cli.client import Client

app = noun("What is forbidden on which host, and by whom.")

Type = Annotated[
    str,
    typer.Argument(metavar="TYPE", help="The type of command.", autocompletion=complete_types),
]
Named = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="On this host.", autocompletion=complete_hosts),
]


@app.command("list", cls=Reading)
def list_blocks(
    context: typer.Context, host: Named = None, limit: Limit = 100, everything: Everything = False
) -> None:
    """List what is forbidden, and what was until it expired."""
    from onward.cli.client import service
    from onward.cli.finding import host_named, show_items

    most = None if everything else limit
    with service(context) as found:
        path = "/blocks"
        if host is not None:
            path = f"/hosts/{host_named(found, host)['host_id']}/blocks"
        show_items(context, BLOCK, found, path, most=most)


@app.command("show", cls=Reading)
def show(
    context: typer.Context,
    command_type: Type,
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="On this host.", autocompletion=complete_hosts),
    ],
) -> None:
    """Show who forbids a type of command on a host, why, and until when."""
    from onward.cli.client import service
    from onward.cli.exits import Exit, Leaving
    from onward.cli.finding import host_named
    from onward.cli.output import show_one

    with service(context) as found:
        rows = found.pages(f"/hosts/{host_named(found, host)['host_id']}/blocks")
        row = next((each for each in rows if each["command_type"] == command_type), None)
    if row is None:
        raise Leaving(
            Exit.FAILED,
            f"Nobody forbids {command_type!a:.80} on {host!a:.80}: `onward blocks --host` lists "
            "what is forbidden there.",
        )
    show_one(given_of(context), BLOCK, row)


@app.command(
    "add",
    cls=Calling,
    epilog="""
    onward blocks add DEPLOY --host db-1 --reason 'its disk is being replaced' --until 2d
    onward blocks add DEPLOY --on 'role=db' --reason 'freeze' --until 2031-01-02T08:00:00Z
    """,
)
def add(
    context: typer.Context,
    command_type: Type,
    *,
    reason: Annotated[str, typer.Option(help="Why, for whoever is stopped by it.")],
    host: Named = None,
    on: asking.On = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When it ends: 30m, 2h, 3d, or a time with its offset."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="PERSON", help="Whom to ask about it.", show_default="you")
    ] = None,
    yes: Yes = False,
) -> None:
    """Forbid a type of command on a host, or on all that a selector matches."""
    from onward.cli.client import service
    from onward.cli.finding import host_named
    from onward.cli.terminal import plain, reader

    rule: dict[str, object] = {"reason": reason}
    if owner is not None:
        rule["owner"] = owner
    if until is not None:
        rule["expires_at"] = asking.until_of(until)
    with service(context) as found:
        to = reader(given_of(context))
        if host is not None and on is None:
            target = found.look(f"/hosts/{host_named(found, host)['host_id']}")
            path = f"/hosts/{target.body['host_id']}/blocks/{_quoted(command_type)}"
            made = found.do("PUT", path, body=rule, seen=target.etag).body
            to.print(f"{plain(command_type)} is forbidden on {plain(made['host_name'])}.")
            return
        selector = _selector(host, on)
        _ask(context, found, selector, f"Forbid {command_type}", yes=yes)
        whole = {**rule, "selector": selector, "command_type": command_type}
        answer = found.do("POST", "/blocks", body=whole).body
        to.print(
            f"{plain(command_type)} is forbidden on {answer['blocked']:,} hosts "
            f"({plain(answer['selector'])})."
        )


@app.command("lift", cls=Calling)
def lift(
    context: typer.Context,
    command_type: Type,
    host: Named = None,
    on: asking.On = None,
    yes: Yes = False,
) -> None:
    """Allow a type of command again on a host, or on all that a selector matches."""
    from onward.cli.client import service
    from onward.cli.finding import host_named
    from onward.cli.terminal import plain, reader

    with service(context) as found:
        to = reader(given_of(context))
        if host is not None and on is None:
            target = found.look(f"/hosts/{host_named(found, host)['host_id']}")
            path = f"/hosts/{target.body['host_id']}/blocks/{_quoted(command_type)}"
            found.do("DELETE", path, seen=target.etag)
            to.print(f"{plain(command_type)} is allowed on {plain(host)} again.")
            return
        selector = _selector(host, on)
        _ask(context, found, selector, f"Allow {command_type} again", yes=yes)
        body = {"selector": selector, "command_type": command_type}
        answer = found.do("POST", "/blocks/lift", body=body).body
        to.print(
            f"{answer['lifted']:,} of {answer['matched']:,} hosts had the block on "
            f"{plain(command_type)}, and have it no more."
        )


def _selector(host: str | None, on: str | None) -> object:
    if host is not None:
        raise Usage("Say --host HOST or --on SELECTOR, not both.")
    return asking.selector_of(on, None)


def _quoted(command_type: str) -> str:
    from urllib.parse import quote

    return quote(command_type, safe="")


def _ask(
    context: typer.Context, service: Client, selector: object, deed: str, *, yes: bool
) -> None:
    """Count the hosts that it would be on, and ask above the limit."""
    from onward.cli.planned import confirm

    if yes:
        return
    above = service.target.confirm_above if service.target else 0
    if isinstance(selector, str):
        hosts = service.pages("/hosts", selector=selector)
        confirm(given_of(context), sum(1 for _ in hosts), above=above, deed=deed)
    elif isinstance(selector, list):
        confirm(given_of(context), len(selector), above=above, deed=deed)
