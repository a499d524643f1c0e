"""`onward demo`: the demonstration, as a person sees it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from onward.demo.conductor import Report


def demo(
    hosts: Annotated[int, typer.Option(min=10, max=10_000, help="How many hosts.")] = 1_000,
    seed: Annotated[
        int | None,
        typer.Option(help="Draw the bad network of this seed again.", show_default="by chance"),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep the data here.", show_default="thrown away in the end"),
    ] = None,
    plant: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run jobs on a thousand simulated hosts over a bad network, kill a worker, and judge it all.

    A real service and two workers, in processes of their own, are driven through the API: a job
    that somebody else has to approve, two jobs that compete for every host, and a few hosts on
    which something is forbidden. In the end, the tables and the journal that the hosts kept are
    asked whether every promise was kept; it leaves with 1 when one was not.
    """
    import secrets

    from rich.console import Console

    from onward.demo import conductor
    from onward.demo.screen import shown
    from onward.demo.script import Demo

    figures = Demo(hosts, secrets.randbelow(2**32) if seed is None else seed, data_dir, plant)
    with shown(figures, Console(stderr=True, highlight=False)) as view:
        report = conductor.run(figures, view)
    _show(Console(highlight=False), report)
    if not report.holds:
        sys.exit(1)


def _show(console: Console, report: Report) -> None:
    from onward.cli.findings import show_findings

    for part in (_outcomes(report), _facts(report)):
        console.print(part)
        console.print()
    show_findings(console, report.findings)


def _outcomes(report: Report) -> Table:
    """Lay out how every job ended, by status and cause, and what had to be tried again."""
    from rich.table import Table

    from onward.cli.findings import counted

    table = Table("job", "ended", "because of", "", "tried again because of", box=None)
    table.columns[3].justify = "right"
    for job in report.evidence.jobs.values():
        outcomes = report.evidence.outcomes(job.job_id).most_common()
        told = job.name, counted(report.evidence.retried(job.job_id))
        for (status, cause), count in outcomes:
            table.add_row(told[0], status, cause or "", f"{count:,}", told[1])
            told = "", ""
    return table


def _facts(report: Report) -> Table:
    """Lay out what else there is to know."""
    from rich.table import Table

    from onward.channels.simulated import What

    found, figures, kill = report.evidence, report.demo, report.kill
    count = len(found.executions)
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "speed",
        f"{count:,} executions on {figures.hosts:,} hosts in {report.seconds:.1f} s, "
        f"{count / report.seconds:,.0f} a second, with {figures.capacity} at once in a worker "
        f"(seed {figures.seed})",
    )
    table.add_row(
        "killed",
        f"{kill.worker} (pid {kill.pid}) in the middle of its runs; {found.rescued:,} were rescued",
    )
    table.add_row(
        "fenced",
        f"{found.late:,} reports of attempts that were over; the hosts refused "
        f"{found.seen(What.REFUSED):,} attempts and answered {found.seen(What.ANSWERED):,} "
        "repeats from memory",
    )
    if figures.data_dir:
        table.add_row("kept", f"{figures.data_dir}")
    return table
