"""How a market is drawn: its book with a bar for every price, and the line of what was paid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from onward.demo.trading.script import money
from onward.demo.trading.state import Book, DealState, Level

BID: Final = "green"
ASK: Final = "red"
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_PRICE_WIDTH: Final = 8
_COUNT_WIDTH: Final = 3


def book(shown: Book, *, depth: int, bar: int = 14) -> RenderableType:
    """Draw a book: those who buy on the left, those who sell on the right, the best on top."""
    bids, asks = shown.bids[:depth], shown.asks[:depth]
    most = max((level.orders for level in (*bids, *asks)), default=1)
    table = Table.grid(padding=(0, 1))
    for width in (bar, _COUNT_WIDTH, _PRICE_WIDTH, 1, _PRICE_WIDTH, _COUNT_WIDTH):
        table.add_column(width=width, justify="right")
    table.add_column(width=bar)
    table.add_row("", "", Text("buy", style="dim"), "", Text("sell", style="dim"))
    for bid, ask in zip_longest(bids, asks):
        left, right = _side(bid, most, BID, bar=bar), _side(ask, most, ASK, bar=bar)
        table.add_row(*reversed(left), Text("│", "dim"), *right)
    for _ in range(depth - max(len(bids), len(asks))):
        table.add_row("", "", "", Text("│", "dim"))
    return table


def _side(level: Level | None, most: int, colour: str, *, bar: int) -> Sequence[Text]:
    if level is None:
        return Text(), Text(), Text()
    return (
        Text(money(level.price), style=colour),
        Text(f"{level.orders}", style="dim"),
        Text("━" * max(1, round(level.orders / most * bar)), style=colour),
    )


def price_line(shown: Book) -> Text:
    """Draw what was paid, from the first deal to the last."""
    if not shown.prices:
        return Text("no deal yet", style="dim")
    low, high = min(shown.prices), max(shown.prices)
    step = (high - low) / (len(_BLOCKS) - 1) or 1
    line = "".join(_BLOCKS[round((price - low) / step)] for price in shown.prices)
    return Text.assemble(
        (line, "bright_blue"),
        f"  {money(shown.prices[-1])}",
        (f"  {money(low)} to {money(high)}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def deals(shown: Sequence[DealState]) -> RenderableType:
    """Draw the last deals, the newest on top."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column(justify="right")
    for deal in shown:
        table.add_row(
            Text(f"{deal.deal_id:,}", style="dim"),
            f"{money(deal.price)} {deal.currency}",
            Text.assemble((deal.buyer, BID), (" from ", "dim"), (deal.seller, ASK)),
        )
    return table
