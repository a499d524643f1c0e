"""A way to the database that can be cut and mended, at an address with a password in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_PIECE: Final = 64 * 1024


class Relay:
    """Hands on what a client and the server say to each other, until it is cut."""

    def __init__(self, url: str, password: str) -> None:
        parts = urlsplit(url)
        named = parse_qs(parts.query)
        self._host = parts.hostname or named["host"][0]
        self._port = parts.port or int(named.get("port", ["5432"])[0])
        self._login = f"{parts.username or 'postgres'}:{quote(password, safe='')}"
        self._database = parts.path.removeprefix("/")
        self._server: asyncio.Server | None = None
        self._listening_port = 0
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The database's address by this way."""
        where = f"127.0.0.1:{self._listening_port}"
        return f"postgresql://{self._login}@{where}/{self._database}?sslmode=disable"

    async def mend(self) -> None:
        """Hand on again, at the same address as before."""
        self._server = await asyncio.start_server(self._between, "127.0.0.1", self._listening_port)
        self._listening_port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break all connections, and let nobody through."""
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await self._reach()
        self._open |= {writer, back}
        with suppress(OSError):
            await asyncio.gather(_hand_on(reader, back), _hand_on(there, writer))

    async def _reach(self) -> Streams:
        if self._host.startswith("/"):
            path = f"{self._host}/.s.PGSQL.{self._port}"
            return await asyncio.open_unix_connection(path)
        return await asyncio.open_connection(self._host, self._port)


@asynccontextmanager
async def relayed(url: str, *, password: str) -> AsyncIterator[Relay]:
    """Give a way to a database that can be cut; it is cut in the end."""
    relay = Relay(url, password)
    await relay.mend()
    try:
        yield relay
    finally:
        await relay.cut()


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    writer.close()
