"""A client's connection: to whichever server answers, and honest about what it does not know."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 30.0
_HEAD_END: Final = b"\r\n\r\n"
_AGAIN_S: Final = 0.05  # between two looks for a server that answers

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search
_ETAG = re.compile(rb'\r\netag: *("[^"\r]*")', re.IGNORECASE).search
_REPLAYED = re.compile(rb"\r\nidempotency-replayed: *true", re.IGNORECASE).search


class Lost(Exception):
    """A request was sent, and nobody knows what became of it."""


@dataclass(slots=True)
class Door:
    """Where a server listens; nowhere while it is not there."""

    port: int | None = None


class Answer(NamedTuple):
    """What a server said."""

    status: int
    etag: str
    replayed: bool
    body: dict[str, Any]

    @property
    def code(self) -> str:
        """What kind of problem it is."""
        return str(self.body.get("code", ""))


class Calls(Protocol):
    """A way to call a server."""

    async def call(
        self,
        method: str,
        path: str,
        body: object | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and wait for its answer; raises `Lost` if none comes."""

    def close(self) -> None:
        """Hang up."""


class Line:
    """One connection after the other, each to the next server that can be reached."""

    def __init__(self, doors: list[Door], first: int, key: str) -> None:
        self._doors = doors
        self._at = first
        self._common = f"Host: {HOST}\r\nAuthorization: Bearer {key}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(
        self,
        method: str,
        path: str,
        body: object | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and wait for its answer; raises `Lost` if none comes."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._common}Content-Length: {len(content)}\r\n"
        if content:
            head += "Content-Type: application/json\r\n"
        given = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        reader, writer = await self._opened()
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(f"{head}{given}\r\n".encode() + content)
                return await _read(reader)
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise Lost from error

    def close(self) -> None:
        """Hang up; the next call is made to the next server."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
            self._at += 1

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(2 * PATIENCE_S):
            while self._streams is None:
                port = self._doors[self._at % len(self._doors)].port
                try:
                    # Nothing has been sent: whoever is not let in knows what became of it.
                    self._streams = await asyncio.open_connection(HOST, port or 1)
                except OSError:
                    self._at += 1
                    await asyncio.sleep(_AGAIN_S)
        return self._streams


async def _read(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(_HEAD_END)
    length, tag = _LENGTH(head), _ETAG(head)
    content = await reader.readexactly(int(length[1])) if length else b""
    return Answer(
        int(head[9:12]),
        tag[1].decode() if tag else "",
        replayed=_REPLAYED(head) is not None,
        body=json.loads(content) if content else {},
    )
