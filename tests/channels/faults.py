"""A way that breaks on command: a TCP proxy on loopback that cuts, freezes, strands and refuses.

    async with faulty(port) as proxy:
        connect_to("127.0.0.1", proxy.port)
        proxy.cut_after(17)   # 17 more bytes pass, then the connection is reset in mid-message
        proxy.freeze()        # nothing passes any more, and nobody is told: a half-open connection
        proxy.strand()        # the same for those that are there; new connections pass
        proxy.reset()         # those that are there are reset; new connections pass
        await proxy.refuse()  # those that are there are reset; new connections are refused
        await proxy.restore() # everything passes again; what was frozen flows on, unless stranded

A reset is a real one (RST), to both sides. Bytes are counted as they leave the proxy.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset instead of a farewell
_PIECE = 65_536


class Way(Enum):
    """Which of the two directions."""

    UP = "from the client to the server"
    DOWN = "from the server to the client"


class Proxy:
    """Carries bytes between whoever connects and the server behind it, until it is told not to."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0  # where clients connect to, the same for the life of the proxy
        self.passed = dict.fromkeys(Way, 0)  # bytes, of all connections
        self.accepted = 0  # connections so far
        self._server = (host, port)
        self._listener: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._left: int | None = None  # bytes until the cut
        self._cut_way: Way | None = None
        self.was_cut = asyncio.Event()

    @property
    def connections(self) -> int:
        """How many are there now."""
        return len(self._pairs)

    def cut_after(self, n_bytes: int, way: Way | None = None) -> None:
        """Let so many more bytes pass, that way or both ways, then reset every connection."""
        self.was_cut.clear()
        self._left, self._cut_way = n_bytes, way

    def freeze(self) -> None:
        """Let nothing pass from now on, and say so to nobody."""
        self._flows.clear()

    def strand(self) -> None:
        """Let nothing pass ever again on the connections that are there now."""
        for pair in self._pairs:
            pair.strand()

    def reset(self) -> None:
        """Reset the connections that are there now."""
        for pair in [*self._pairs]:
            pair.reset()

    async def refuse(self) -> None:
        """Reset what is there, and refuse what comes."""
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()
            self._listener = None
        self.reset()

    async def restore(self) -> None:
        """Let everything pass again, at the same port."""
        self._left = None
        self._flows.set()
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
            self.port = self._listener.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Reset everything and be gone."""
        await self.refuse()
        await asyncio.gather(*(pair.ended for pair in self._pairs), return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            server = await asyncio.open_connection(*self._server)
        except OSError:
            _reset(writer)
            return
        pair = _Pair(self, (reader, writer), server)
        self._pairs.add(pair)
        try:
            await pair.carry()
        finally:
            self._pairs.discard(pair)

    def allowed(self, data: bytes, way: Way) -> bytes:
        """As much of the data as may pass before the cut."""
        if self._left is None or self._cut_way not in {None, way}:
            return data
        data = data[: self._left]
        self._left -= len(data)
        return data

    @property
    def is_cut(self) -> bool:
        """Whether the bytes until the cut are used up."""
        return self._left == 0

    async def may_flow(self) -> None:
        """Wait until nothing is frozen."""
        await self._flows.wait()

    def cut(self) -> None:
        """Reset everything, once; new connections pass."""
        self._left = None
        self.reset()
        self.was_cut.set()


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Pair:
    """One connection: the client's end and the server's."""

    def __init__(self, proxy: Proxy, client: Ends, server: Ends) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._moves = asyncio.Event()
        self._moves.set()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Future[tuple[None, None]] | None = None

    async def carry(self) -> None:
        self._task = asyncio.gather(
            self._flow(self._client[0], self._server[1], Way.UP),
            self._flow(self._server[0], self._client[1], Way.DOWN),
        )
        try:
            await self._task
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            _reset(self._client[1])
            _reset(self._server[1])
            self.ended.set_result(None)

    def strand(self) -> None:
        self._moves.clear()

    def reset(self) -> None:
        _reset(self._client[1])
        _reset(self._server[1])
        if self._task is not None:
            self._task.cancel()

    async def _flow(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        try:
            while data := await reader.read(_PIECE):
                await self._may_pass()
                data = self._proxy.allowed(data, way)
                writer.write(data)
                self._proxy.passed[way] += len(data)
                await writer.drain()
                if self._proxy.is_cut:
                    self._proxy.cut()
        except OSError:
            # Also that one side has hung up is not told to the other. Whoever is cancelled does
            # not wait for that: the proxy itself is leaving, or has reset both.
            await self._may_pass()
            raise
        await self._may_pass()
        if writer.can_write_eof():
            writer.write_eof()

    async def _may_pass(self) -> None:
        await self._moves.wait()
        await self._proxy.may_flow()


def _reset(writer: asyncio.StreamWriter) -> None:
    found: socket.socket | None = writer.get_extra_info("socket")
    if found is not None and found.fileno() >= 0:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()


@asynccontextmanager
async def faulty(port: int, host: str = "127.0.0.1") -> AsyncIterator[Proxy]:
    """A proxy in front of a server on this port."""
    proxy = Proxy(host, port)
    await proxy.restore()
    try:
        yield proxy
    finally:
        await proxy.aclose()
