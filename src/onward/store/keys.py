"""Who may call the API: keys in PostgreSQL, and signed messages that were taken.

A key is 256 random bits, shown once, when it is made. What is stored is its SHA-256: a slow hash
protects what people can guess, and nobody guesses one of 2^256; a fast one keeps requests cheap.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from onward.store import queries
from onward.store.database import Connection, Pool, answering

SQL = queries.load("keys.sql")

LOCK: Final = 0x6F6E776B657973  # "onwkeys": whoever changes admin keys takes turns
_FRESH_S: Final = 1.0  # how long a revocation elsewhere may go unnoticed here
_KNOWN_MAX: Final = 10_000


class KnownKey(NamedTuple):
    """A key that may be used now."""

    id: int
    name: str
    person: str
    role: str


class Key(NamedTuple):
    """A key as it is shown: never the key itself, nor its hash."""

    id: int
    name: str
    person: str
    role: str
    created_at: datetime
    created_by: str
    revoked_at: datetime | None
    revoked_by: str | None


class Revocation(StrEnum):
    """What became of a key that was to be revoked."""

    REVOKED = "revoked"
    REVOKED_BEFORE = "revoked before"
    UNKNOWN = "unknown"
    LAST_ADMIN = "last admin"


def new_key() -> str:
    """Make a key that nobody has."""
    return f"onw_{secrets.token_urlsafe(32)}"


def hashed(key: bytes) -> bytes:
    """Return what is stored of a key."""
    return hashlib.sha256(key).digest()


class Keys:
    """The keys of one database, for the tasks of one event loop.

    What was found is believed for a second, except by the process that revokes it: that one
    forgets at once. What was not found is not remembered, so that nobody can fill the memory.
    """

    def __init__(self, pool: Pool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._known: dict[bytes, tuple[float, KnownKey]] = {}
        self._asking: dict[bytes, asyncio.Task[KnownKey | None]] = {}

    async def find(self, key: bytes) -> KnownKey | None:
        """Return whose key this is, if it may be used."""
        digest = hashed(key)
        known = self._known.get(digest)
        if known is not None and self._clock() < known[0]:
            return known[1]
        # Everybody who uses one key at once asks the database once. A caller who leaves does not
        # take the question away from the others.
        asking = self._asking.get(digest)
        if asking is None:
            asking = asyncio.create_task(self._ask(digest))
            self._asking[digest] = asking
        return await asyncio.shield(asking)

    async def make(self, name: str, *, person: str, role: str, by: str) -> tuple[Key, str]:
        """Make a key; it is told here, and never again."""
        key = new_key()
        with answering():
            row = await self._pool.fetchrow(
                SQL["make"], name, person, role, hashed(key.encode()), by
            )
        assert row is not None  # noqa: S101 - an INSERT without conditions returns its row
        return Key(*row), key

    async def list(self, *, after: int, limit: int) -> list[Key]:
        """List keys in the order of their making, revoked ones too."""
        with answering():
            return [Key(*row) for row in await self._pool.fetch(SQL["list"], after, limit)]

    async def revoke(self, key_id: int, *, by: str) -> Revocation:
        """Revoke a key, unless it is the last one of an admin."""
        with answering():
            async with self._pool.acquire() as connection, connection.transaction():
                await lock(connection)
                found = await _revoke(connection, key_id, by)
        self.forget()
        return found

    def forget(self) -> None:
        """Believe nothing that was found before now."""
        self._known.clear()
        # A question that was asked before may be answered with what was true before.
        self._asking.clear()

    async def _ask(self, digest: bytes) -> KnownKey | None:
        # Fresh from when it was asked, not from when the answer came.
        until = self._clock() + _FRESH_S
        this = asyncio.current_task()
        try:
            with answering():
                row = await self._pool.fetchrow(SQL["find"], digest)
            if row is None:
                self._known.pop(digest, None)
                return None
            found = KnownKey(*row)
            if self._asking.get(digest) is this:
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                self._known[digest] = (until, found)
            return found
        finally:
            if self._asking.get(digest) is this:
                del self._asking[digest]


async def lock(connection: Connection) -> None:
    """Wait until nobody else changes admin keys; lasts until the transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)


async def _revoke(connection: Connection, key_id: int, by: str) -> Revocation:
    if await connection.fetchval(SQL["revoke"], key_id, by) is not None:
        return Revocation.REVOKED
    match await connection.fetchval(SQL["revoked"], key_id):
        case None:
            return Revocation.UNKNOWN
        case True:
            return Revocation.REVOKED_BEFORE
        case _:
            return Revocation.LAST_ADMIN


async def take_message(pool: Pool, message_id: str, sent_at: datetime) -> bool:
    """Take a signed message; false if this very message was taken before."""
    with answering():
        return bool(await pool.fetchval(SQL["take_message"], message_id, sent_at))


async def forget_messages(pool: Pool, *, before: datetime) -> None:
    """Forget messages that are too old to be sent again."""
    with answering():
        await pool.execute(SQL["forget_messages"], before)
