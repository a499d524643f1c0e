"""The WebSockets of the service: agents come in by one, other processes of ours by the other.

They are not for browsers: a request that a page has made is refused before anything is accepted.
Neither asks for a key of the API; whoever comes shows a key of their own in the first frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send

from onward.api.services import Services
from onward.channels.agent.door import Door
from onward.channels.agent.outbox import Socket
from onward.channels.agent.relay import Place

ABORT: Final = "onward.abort"  # where the server of this process puts how to cut a connection off
_CLOSE_S: Final = 2.0  # in which the other side has to take the word that it is over
_REASON_MAX: Final = 120  # bytes; WebSocket has room for 123


class _Serves(Protocol):
    async def serve(self, socket: Socket, *, remote: str) -> None: ...


class AsgiSocket:
    """A WebSocket of the application, as the hub takes it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT)

    async def receive(self) -> bytes | None:
        """Return the next frame, and none once the connection is over."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return None
        # Text is nothing that we speak: as a frame it is too short to be signed.
        return message.get("bytes") or b""

    async def send(self, frame: bytes) -> None:
        """Write a frame; an OSError means that nothing of it was written."""
        try:
            await self._send({"type": "websocket.send", "bytes": frame})
        except RuntimeError as error:
            # What ASGI says to whoever speaks after the end.
            raise ConnectionResetError(str(error)) from None

    async def close(self, code: int, reason: str) -> None:
        """End the connection, soon and in any case."""
        told = reason.encode()[:_REASON_MAX].decode(errors="ignore")
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._send({"type": "websocket.close", "code": code, "reason": told})
        except TimeoutError:
            # It reads nothing, not even this. Whatever is still to be written to it never will be.
            if self._abort is not None:
                self._abort()
        except (OSError, RuntimeError):
            pass  # It is gone already.


class _Entrance:
    """An address at which WebSockets are taken."""

    def __init__(self, serves: _Serves) -> None:
        self._serves = serves

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the word that somebody wants to connect
        if any(name == b"origin" for name, _ in scope["headers"]):
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept"})
        client = scope.get("client")
        remote = f"{client[0]}:{client[1]}" if client else ""
        await self._serves.serve(AsgiSocket(scope, receive, send), remote=remote)


def sockets(services: Services) -> list[BaseRoute]:
    """Make the WebSockets of an application."""

    def place() -> Place | None:
        found = services.attendance.place
        return None if found is None else Place(*found)

    return [
        WebSocketRoute("/agent", _Entrance(services.hub), name="agent"),
        WebSocketRoute("/relay", _Entrance(Door(services.hub, place)), name="relay"),
    ]
