"""A way from a browser to the service that can be cut and mended, at one address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Final
from urllib.parse import urlsplit

_PIECE: Final = 64 * 1024


@dataclass(frozen=True)
class Held:
    """Requests that are kept back."""

    beginning: bytes
    came: Event = field(default_factory=Event)
    may_go: Event = field(default_factory=Event)


class Wire:
    """Hands on what a browser and the service say to each other, until it is cut."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._service = (parts.hostname, parts.port)
        self._port = 0
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self.opened = 0  # how many connections there have been
        self._held: Held | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def mend(self) -> None:
        """Hand on again, at the same address as before."""
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._listener = listener
        Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Break all connections, and let nobody through."""
        if self._listener is not None:
            # Closing alone does not wake whoever waits in accept().
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self._lock:
            for end in self._open:
                _end(end)
            self._open.clear()

    def hold(self, request: str) -> Held:
        """Keep back requests that begin like this, until they may go."""
        self._held = Held(request.encode())
        return self._held

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._service)
                with self._lock:
                    self.opened += 1
                    self._open |= {near, far}
                for ends in ((near, far), (far, near)):
                    Thread(target=self._hand_on, args=ends, daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                if self._held and piece.startswith(self._held.beginning):
                    self._held.came.set()
                    self._held.may_go.wait()
                target.sendall(piece)
        with self._lock:
            self._open -= {source, target}
        _end(source)
        _end(target)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def wired(address: str) -> Iterator[Wire]:
    """Give a way to a service that can be cut; it is cut in the end."""
    wire = Wire(address)
    wire.mend()
    try:
        yield wire
    finally:
        wire.cut()
