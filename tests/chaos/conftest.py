"""A PostgreSQL that may be struck down and raised again under whoever uses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from onward.embedded.home import find_home
from onward.embedded.postgresql import PostgreSQL
from onward.embedded.running import alive, ensure_running, run, stop
from tests.cli.running import folder_for_servers, until


@dataclass(frozen=True, slots=True)
class Mortal:
    """A server that keeps what it has confirmed, whatever is done to it."""

    server: PostgreSQL

    @property
    def url(self) -> str:
        return self.server.url()

    def raise_up(self) -> None:
        """Start it, with whatever recovery it takes."""
        with self.server.home.turn() as turn:
            ensure_running(self.server, turn)

    def strike_down(self, mode: str = "immediate") -> None:
        """End it; by default as a crash does: nothing is written, every connection breaks."""
        home = self.server.home
        data = str(home.path / "postgresql")
        with home.turn() as turn:
            told = [str(home.bin_dir / "pg_ctl"), "stop", f"--mode={mode}", "-D", data]
            assert run(self.server, told, inherit=turn) == 0
            until(lambda: not alive(self.server))


@pytest.fixture
def mortal() -> Iterator[Mortal]:
    """A durable server of the test's own: one that may forget would forget what it confirmed."""
    with folder_for_servers() as folder:
        home = find_home(folder)
        home.renew_run_dir()
        found = Mortal(PostgreSQL(home))
        found.raise_up()
        with home.turn() as turn:
            found.server.ensure_database(turn)
        try:
            yield found
        finally:
            with home.turn() as turn:
                stop(found.server, turn)
