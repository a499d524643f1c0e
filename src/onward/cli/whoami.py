"""`onward whoami`: whom the service takes you for."""

from __future__ import annotations

import typer

from onward.cli.shapes import ME
from onward.cli.tree import Reading, given_of, leaf

app = leaf()


@app.command("whoami", cls=Reading)
def whoami(context: typer.Context) -> None:
    """Say whom the service takes you for, and what you may do."""
    from onward.cli.client import service
    from onward.cli.output import show_one

    with service(context) as found:
        row = found.get("/me")
    show_one(given_of(context), ME, row)
