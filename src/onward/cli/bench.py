"""`onward bench`: the measurements as a person, or a program, reads them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onward.bench.result import Result


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="What to measure.", show_default="everything"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a list of objects instead of a table.")
    ] = False,
    list_names: Annotated[
        bool, typer.Option("--list", help="Name what can be measured, and do nothing.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Leave with 1 when a target is missed.")
    ] = False,
) -> None:
    """Measure Onward, and its peers beside it.

    Every figure is a ratio within one run, with durable commits on both sides, the best of several
    rounds. A missed target is a measurement like any other, unless --strict is given.
    """
    from rich.console import Console

    from onward.bench import runner

    if list_names:
        for name, found in runner.BENCHES.items():
            typer.echo(f"{name:10}{found.about}")
        return
    aside = Console(stderr=True, highlight=False)
    results = []
    for result in runner.run(names or (), lambda line: aside.print(line, soft_wrap=True)):
        results.append(result)
        aside.print(f"{result.name}: {_ratio(result)}, target {result.target}", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps([result.as_json() for result in results], indent=2))
    else:
        _show(results)
    # What could not be run counts as missed here: a gate that nobody went through is not passed.
    if strict and not all(result.holds for result in results):
        sys.exit(1)


def _show(results: Sequence[Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "measured", "against", "ratio", "target", "", box=None, pad_edge=False)
    for column in (1, 3):
        table.columns[column].justify = "right"
    for result in results:
        table.add_row(
            result.name,
            f"{result.value:,.{0 if result.value >= 100 else 2}f} {result.unit}",  # noqa: PLR2004
            result.against or "nobody",
            _ratio(result),
            result.target,
            _WORDS[result.holds],
        )
    Console(highlight=False).print(table)


_WORDS = {True: "[green]holds[/]", False: "[bold red]missed[/]", None: "not known"}


def _ratio(result: Result) -> str:
    return "-" if result.ratio is None else f"{result.ratio:.2f} x"
