"""`onward trade`: the market for who trades, as it is played, and its books as they are checked."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onward.cli.trade_account import add_account
from onward.cli.trade_market import add_market
from onward.cli.trade_orders import add_orders
from onward.cli.tree import Command, noun

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from onward.demo.trading.conductor import Report
    from onward.demo.trading.journal import Wanted
    from onward.trading.audit import Audit

app = noun("Trade, and see that no cent is missing.")
add_account(app)
add_orders(app)
add_market(app)


@app.command(cls=Command)
def demo(
    seconds: Annotated[int, typer.Option(min=2, max=600, help="How long they trade.")] = 10,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Draw the prices and the people of this seed again.", show_default="by chance"
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep the data here.", show_default="thrown away in the end"),
    ] = None,
    plant: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Let two crowds trade over the API, take things away in the middle, and count every cent.

    People who buy and people who sell place orders around a price that wanders, withdraw some, and
    move money, each with several keys at once. Some come with an old ETag, spend what they do not
    have, or ask again for what was done. In the middle, Valkey is emptied and one of two services
    is killed. In the end, the tables are compared with what everybody was told; it leaves with 1
    when a promise was broken.
    """
    import secrets

    from rich.console import Console

    from onward.demo.trading import conductor
    from onward.demo.trading.screen import shown
    from onward.demo.trading.script import Demo

    figures = Demo(seconds, secrets.randbelow(2**32) if seed is None else seed, data_dir, plant)
    with shown(figures, Console(stderr=True, highlight=False)) as view:
        report = conductor.run(figures, view)
    _show(Console(highlight=False), report)
    if not report.holds:
        sys.exit(1)


@app.command(cls=Command)
def check() -> None:
    """Derive every balance of the configured database again, and say whether the books are right.

    Nothing is changed, and nobody who trades has to wait. Leaves with 1 when something is wrong.
    """
    from onward.cli.environment import database_of, settings

    with database_of(settings()) as url:
        found = asyncio.run(_audited(url))
    _show_audit(found)
    if found.faults:
        sys.exit(1)


async def _audited(url: str) -> Audit:
    from onward.errors import SchemaMismatch
    from onward.store import database, schema
    from onward.trading.audit import audit

    async with database.pooled(url, size=1) as pool:
        async with pool.acquire() as connection:
            present = await schema.revision(connection)
        if present != schema.HEAD:
            raise SchemaMismatch(
                f"The database is at revision {present or 'nothing'}, and this program at "
                f"{schema.HEAD}: run `onward db upgrade`, or the program that it belongs to."
            )
        return await audit(pool)


def _show_audit(found: Audit) -> None:
    typer.echo(
        f"{found.operations:,} operations on {found.accounts:,} accounts, {found.deals:,} deals, "
        f"{found.open_orders:,} open orders"
    )
    for asset, parts in found.totals.items():
        told = ", ".join(f"{part} {amount:,}" for part, amount in parts.items())
        typer.echo(f"{asset}: {told}")
    for fault in found.faults:
        typer.echo(f"wrong: {fault}")
    if found.faults:
        typer.echo("The books are wrong.")
    else:
        typer.echo("The books are right: every balance follows from its entries.")


def _show(console: Console, report: Report) -> None:
    from onward.cli.findings import show_findings

    for title, part in (
        *_books(report),
        ("the last deals", _deals(report)),
        ("what was refused, and why", _refused(report)),
        ("what else happened", _facts(report)),
        ("where everything is", _totals(report)),
    ):
        console.print(f"[bold]{title}[/]")
        console.print(part)
        console.print()
    show_findings(console, report.findings)


def _books(report: Report) -> list[tuple[str, RenderableType]]:
    from rich.console import Group

    from onward.demo.trading import drawing

    return [
        (
            f"the book of {book.market.name}, after {book.deals:,} deals",
            Group(drawing.book(book, depth=8), "", drawing.price_line(book)),
        )
        for book in report.last.books
    ]


def _deals(report: Report) -> RenderableType:
    from onward.demo.trading import drawing

    return drawing.deals(report.last.deals)


def _refused(report: Report) -> Table:
    """Lay out what was refused, by answer and reason, with the last example of each."""
    from rich.markup import escape
    from rich.table import Table

    refused = [told for told in report.evidence.told if not told.accepted]
    counts = Counter((told.status, told.code) for told in refused)
    examples = {(told.status, told.code): told.wanted for told in refused}
    table = Table("answer", "reason", "times", "the last one", box=None, pad_edge=False)
    table.columns[2].justify = "right"
    for (status, code), count in sorted(counts.items()):
        told = escape(_wanted(examples[status, code]))
        table.add_row(f"{status}", code, f"{count:,}", f"[dim]{told}[/]")
    return table


def _wanted(wanted: Wanted) -> str:
    """Say what somebody wanted."""
    from onward.demo.trading.journal import BUY, CANCEL, SELL
    from onward.demo.trading.script import money

    if wanted.deed == CANCEL:
        return f"{wanted.person} takes back order {wanted.order_id}"
    words = {BUY: f"bids for item {wanted.item_id}:", SELL: f"offers item {wanted.item_id} for"}
    what = words.get(wanted.deed, f"{wanted.deed}s")
    return f"{wanted.person} {what} {money(wanted.amount)} {wanted.asset}"


def _totals(report: Report) -> Table:
    """Lay out what was brought and where it is, and what is missing."""
    from rich.table import Table

    from onward.demo.trading.totals import totals

    head = ("", "brought", "taken out", "available", "held", "fees", "missing")
    table = Table(*head, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for total in totals(report.evidence):
        asset, *amounts = total
        missing = f"[bold red]{total.shown(total.missing)}[/]" if total.missing else "[green]0[/]"
        table.add_row(asset, *(total.shown(amount) for amount in amounts), missing)
    return table


def _facts(report: Report) -> Table:
    """Lay out what else there is to know."""
    from rich.table import Table

    found, figures = report.evidence, report.demo
    count = len(found.told)
    silences = sum(told.silences for told in found.told)
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "speed",
        f"{count:,} requests for a change in {report.seconds:.1f} s, "
        f"{count / report.seconds:,.0f} a second, and {len(found.deals):,} deals "
        f"(seed {figures.seed})",
    )
    table.add_row("emptied", f"Valkey, of {report.emptied} keys")
    table.add_row(
        "killed",
        f"one of two services (pid {report.killed}); {silences:,} requests got no answer, and were "
        "asked again with the same key",
    )
    if figures.data_dir:
        table.add_row("kept", f"{figures.data_dir}")
    return table
