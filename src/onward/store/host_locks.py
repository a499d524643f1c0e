"""The first wall around a host: an advisory lock, held on one connection of the worker's own.

The key is the host's own id. A lock is shared for commands that may share the host. PostgreSQL lets
a session take a lock that it already holds, so what this worker holds is remembered here as well.

If the connection dies, its locks are gone until it is made again, while runs go on: then the
primary key of the runs is the second wall, and the epoch, which hosts check themselves, the third.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import asyncpg

from onward.store import database

_TAKE = """
SELECT h.id
  FROM unnest($1::bigint[], $2::boolean[]) AS h (id, shared)
 WHERE CASE WHEN h.shared THEN pg_try_advisory_lock_shared(h.id)
            ELSE pg_try_advisory_lock(h.id) END
"""
_FREE = """
SELECT count(*)
  FROM unnest($1::bigint[], $2::boolean[]) AS h (id, shared)
 WHERE CASE WHEN h.shared THEN pg_advisory_unlock_shared(h.id)
            ELSE pg_advisory_unlock(h.id) END
"""


class HostLocks:
    """The hosts that one worker holds."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._turn = asyncio.Lock()
        self._exclusive: set[int] = set()
        self._shared: Counter[int] = Counter()
        self._to_free: list[tuple[int, bool]] = []

    async def take(self, wanted: Sequence[tuple[int, bool]]) -> set[int]:
        """Take what is free of `wanted`, pairs of a host and whether it may be shared."""
        async with self._turn:
            connection = await self._connected()
            await self._free_now(connection)
            open_to_us = [
                (host, shared)
                for host, shared in wanted
                if host not in self._exclusive and (shared or not self._shared[host])
            ]
            if not open_to_us:
                return set()
            hosts, sharing = zip(*open_to_us, strict=True)
            taken = await self._taken(connection, hosts, sharing)
            for host, shared in open_to_us:
                if host in taken:
                    self._hold(host, shared=shared)
            return taken

    def free(self, hosts: Iterable[tuple[int, bool]]) -> None:
        """Give hosts back; they are freed with the next batch that is taken, or by `flush`."""
        for host, shared in hosts:
            if shared:
                self._shared[host] -= 1
            else:
                self._exclusive.discard(host)
            self._to_free.append((host, shared))

    async def flush(self) -> None:
        """Free now what was given back."""
        async with self._turn:
            if self._to_free:
                await self._free_now(await self._connected())

    async def close(self) -> None:
        """Close the connection, which frees everything."""
        async with self._turn:
            if self._connection is not None:
                await self._connection.close()

    async def _taken(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        hosts: Sequence[int],
        sharing: Sequence[bool],
    ) -> set[int]:
        try:
            with database.answering():
                return {row["id"] for row in await connection.fetch(_TAKE, hosts, sharing)}
        except BaseException:
            # Some may have been taken, and nobody knows which: they go with the connection, and
            # what was held before is taken again with the next one.
            connection.terminate()
            raise

    def _hold(self, host: int, *, shared: bool) -> None:
        if shared:
            self._shared[host] += 1
        else:
            self._exclusive.add(host)

    async def _connected(self) -> asyncpg.Connection[asyncpg.Record]:
        if self._connection is None or self._connection.is_closed():
            # Whatever was to be freed went with the connection that held it, and so did what is
            # still held: it is taken again, as far as nobody else has it now.
            self._to_free.clear()
            self._connection = await database.connect(self._url)
            await self._take_again(self._connection)
        return self._connection

    async def _take_again(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        held = [(host, False) for host in self._exclusive]
        held += [(host, True) for host in self._shared.elements()]
        if held:
            with database.answering():
                await connection.fetch(_TAKE, *zip(*held, strict=True))

    async def _free_now(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        if self._to_free:
            hosts, sharing = zip(*self._to_free, strict=True)
            self._to_free.clear()
            with database.answering():
                await connection.fetchval(_FREE, hosts, sharing)
