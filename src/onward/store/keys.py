"""Who may call the API: keys in PostgreSQL, and signed messages that were taken.

A key is 256 random bits, shown once, when it is made. What is stored is its SHA-256: a slow hash
protects what people can guess, and nobody guesses one of 2^256; a fast one keeps requests cheap.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from onward.store import queries
from onward.store.audit import Doer, note
from onward.store.belief import Belief
from onward.store.database import Connection, Pool, answering

SQL = queries.load("keys.sql")

LOCK: Final = 0x6F6E776B657973  # "onwkeys": whoever changes admin keys takes turns


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
    forgets at once, and so does whoever wants to forget with it.
    """

    def __init__(self, pool: Pool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._known = Belief(self._ask, clock=clock)
        self._with_it: list[Callable[[], None]] = []

    def find(self, key: bytes) -> Awaitable[KnownKey | None]:
        """Return whose key this is, if it may be used."""
        # Handed on as it is: every request goes through here, some by the ten thousand a second.
        return self._known.of(hashed(key))

    async def make(self, name: str, *, person: str, role: str, by: Doer) -> tuple[Key, str]:
        """Make a key; it is told here, and never again."""
        with answering():
            async with self._pool.acquire() as connection, connection.transaction():
                return await make(connection, name, person=person, role=role, by=by)

    async def list(self, *, after: int, limit: int) -> list[Key]:
        """List keys in the order of their making, revoked ones too."""
        with answering():
            return [Key(*row) for row in await self._pool.fetch(SQL["list"], after, limit)]

    async def revoke(self, key_id: int, *, by: Doer) -> Revocation:
        """Revoke a key, unless it is the last one of an admin."""
        with answering():
            async with self._pool.acquire() as connection, connection.transaction():
                await lock(connection)
                found = await _revoke(connection, key_id, by)
        self.forget()
        return found

    def forget(self) -> None:
        """Believe nothing that was found before now."""
        self._known.forget()
        for forget in self._with_it:
            forget()

    def forget_with(self, forget: Callable[[], None]) -> None:
        """Let somebody else forget whenever these keys are forgotten."""
        self._with_it.append(forget)

    async def _ask(self, digest: bytes) -> KnownKey | None:
        with answering():
            row = await self._pool.fetchrow(SQL["find"], digest)
        return None if row is None else KnownKey(*row)


async def lock(connection: Connection) -> None:
    """Wait until nobody else changes admin keys; lasts until the transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)


async def make(
    connection: Connection, name: str, *, person: str, role: str, by: Doer
) -> tuple[Key, str]:
    """Make a key in a transaction of the caller's own."""
    key = new_key()
    row = await connection.fetchrow(SQL["make"], name, person, role, hashed(key.encode()), by.name)
    assert row is not None  # noqa: S101 - an INSERT without conditions returns its row
    made = Key(*row)
    await noted(connection, by, "make", made)
    return made, key


async def noted(connection: Connection, by: Doer, deed: str, key: Key) -> None:
    """Write down what is done with a key."""
    detail = {"name": key.name, "person": key.person, "role": key.role}
    await note(connection, by, kind="key", deed=deed, subject=key.id, detail=detail)


async def over(connection: Connection, by: Doer, key: Key) -> None:
    """Write down that a key was revoked, and end what was begun with it."""
    await connection.execute(SQL["end_sessions"], key.id)
    await noted(connection, by, "revoke", key)


async def _revoke(connection: Connection, key_id: int, by: Doer) -> Revocation:
    row = await connection.fetchrow(SQL["revoke"], key_id, by.name)
    if row is not None:
        await over(connection, by, Key(*row))
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
