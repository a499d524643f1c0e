"""`onward context`: the services that somebody talks to, and where their keys are."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from onward.cli.exits import Exit, Leaving, Usage
from onward.cli.finding import Yes
from onward.cli.output import Shape, column
from onward.cli.tree import Command, Reading, given_of, noun
from onward.errors import InvalidInput

app = noun("The services that you talk to, and your keys.")


def _complete(incomplete: str) -> list[str]:
    from onward.cli.completion import contexts

    return contexts(incomplete)


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="What you call it.", autocompletion=_complete)
]
CONTEXT: Final = Shape(
    key="name",
    columns=(column("current"), column("name"), column("url"), column("key", "key")),
    fields=("name", "current", "url", "key"),
    nothing="There are no contexts yet: `onward context add NAME --url URL` makes one.",
)
TARGET: Final = Shape(
    key="url",
    columns=(),
    fields=("context", "url", "url_from", "key", "key_from", "confirm_above", "config"),
)


@app.command("list", cls=Reading)
def list_contexts(context: typer.Context) -> None:
    """List the contexts, and which is the current one. No key is shown."""
    from onward.cli import contexts
    from onward.cli.environment import settings
    from onward.cli.output import show_rows

    config = contexts.read(contexts.path_of(settings()))
    rows = [
        {
            "name": name,
            "current": name == config.current,
            "url": each.url,
            "key": each.key_file or ("in the file of contexts" if each.key else None),
        }
        for name, each in config.contexts.items()
    ]
    show_rows(given_of(context), CONTEXT, rows)


@app.command(
    "add",
    cls=Command,
    epilog="""
    onward context add prod --url https://onward.example.com             # asks for the key
    onward context add prod --url https://onward.example.com < ann.key   # reads it
    onward context add here --url http://127.0.0.1:8470 --key-file ~/.local/share/onward/admin-key
    """,
)
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call it.")],
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The address of the service.")],
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file that your key is in.", show_default=""),
    ] = None,
    use: Annotated[bool, typer.Option("--use/--no-use", help="Make it the current one.")] = True,
) -> None:
    """Add a context, or replace the one of this name.

    Without --key-file the key is asked for, or read from standard input, and kept in the file of
    contexts, which only you can read. It is never an argument: others could see it there.
    """
    from onward.cli import contexts
    from onward.cli.client import checked_address
    from onward.cli.contexts import Context
    from onward.cli.environment import settings

    contexts.checked_name(name)
    checked = checked_address(url, said="--url")
    key = None if key_file else _read_key(no_input=given_of(context).no_input)
    path = contexts.path_of(settings())
    config = contexts.read(path)
    made = Context(checked, key, None if key_file is None else _absolute(key_file))
    current = name if use or config.current is None else config.current
    contexts.write(path, replace(config, contexts={**config.contexts, name: made}, current=current))
    typer.echo(f"{name} is {checked}{', and the current context' if current == name else ''}.")


@app.command("use", cls=Command)
def use(name: Name) -> None:
    """Make a context the current one."""
    from onward.cli import contexts
    from onward.cli.environment import settings

    path = contexts.path_of(settings())
    config = contexts.read(path)
    found = config.named(name)
    contexts.write(path, replace(config, current=name))
    typer.echo(f"{name} ({found.url}) is the current context.")


@app.command("show", cls=Reading)
def show(context: typer.Context) -> None:
    """Say which service a command would talk to, and where that was said. No key is shown."""
    from onward.cli import client, contexts
    from onward.cli.environment import settings
    from onward.cli.output import show_one

    found, given = settings(), given_of(context)
    target = contexts.target(found, given)
    address = client.address_of(target, found)
    try:
        client.key_of(target, found, here=client.is_here(address))
        key = "known, and not shown"
    except InvalidInput as error:
        key = str(error)
    row = {
        "context": target.context,
        "url": address,
        "url_from": target.url_from,
        "key": key,
        "key_from": target.key_from or "the first start of the service of this machine",
        "confirm_above": target.confirm_above,
        "config": str(contexts.path_of(found)),
    }
    show_one(given, TARGET, row)


@app.command("remove", cls=Command)
def remove(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Remove a context, and the key that is kept with it."""
    from onward.cli import contexts
    from onward.cli.environment import settings
    from onward.cli.terminal import asked

    path = contexts.path_of(settings())
    config = contexts.read(path)
    if config.named(name).key is not None and not yes:
        asked(given_of(context), f"Remove {name}, with the key in it?", flag="--yes")
    left = {each: value for each, value in config.contexts.items() if each != name}
    current = None if config.current == name else config.current
    contexts.write(path, replace(config, contexts=left, current=current))
    typer.echo(f"{name} is removed.")


def _read_key(*, no_input: bool) -> str:
    from onward.cli.client import sendable

    if not sys.stdin.isatty():
        given = sys.stdin.readline().strip()
        if not given:
            raise Usage("There is no key on standard input: give it there, or say --key-file.")
        return sendable(given)
    if no_input:
        raise Usage("Nobody is there to be asked for the key: say --key-file.")
    try:
        return sendable(str(typer.prompt("Key", hide_input=True, err=True)).strip())
    except typer.Abort:
        raise Leaving(Exit.INTERRUPTED, "Nothing was done.") from None


def _absolute(path: Path) -> str:
    found = str(path.expanduser().absolute())
    if not found.isprintable():
        raise Usage("--key-file: takes a name that can be written down: UTF-8, in one line.")
    return found
