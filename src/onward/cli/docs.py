"""`onward docs`: the pages that are generated, so that they cannot be wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer


def docs(
    into: Annotated[Path, typer.Option(help="The folder of the pages.")] = Path("docs"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; leave with 1 when a page is stale.")
    ] = False,
) -> None:
    """Write the generated pages anew: lifecycles, settings, commands."""
    stale = []
    for name, generate in _pages().items():
        path, text = into / name, generate()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in stale:
        typer.echo(f"{path} is stale; run `onward docs`." if check else f"wrote {path}", err=check)
    if check and stale:
        sys.exit(1)


def _pages() -> Mapping[str, Callable[[], str]]:
    from onward.cli import pages
    from onward.core import diagrams

    return {"lifecycles.md": diagrams.page, "settings.md": pages.settings, "cli.md": pages.cli}
