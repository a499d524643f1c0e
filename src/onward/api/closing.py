"""An answer after which the connection is closed, but not before it can be read.

Whoever sends more than we read would find the connection reset, and our answer lost with it, if it
were closed under them: what still arrives is read and thrown away for a moment first.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_LINGER_S: Final = 2.0


class ClosingResponse(Response):
    """The last answer on its connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, let the sender finish for a moment, and end."""
        headers = list(self.raw_headers)
        if scope.get("http_version", "1.1").startswith("1"):
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await _drained(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drained(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
