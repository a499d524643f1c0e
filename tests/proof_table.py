"""One table at the end of a run: what was tried, how often, and what was found.

A test that goes through many cases says so with the fixture `tried`. A green run then shows not
only that nothing failed but also how much was looked at, and `--proof` shows how much more.

Where the tests of a run are shared out among several processes (`pytest -n`), each hands its part
of the table to the one that prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

Tried = Callable[..., None]
Table = dict[str, tuple[int, str]]

_TABLE = pytest.StashKey[Table]()
_HANDED_OVER = "onward_tried"


@pytest.fixture(scope="session")
def tried(pytestconfig: pytest.Config) -> Tried:
    """Note what was tried: `tried("interleavings", 20)`; the same name again adds to its count."""
    table = pytestconfig.stash.setdefault(_TABLE, {})

    def note(name: str, count: int, found: str = "0 violations") -> None:
        _add(table, name, count, found)

    return note


def _add(table: Table, name: str, count: int, found: str) -> None:
    table[name] = (table.get(name, (0, ""))[0] + count, found)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand our part to whoever has shared out the tests, if somebody has."""
    handed_over: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if handed_over is not None:
        handed_over[_HANDED_OVER] = session.config.stash.get(_TABLE, {})


class Sharing:
    """Takes the parts of the table from the processes that share a run."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the part of a process that has ended."""
        told: Mapping[str, Table] = getattr(node, "workeroutput", {})
        for name, (count, found) in told.get(_HANDED_OVER, {}).items():
            _add(self._table, name, count, found)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Sharing(config.stash.setdefault(_TABLE, {})), "sharing")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    table = config.stash.get(_TABLE, {})
    if not table:
        return
    terminalreporter.section("what was tried" + (" (proof)" if config.getoption("--proof") else ""))
    width = max(map(len, table))
    for name, (count, found) in table.items():
        terminalreporter.write_line(f"{name:<{width}}  {count:>12,}  {found}")
