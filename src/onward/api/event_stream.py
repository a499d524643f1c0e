"""An answer that goes on for as long as somebody listens: server-sent events.

It ends when the caller leaves or reads nothing for too long, when their key is revoked, and when
the server leaves. Whoever was cut off goes on where they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_HEADERS: Final = {
    # Nobody on the way is to keep, compress or gather what is told now.
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}
_PATIENCE_S: Final = 60.0  # with a caller who does not read
_GOODBYE_S: Final = 1.0

Write = Callable[[bytes], Awaitable[None]]


class EventStream(Response):
    """Lets `tell` write until it ends, the caller leaves, or `closed` is set."""

    media_type = "text/event-stream"

    def __init__(self, tell: Callable[[Write], Awaitable[None]], closed: asyncio.Event) -> None:
        super().__init__(headers=_HEADERS)
        # Its end is not known, so neither is its length.
        del self.headers["content-length"]
        self._tell = tell
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI calls it
        """Send the answer, and end it properly where anybody is left to see it."""
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await self._until_somebody_leaves(receive, send)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_somebody_leaves(self, receive: Receive, send: Send) -> None:
        async def write(told: bytes) -> None:
            async with asyncio.timeout(_PATIENCE_S):
                await send({"type": "http.response.body", "body": told, "more_body": True})

        telling = asyncio.ensure_future(self._tell(write))
        others = [asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._closed.wait())]
        try:
            await asyncio.wait({telling, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (telling, *others):
                task.cancel()
            await asyncio.wait({telling, *others})
        if not telling.cancelled():
            with suppress(TimeoutError):
                telling.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
