"""The head of a request: its first line and its headers, of a sensible size and there in time.

What has not become a request yet is seen by nobody but the HTTP server, and uvicorn waits for the
end of a head for ever, however long it grows. Anybody could fill the memory so, without a key.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_BYTES: Final = 128 * 1024  # beyond the piece in which it begins; the API itself takes less
TIMEOUT_S: Final = 15.0
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedHead(HttpToolsProtocol):
    """A connection that is closed on whoever sends a head without end, or does not end it."""

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
        super().__init__(*args, **named)
        self._in_body = False
        self._moved = False  # whether a head began or ended in the piece that is being read
        self._begun = False  # whether a head has begun, and not ended yet
        self._head_bytes = 0
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take a connection, on which a request has to come."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget about it."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a piece, and count it if all of it belongs to one head."""
        self._moved = False
        super().data_received(data)
        # Nearly every head comes in one piece, and costs nothing here.
        if self._begun or not (self._moved or self._in_body):
            self._wait()
            self._head_bytes += 0 if self._moved else len(data)
            if self._head_bytes > MAX_BYTES:
                self._refuse()

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._moved, self._begun, self._head_bytes = True, True, 0

    def on_headers_complete(self) -> None:
        """End a head; what follows is the application's to judge."""
        self._moved, self._begun, self._in_body = True, False, True
        self._wait_no_more()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request, after which another one may come."""
        super().on_message_complete()
        self._moved, self._in_body, self._head_bytes = True, False, 0

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(TIMEOUT_S, self._hang_up)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _hang_up(self) -> None:
        self._waiting = None
        if self._answering:
            self._wait()  # Nobody is cut off in the middle of an answer.
        else:
            self.transport.close()

    def _refuse(self) -> None:
        # In the middle of another answer there is no place for this one.
        if not (self._answering or self.transport.is_closing()):
            self.transport.write(_TOO_LARGE)
        self.transport.close()

    @property
    def _answering(self) -> bool:
        # Before the first request there is none.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]  # see above
