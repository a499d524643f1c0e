"""`onward storm`: the storm as a person sees it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from onward.storm.conductor import Report, View


def storm(
    commands: Annotated[int, typer.Option(min=1, help="How many commands.")] = 10_000,
    seed: Annotated[
        int | None,
        typer.Option(help="Draw the storm of this seed again.", show_default="by chance"),
    ] = None,
    connections: Annotated[
        int, typer.Option(min=2, max=100, help="Connections to say the events on.")
    ] = 16,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep the data here.", show_default="thrown away in the end"),
    ] = None,
    plant: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Let late, doubled and reordered events loose, kill a sender, and see what was promised hold.

    Every event of every command is said twice, in a shuffled order, by two processes on many
    connections; one of the processes is killed in the middle and started again. Leaves with 1 when
    the database shows that a promise was broken.
    """
    import secrets

    from rich.console import Console

    from onward.storm import conductor

    if seed is None:
        seed = secrets.randbelow(2**32)
    figures = conductor.Storm(commands, seed, connections, data_dir, plant)
    with _view(Console(stderr=True, highlight=False)) as view:
        view.say(f"seed {seed}")
        report = conductor.run(figures, view)
    _show(Console(highlight=False), report)
    if not report.holds:
        sys.exit(1)


@contextmanager
def _view(console: Console) -> Iterator[View]:
    if not console.is_terminal:
        yield _Lines(console)
        return
    from rich import progress

    columns = (
        progress.TextColumn("  sender {task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


class _Lines:
    """For a log: a line whenever something happened."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)

    def progress(self, confirmed: Mapping[str, tuple[int, int]]) -> None:
        """Keep quiet: what has happened is told in lines."""


class _Bars:
    """For a terminal: the lines, and below them a bar a sender."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def say(self, line: str) -> None:
        self._bars.console.print(line)

    def progress(self, confirmed: Mapping[str, tuple[int, int]]) -> None:
        for name, (count, share) in confirmed.items():
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=share)
            self._bars.update(self._tasks[name], completed=count)


def _show(console: Console, report: Report) -> None:
    from rich.table import Table

    from onward.cli.findings import counted, show_findings

    figures, kill = report.storm, report.kill
    facts = Table.grid(padding=(0, 2))
    facts.add_row(
        "storm",
        f"{figures.commands:,} commands, {report.said:,} events said and answered, "
        f"on {report.connections} connections (seed {figures.seed})",
    )
    facts.add_row(
        "speed",
        f"{report.said / report.seconds:,.0f} events/s "
        f"({report.seconds:.1f} s, every answer after its commit reached the disk)",
    )
    facts.add_row(
        "killed",
        f"sender {kill.sender} (pid {kill.pid}) with {kill.confirmed:,} of {kill.share:,} answers; "
        f"started again, it said {kill.share - kill.confirmed:,} events, {kill.unheard:,} of which "
        "had been taken already without its knowing",
    )
    facts.add_row("verdicts", counted(report.verdicts))
    facts.add_row("ended as", counted(report.statuses))
    if figures.data_dir:
        facts.add_row("kept", f"{figures.data_dir}, database {report.database}")
    console.print(facts)
    console.print()

    show_findings(console, report.findings)
