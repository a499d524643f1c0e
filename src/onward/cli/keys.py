"""`onward keys`: keys of the API, made once, listed without their secret, revoked for good."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from onward.cli.exits import Usage
from onward.cli.finding import Everything, Limit, Yes
from onward.cli.shapes import KEY
from onward.cli.tree import Calling, Reading, given_of, noun

app = noun("Keys of the API: make, list, revoke.")

Role = Literal["viewer", "operator", "approver", "trader", "admin"]


@app.command("list", cls=Reading)
def list_keys(context: typer.Context, limit: Limit = 100, everything: Everything = False) -> None:
    """List keys in the order of their making, revoked ones too."""
    from onward.cli.finding import show_list

    show_list(context, KEY, "/keys", most=None if everything else limit)


@app.command(
    "make",
    cls=Reading,
    epilog="""
    onward keys make laptop --person ann --role operator --to ann.key
    """,
)
def make(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    person: Annotated[
        str, typer.Option(metavar="PERSON", help="Whose it is: nobody approves their own.")
    ],
    role: Annotated[Role, typer.Option(help="What it is good for.")],
    to_file: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write it there, for its owner alone."),
    ] = None,
) -> None:
    """Make a key. It is shown now, and never again."""
    from onward.cli.client import service
    from onward.cli.output import show_one
    from onward.cli.terminal import plain, reader, watcher

    given = given_of(context)
    number = None if to_file is None else _opened(to_file)
    with service(context) as found:
        body = {"name": name, "person": person, "role": role}
        made = found.do("POST", "/keys", body=body).body
    key = str(made["key"])
    if number is not None:
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(f"{key}\n")
        made = {field: value for field, value in made.items() if field != "key"}
    watcher(given).print(
        f"Key {made['id']} of {plain(person)} is made"
        + ("; it is shown only here:" if to_file is None else f"; it is in {to_file}.")
    )
    if given.form != "table":
        show_one(given, KEY, made)
    elif to_file is None:
        reader(given).print(key)


@app.command("revoke", cls=Calling)
def revoke(
    context: typer.Context,
    key: Annotated[int, typer.Argument(metavar="KEY", help="Its number.", min=1)],
    yes: Yes = False,
) -> None:
    """Revoke a key, for good. Revoking it again changes nothing."""
    from onward.cli.client import service
    from onward.cli.terminal import asked, reader

    given = given_of(context)
    if not yes:
        asked(given, f"Revoke key {key}?", flag="--yes")
    with service(context) as found:
        found.do("DELETE", f"/keys/{key}")
    reader(given).print(f"Key {key} is revoked.")


def _opened(path: Path) -> int:
    """Open a new file before there is a key to put into it."""
    try:
        return os.open(path.expanduser(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Usage(f"--to {path}: cannot be made: {error.strerror}.") from None
