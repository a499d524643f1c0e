"""What a terminal shows while the demo runs: a bar a job, why attempts failed, workers, events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from onward.core.lifecycles import EXECUTION
from onward.demo.script import Demo
from onward.demo.state import JobState, State, View, WorkerState

_LINES: Final = 5  # of what people and programs did
_SAY_EVERY_S: Final = 3.0
_NAME_WIDTH: Final = 12

# What a move leads to has the colour of the move, from left to right in the bar.
_MOVES: Final[Mapping[str, str]] = {
    "succeed": "green",
    "fail": "red",
    "timeout": "dark_orange",
    "block": "magenta",
    "cancel": "yellow",
    "claim": "bright_blue",
    "plan": "grey50",
}
_COLOURS: Final[Mapping[str, str]] = {
    **{str(EXECUTION.moves[event].target): colour for event, colour in _MOVES.items()},
    str(EXECUTION.initial): "grey23",
}


@contextmanager
def shown(demo: Demo, console: Console) -> Iterator[View]:
    """Show it live in a terminal, and as plain lines elsewhere."""
    if not console.is_terminal:
        lines = _Lines(console)
        lines.say(f"{demo.hosts:,} hosts, a bad network, seed {demo.seed}")
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
        self._next_s = _SAY_EVERY_S

    def say(self, line: str) -> None:
        self._print(line)

    def show(self, state: State) -> None:
        if time.monotonic() - self._began_at < self._next_s:
            return
        self._next_s = time.monotonic() - self._began_at + _SAY_EVERY_S
        # Rounded down: whole only when nothing is left.
        shares = ", ".join(f"{job.name} {100 * job.settled // job.total}%" for job in state.jobs)
        self._print(f"{shares}; {state.rate:,.0f} executions/s")

    def _print(self, line: str) -> None:
        elapsed_s = time.monotonic() - self._began_at
        self._console.print(f"{elapsed_s:5.1f} s  {line}", soft_wrap=True, markup=False)


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

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._head()]
        if self._state is not None and self._state.jobs:
            parts += ["", _bars(self._state), "", _facts(self._state), "", _events(self._state)]
        return Group(
            *parts, "", *(Text(line, no_wrap=True, overflow="ellipsis") for line in self._said)
        )

    def _head(self) -> RenderableType:
        elapsed_s = time.monotonic() - self._began_at
        told = f"{self._demo.hosts:,} hosts, a bad network, seed {self._demo.seed}"
        rate = f", {self._state.rate:,.0f} executions/s" if self._state else ""
        return Text.assemble(("onward demo", "bold"), f"  {told}  ", f"{elapsed_s:.0f} s{rate}")


def _bars(state: State) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=_NAME_WIDTH)
    table.add_column(ratio=1)
    for job in state.jobs:
        table.add_row(job.name, _Bar(job))
        table.add_row("", _legend(job))
    return table


def _legend(job: JobState) -> RenderableType:
    told = [("waits for approval  ", "bold")] if job.waits else []
    told += [
        (f"{job.counts[status]:,} {status}  ", colour)
        for status, colour in _COLOURS.items()
        if job.counts.get(status)
    ]
    return Text.assemble(*told, no_wrap=True, overflow="ellipsis")


def _facts(state: State) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=_NAME_WIDTH)
    table.add_column()
    causes = "  ".join(f"{cause} {count:,}" for cause, count in state.causes.items())
    table.add_row("setbacks", _one_line(causes or "-", "dim"))
    table.add_row("running", _one_line("   ").join(map(_worker, state.workers)))
    return table


def _events(state: State) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=_NAME_WIDTH - 1)
    for event in state.events:
        move = Text.assemble(event.before, " → ", (event.after, _COLOURS.get(event.after, "")))
        table.add_row(event.job, event.host, move, Text(event.cause, style="dim"))
    return table


def _worker(worker: WorkerState) -> Text:
    if worker.condition == "lives":
        return Text(f"{worker.name}: {worker.running}", style="green")
    return Text(f"{worker.name}: {worker.condition}", style="bold red")


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


class _Bar:
    """As wide as there is room for; each status has its share of it."""

    def __init__(self, job: JobState) -> None:
        self._job = job

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        width = options.max_width
        counts = self._job.counts
        done = drawn = 0
        for status, colour in _COLOURS.items():
            done += counts.get(status, 0)
            cells = round(done / self._job.total * width) - drawn
            drawn += cells
            yield Segment("━" * cells, console.get_style(colour))
