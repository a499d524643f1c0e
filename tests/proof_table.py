"""One table at the end of a run: what was tried, how often, and what was found.

A test that goes through many cases says so with the fixture `tried`. A green run then shows not
only that nothing failed but also how much was looked at, and `--proof` shows how much more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Tried = Callable[..., None]

_TABLE = pytest.StashKey[dict[str, tuple[int, str]]]()


@pytest.fixture(scope="session")
def tried(pytestconfig: pytest.Config) -> Tried:
    """Note what was tried: `tried("interleavings", 20)`; the same name again adds to its count."""
    table = pytestconfig.stash.setdefault(_TABLE, {})

    def note(name: str, count: int, found: str = "0 violations") -> None:
        table[name] = (table.get(name, (0, ""))[0] + count, found)

    return note


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
