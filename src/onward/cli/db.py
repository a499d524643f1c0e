"""`onward db`: the schema of the database that the settings name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from onward.cli.tree import Command, noun

if TYPE_CHECKING:
    from onward.settings import Settings

app = noun("Look after the database.")


@app.command(cls=Command)
def upgrade(
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the script for a DBA, and change nothing.")
    ] = False,
) -> None:
    """Bring the database to the schema of this program.

    Onward does this by itself whenever it is opened; here it can be done ahead of time.
    """
    from onward.cli.environment import database_of, settings

    found = settings()
    with database_of(found) as url:
        asyncio.run(_print_script(url) if sql else _upgrade(url, found))


@app.command(cls=Command)
def status() -> None:
    """Say which schema the database has, and what this program wants."""
    from onward.cli.environment import database_of, settings

    with database_of(settings()) as url:
        asyncio.run(_print_status(url))


async def _upgrade(url: str, settings: Settings) -> None:
    from onward.store import database, schema

    connection = await database.connect(url)
    try:
        await database.check_server(connection, durable=settings.require_durable)
        before = await schema.revision(connection)
        await schema.upgrade(connection, timeline_keep_months=settings.timeline_keep_months)
    finally:
        await connection.close()
    typer.echo(f"The schema was at {before or 'nothing'} and is now at {schema.HEAD}.")


async def _print_script(url: str) -> None:
    from onward.store import database, schema

    connection = await database.connect(url)
    try:
        present = await schema.revision(connection)
    finally:
        await connection.close()
    if present == schema.HEAD:
        typer.echo(f"-- The schema is at {present} already: there is nothing to run.")
    else:
        typer.echo(schema.script(present))


async def _print_status(url: str) -> None:
    from onward.store import database, schema

    connection = await database.connect(url)
    try:
        present = await schema.revision(connection)
        version = connection.get_server_version()
    finally:
        await connection.close()
    typer.echo(f"server    PostgreSQL {version.major}.{version.minor}")
    typer.echo(f"schema    {present or 'nothing yet'}")
    typer.echo(f"program   {schema.HEAD}")
    if present != schema.HEAD:
        typer.echo("Run `onward db upgrade`, or open Onward, to bring it up to date.")
