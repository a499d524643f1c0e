"""Sessions of browsers: whoever has shown their key in one need not show it again for a while.

What the browser keeps is a secret of its own, 256 random bits, and what is stored is its SHA-256.
The key is neither there nor here, and a session ends with it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg

from onward.store import queries
from onward.store.audit import Doer, note
from onward.store.belief import Belief
from onward.store.database import Connection, Pool, answering
from onward.store.keys import Keys, KnownKey, hashed

SQL = queries.load("sessions.sql")


class Session(NamedTuple):
    """A session that may be used now."""

    key: KnownKey
    expires_at: datetime


class Sessions:
    """The sessions of one database, for the tasks of one event loop.

    What was found is believed for a second, except by the process that ends it or revokes its key.
    """

    def __init__(
        self, pool: Pool, keys: Keys, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._known = Belief(self._ask, clock=clock)
        keys.forget_with(self._known.forget)

    async def find(self, secret: bytes) -> Session | None:
        """Return whose session this is, if it may be used."""
        return await self._known.of(hashed(secret))

    async def begin(
        self, key: bytes, *, lasts_s: float, request_id: str | None = None
    ) -> tuple[Session, str] | None:
        """Begin a session of whoever has this key; its secret is told here, and never again.

        `None` if the key is not known, or has been revoked.
        """
        secret = secrets.token_urlsafe(32)
        with answering():
            async with self._pool.acquire() as connection, connection.transaction():
                row = await connection.fetchrow(
                    SQL["begin"], hashed(secret.encode()), hashed(key), lasts_s
                )
                if row is None:
                    return None
                begun = _session(row)
                await _noted(connection, "log_in", begun.key, request_id)
        return begun, secret

    async def end(self, shown: Sequence[bytes], *, request_id: str | None = None) -> None:
        """End the sessions of these secrets, as far as there are any."""
        digests = [hashed(secret) for secret in shown]
        with answering():
            async with self._pool.acquire() as connection, connection.transaction():
                for row in await connection.fetch(SQL["end"], digests):
                    await _noted(connection, "log_out", KnownKey(*row), request_id)
        self._known.forget()

    async def _ask(self, digest: bytes) -> Session | None:
        with answering():
            row = await self._pool.fetchrow(SQL["find"], digest)
        return None if row is None else _session(row)


async def _noted(connection: Connection, deed: str, key: KnownKey, request_id: str | None) -> None:
    by, detail = Doer(key.person, request_id), {"name": key.name}
    await note(connection, by, kind="session", deed=deed, subject=key.id, detail=detail)


def _session(row: asyncpg.Record) -> Session:
    *key, expires_at = row
    return Session(KnownKey(*key), expires_at)
