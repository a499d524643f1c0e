"""Finds what people name: a job by its number or its external id, a host by its name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from onward.cli.exits import Exit, Leaving
from onward.cli.output import Row, Shape, show_rows
from onward.cli.tree import given_of

if TYPE_CHECKING:
    from onward.cli.client import Client


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The numbers of jobs that begin so."""
    from onward.cli.completion import jobs

    return jobs(incomplete, given_of(ctx))


def complete_hosts(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of hosts that begin so."""
    from onward.cli.completion import hosts

    return hosts(incomplete, given_of(ctx))


def complete_types(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of command types that begin so."""
    from onward.cli.completion import types

    return types(incomplete, given_of(ctx))


Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Its number, or its external id.", autocompletion=complete_jobs
    ),
]
Host = Annotated[
    str, typer.Argument(metavar="HOST", help="Its name.", autocompletion=complete_hosts)
]
ExecutionId = Annotated[int, typer.Argument(metavar="EXECUTION", help="Its number.", min=1)]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="How many, at most.")]
Everything = Annotated[bool, typer.Option("--all", help="All of them, however many pages.")]
Reason = Annotated[str, typer.Option(help="Why, for whoever reads it later.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, and do it.")]


def job_id(service: Client, named: str) -> int:
    """The number of a job that somebody named."""
    if named.isascii() and named.isdigit():
        return int(named)
    found, _ = service.more("/jobs", most=1, external_id=named)
    if not found:
        raise Leaving(
            Exit.FAILED,
            f"There is no job {named!a:.80}, by its number or its external id: "
            "`onward jobs` lists them.",
        )
    return int(str(found[0]["job_id"]))


def host_named(service: Client, name: str) -> Row:
    """The host of a name."""
    found = find_host(service, name)
    if found is None:
        raise Leaving(
            Exit.FAILED,
            f"There is no host {name!a:.80}: `onward hosts` lists those that there are.",
        )
    return found


def find_host(service: Client, name: str) -> Row | None:
    """The host of a name, if there is one."""
    if not name or set(name) & set('"\\'):
        return None  # no host has such a name
    return next(service.pages("/hosts", selector=f'name="{name}"'), None)


def show_list(
    context: typer.Context,
    shape: Shape,
    path: str,
    *,
    most: int | None,
    **params: str | Sequence[str] | None,
) -> None:
    """Print a list of the service's, as far as it is wanted; says so if there is more of it."""
    from onward.cli.client import service

    with service(context) as found:
        show_items(context, shape, found, path, most=most, **params)


def show_items(
    context: typer.Context,
    shape: Shape,
    service: Client,
    path: str,
    *,
    most: int | None,
    **params: str | Sequence[str] | None,
) -> None:
    """Print a list of a service that is there already."""
    # What is empty was said as well, and is not the same as nothing.
    wanted = {name: value for name, value in params.items() if value is not None and value != []}
    rows = service.pages(path, most=None if most is None else most + 1, **wanted)
    show_rows(given_of(context), shape, islice(rows, most))
    if next(rows, None) is not None:
        typer.echo(f"onward: there are more than these {most:,}: --limit or --all.", err=True)
