"""Shows what was found about promises, as the storm and the demo end with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from onward.findings import Finding


def show_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Show a line or two for each promise, and the verdict on all of them."""
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for finding in findings:
        word = "[green]holds[/]" if finding.holds else "[bold red]BROKEN[/]"
        table.add_row(word, finding.name, f"{finding.promise}\n[dim]{escape(finding.summary)}[/]")
    console.print(table)
    console.print()
    broken = [finding.name for finding in findings if not finding.holds]
    console.print(
        f"[bold red]Broken: {', '.join(broken)}.[/]" if broken else "[bold]Every promise held.[/]"
    )


def counted(counts: Mapping[str, int]) -> str:
    """Write counts as one line, the largest first."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count:,}" for name, count in ordered)
