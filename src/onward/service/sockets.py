"""The WebSocket server of a process: uvicorn's, and a way to cut off whoever has fallen silent.

A connection that is closed still tries to write what it has; to somebody who is gone without a word
or who reads nothing, that takes for ever. Such a connection is cut off instead.
"""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from onward.api.sockets import ABORT


class MortalSocket(WebSocketsSansIOProtocol):
    """A connection that ends when the other side has not answered a ping in time."""

    def handle_connect(self, event: Request) -> None:
        """Take a connection, and tell the application how to cut it off."""
        super().handle_connect(event)
        # One that was refused by the server itself has got no further.
        if (scope := getattr(self, "scope", None)) is not None:
            scope["extensions"][ABORT] = self.transport.abort

    def keepalive_timeout(self) -> None:
        """Cut off whoever has not answered."""
        super().keepalive_timeout()
        self.transport.abort()
