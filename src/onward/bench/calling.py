"""HTTP as a caller speaks it, over a connection that stays open."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from onward.errors import InvariantBroken

HOST: Final = "127.0.0.1"
HEAD_END: Final = b"\r\n\r\n"
STATUS: Final = slice(9, 12)  # in b"HTTP/1.1 200 OK"

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search


def request(path: str, body: object, *, key: str, seen: str | None = None) -> bytes:
    """Write down a POST; with what was `seen`, it is for that version only."""
    content = json.dumps(body).encode()
    condition = "" if seen is None else f"If-Match: {seen}\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {key}\r\n{condition}"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def length_of(head: bytes) -> int:
    """Read from its head how long an answer is."""
    found = _LENGTH(head)
    if found is None:
        raise InvariantBroken(f"an answer of unknown length: {head!r}")
    return int(found[1])


class Caller:
    """One connection, for one call after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def call(self, wanted: bytes) -> tuple[int, bytes]:
        """Send a request, and return the status and the body of its answer."""
        self._writer.write(wanted)
        head = await self._reader.readuntil(HEAD_END)
        return int(head[STATUS]), await self._reader.readexactly(length_of(head))


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Caller]:
    """Open a connection that stays open."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
