"""What a terminal shows while they trade: the book, prices, deals, answers and sums."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onward.demo.trading import drawing
from onward.demo.trading.crowd import KEYS
from onward.demo.trading.script import PEOPLE, Demo, money
from onward.demo.trading.state import State, Sum, View

_LINES: Final = 4  # of what happened
_DEPTH: Final = 5
_WIDE: Final = 96  # from so many columns on, the bars of the book may be longer
_SAY_EVERY_S: Final = 2.0
_NAME_WIDTH: Final = 8

# What an answer means, and the colour of it.
_ANSWERS: Final = {
    202: ("accepted", "green"),
    200: ("cancel", "green"),
    409: ("busy", "yellow"),
    412: ("stale", "dark_orange"),
    422: ("refused", "red"),
    428: ("blind", "magenta"),
}
_KINDS: Final = tuple(_ANSWERS.items())


def told(demo: Demo) -> str:
    """Say in one line what is played."""
    return f"{len(PEOPLE)} people with {KEYS} keys, seed {demo.seed}"


@contextmanager
def shown(demo: Demo, console: Console) -> Iterator[View]:
    """Show it live in a terminal, and as plain lines elsewhere."""
    if not console.is_terminal:
        lines = _Lines(console)
        lines.say(told(demo))
        yield lines
        return
    screen = _Screen(demo)
    with Live(screen, console=console, refresh_per_second=8, transient=True):
        yield screen


class _Lines:
    """For a log: a line whenever something happened, and now and then how far it is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_at = time.monotonic()
        self._next_at = 0.0

    def say(self, line: str) -> None:
        elapsed_s = time.monotonic() - self._began_at
        self._console.print(f"{elapsed_s:5.1f} s  {line}", soft_wrap=True, markup=False)

    def show(self, state: State) -> None:
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + _SAY_EVERY_S
        deals = sum(book.deals for book in state.books)
        self.say(f"{deals:,} deals; {_plainly(state)}; missing: {_missing(state)}")


class _Screen:
    """For a terminal: drawn anew several times a second."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._began_at = time.monotonic()
        self._said: deque[str] = deque(maxlen=_LINES)
        self._state: State | None = None

    def say(self, line: str) -> None:
        self._said.append(f"{time.monotonic() - self._began_at:5.1f} s  {line}")

    def show(self, state: State) -> None:
        self._state = state

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield from (self._head(), "")
        if self._state is not None:
            bar = 14 if options.max_width >= _WIDE else 8
            yield from (_markets(self._state, bar=bar), "", _facts(self._state), "")
        yield from (_one_line(line) for line in self._said)

    def _head(self) -> RenderableType:
        elapsed_s = time.monotonic() - self._began_at
        rate = f", {self._state.requests_rate:,.0f} requests/s" if self._state else ""
        said = f"  {told(self._demo)}  {elapsed_s:.0f} s{rate}"
        return Text.assemble(("onward trade demo", "bold"), said, no_wrap=True, overflow="ellipsis")


def _markets(state: State, *, bar: int) -> RenderableType:
    """Draw the book of the first market beside the last deals, and the prices of all below."""
    first = state.books[0]
    head = Table.grid(padding=(0, 3))
    head.add_row(
        Text(first.market.name, style="bold"),
        Text(f"{sum(book.deals for book in state.books):,} deals", style="bold"),
    )
    head.add_row(drawing.book(first, depth=_DEPTH, bar=bar), Group("", drawing.deals(state.deals)))
    prices = Table.grid(padding=(0, 2))
    for book in state.books:
        prices.add_row(book.market.name, drawing.price_line(book))
    return Group(head, "", prices)


def _facts(state: State) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=_NAME_WIDTH)
    table.add_column()
    table.add_row("answers", _answers(state))
    for each in state.sums:
        if not each.asset.startswith("item:"):
            table.add_row(each.asset, _sum(each))
    style = "bold red" if state.missed else "green"
    table.add_row("missing", _one_line(_missing(state), style))
    return table


def _answers(state: State) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    counts = [Text(f"{state.answers.get(status, 0):,}", colour) for status, (_, colour) in _KINDS]
    names = [Text(f"{word} {status}", "dim") for status, (word, _) in _KINDS]
    for _ in range(len(counts) + 1):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*counts, f"{state.replays:,}")
    table.add_row(*names, Text("repeat", "dim"))
    return table


def _plainly(state: State) -> str:
    counts = [
        f"{state.answers[status]:,} {word} ({status})"
        for status, (word, _) in _KINDS
        if state.answers.get(status)
    ]
    return ", ".join(counts)


def _sum(each: Sum) -> Text:
    return Text.assemble(
        money(each.brought),
        (" = ", "dim"),
        money(each.available),
        (" available + ", "dim"),
        money(each.held),
        (" held + ", "dim"),
        money(each.fees),
        (" fees", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _missing(state: State) -> str:
    if state.missed:
        return f"something was missing at {state.missed} of {state.looks} looks"
    return f"nothing, at {state.looks} looks"


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
