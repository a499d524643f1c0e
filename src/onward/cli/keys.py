"""`onward keys`: keys of the API, made once, listed without their secret, revoked for good."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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


@app.command("show", cls=Reading)
def show(
    context: typer.Context,
    key: Annotated[int, typer.Argument(metavar="KEY", help="Its number.", min=1)],
) -> None:
    """Show whose a key is, what it is good for and who made it; never the key itself."""
    from onward.cli.client import service
    from onward.cli.exits import Exit, Leaving
    from onward.cli.output import show_one

    with service(context) as found:
        row = next((each for each in found.pages("/keys") if each["id"] == key), None)
    if row is None:
        raise Leaving(
            Exit.FAILED, f"There is no key {key}: `onward keys` lists those that there are."
        )
    show_one(given_of(context), KEY, row)


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
    made: dict[str, object] = {}
    kept, where = to_file is not None, "it is shown only here:"
    try:
        with _new(to_file) as number, service(context) as found:
            body = {"name": name, "person": person, "role": role}
            made = found.do("POST", "/keys", body=body).body
            _write(number, str(made["key"]))
    except OSError as error:
        if not made:
            raise
        # It will never be shown again, so it is shown now.
        kept, where = False, f"{to_file} cannot be written ({error.strerror}), so {where}"
    where = f"it is in {to_file}." if kept else where
    watcher(given).print(f"Key {made['id']} of {plain(person)} is made; {where}")
    if given.form != "table":
        show_one(given, KEY, {name: made[name] for name in made if name != "key" or not kept})
    elif not kept:
        reader(given).print(str(made["key"]))


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


@contextmanager
def _new(path: Path | None) -> Iterator[int | None]:
    """Give a file that is opened before there is a key to put into it, and gone if none is."""
    if path is None:
        yield None
        return
    number = _opened(path)
    try:
        yield number
    except BaseException:
        path.expanduser().unlink(missing_ok=True)
        raise
    finally:
        os.close(number)


def _write(number: int | None, key: str) -> None:
    if number is not None:
        os.write(number, f"{key}\n".encode("ascii"))
        os.fsync(number)


def _opened(path: Path) -> int:
    try:
        return os.open(path.expanduser(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Usage(f"--to {path}: cannot be made: {error.strerror}.") from None
