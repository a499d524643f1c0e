"""Agents in PostgreSQL: how they get their key, which are connected, and to which process.

Of a token only the digest is here, and of a key nothing but its number. A process that agents are
connected to beats; when it stops, they count as absent, whatever their rows say.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import asyncpg

from onward.store import queries
from onward.store.audit import Doer, note
from onward.store.database import Connection, Pool, answering

SQL = queries.load("agents.sql")


class Enrolled(NamedTuple):
    """A host, and which of its keys the agent that has enrolled is given."""

    host_id: int
    host: str
    generation: int


class Arrival(NamedTuple):
    """An agent that has shown that it has its host's key."""

    host_id: int
    generation: int
    version: str
    remote: str


class Place(NamedTuple):
    """The process that an agent is connected to, and how another one gets to it."""

    hub_id: int
    url: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Place(hub_id={self.hub_id}, url={self.url!r})"


class ShownAgent(NamedTuple):
    """An agent as it is listed."""

    host_id: int
    host: str
    connected: bool
    since: datetime
    version: str
    remote: str


class Seen(NamedTuple):
    """A host as it was when its agent was last told what is forbidden there."""

    host_id: int
    version: int
    generation: int
    session: int


class Rules(NamedTuple):
    """What is forbidden on a host, and the version of the host that this belongs to."""

    version: int
    rules: Sequence[tuple[str, str, str, float | None]]  # type, reason, owner, expiry


class Named(NamedTuple):
    """An attempt that the agent of a host speaks of."""

    host_id: int
    execution_id: int
    epoch: int


class Known(NamedTuple):
    """What there is to know about an attempt, if its execution is one of that host's."""

    execution_id: int
    attempt: int
    retries: int
    max_retries: int
    params: str  # JSON
    masked: Sequence[str]
    lines: int  # of its output that are stored already


async def make_token(
    pool: Pool, host_id: int, *, digest: bytes, ttl_s: float, by: Doer
) -> datetime | None:
    """Keep the digest of a token, in place of any former one; says when it ends.

    `None` if there is no such host.
    """
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            host = await connection.fetchrow(SQL["lock_host"], host_id)
            if host is None:
                return None
            await connection.execute(SQL["forget_tokens"], host_id)
            until: datetime = await connection.fetchval(
                SQL["make_token"], digest, host_id, by.name, ttl_s
            )
            await _noted(connection, by, "make_token", host, expires_at=until)
            return until


async def use_token(pool: Pool, digest: bytes, nonce: bytes, *, by: Doer) -> Enrolled | None:
    """Exchange a token for a new key of its host; with the same nonce, for the same one again.

    `None` if there is no such token, or it has ended, or somebody else has used it.
    """
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            host_id = await connection.fetchval(SQL["host_of_token"], digest)
            host = await connection.fetchrow(SQL["lock_host"], host_id)
            first = await connection.fetchval(SQL["use_token"], digest, nonce)
            if host is None or first is None:
                return None
            generation = host["key_generation"]
            if first:
                generation = await connection.fetchval(SQL["next_key"], host_id)
                await _noted(connection, by, "enrol", host)
            return Enrolled(host["id"], host["name"], generation)


async def take_key(
    pool: Pool, host_id: int, *, by: Doer, deed: Literal["take_key", "make_node_key"] = "take_key"
) -> int | None:
    """Make the key of a host worthless, and its token too; `None` if there is no such host.

    Returns the generation that the next key would not have: the one that nobody has been given.
    """
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            host = await connection.fetchrow(SQL["lock_host"], host_id)
            if host is None:
                return None
            await connection.execute(SQL["forget_tokens"], host_id)
            generation: int = await connection.fetchval(SQL["next_key"], host_id)
            await _noted(connection, by, deed, host)
            return generation


async def _noted(
    connection: Connection, by: Doer, deed: str, host: asyncpg.Record, **more: object
) -> None:
    detail = {"host": host["name"], **more}
    await note(connection, by, kind="agent", deed=deed, subject=host["id"], detail=detail)


async def generations(pool: Pool, host_ids: Sequence[int]) -> dict[int, int]:
    """Say which key of each host is the present one; nothing of hosts that are not there."""
    with answering():
        rows = await pool.fetch(SQL["generations"], host_ids)
    return {row["id"]: row["key_generation"] for row in rows}


async def connected(pool: Pool, arrivals: Sequence[Arrival], *, hub_id: int) -> dict[int, int]:
    """Write down who is connected to a process now; returns the sessions by host.

    Who is not in the answer has lost its key since. No host may occur twice.
    """
    columns = tuple(zip(*arrivals, strict=True)) or ((),) * len(Arrival._fields)
    with answering():
        rows = await pool.fetch(SQL["connected"], *columns, hub_id)
    return {row["host_id"]: row["session"] for row in rows}


async def left(pool: Pool, sessions: Sequence[tuple[int, int]]) -> None:
    """Write down that these sessions, as pairs of host and session, are over."""
    if sessions:
        with answering():
            await pool.execute(SQL["left"], *zip(*sessions, strict=True))


async def wake(pool: Pool, host_ids: Sequence[int]) -> None:
    """Make due at once what waits for these hosts to be connected."""
    if host_ids:
        with answering():
            await pool.execute(SQL["wake"], host_ids)


async def register_hub(pool: Pool, *, url: str, secret: bytes) -> int:
    """Give a process that agents connect to an identity that nobody had before."""
    with answering():
        await pool.execute(SQL["forget_hubs"])
        return int(await pool.fetchval(SQL["register_hub"], url, secret))


async def beat_hub(pool: Pool, place: Place, *, lost_after_s: float) -> bool:
    """Say that a process lives; true if it has been taken for dead meanwhile."""
    hub_id, url, secret = place
    with answering():
        return bool(await pool.fetchval(SQL["beat_hub"], hub_id, url, secret, lost_after_s))


async def leave_hub(pool: Pool, hub_id: int) -> None:
    """Say that a process is gone, and all who were connected to it."""
    with answering():
        await pool.execute(SQL["leave_hub"], hub_id)


async def places(pool: Pool, host_ids: Sequence[int], *, lost_after_s: float) -> dict[int, Place]:
    """Find the processes that the agents of these hosts are connected to."""
    with answering():
        rows = await pool.fetch(SQL["places"], host_ids, lost_after_s)
    return {row["host_id"]: Place(row["id"], row["url"], row["secret"]) for row in rows}


async def page(pool: Pool, *, after: int, limit: int, lost_after_s: float) -> list[ShownAgent]:
    """Return the next agents after a host, in the order of the hosts' ids."""
    with answering():
        rows = await pool.fetch(SQL["list"], after, limit, lost_after_s)
    return [ShownAgent(*row) for row in rows]


async def changed(pool: Pool, seen: Sequence[Seen]) -> list[Seen]:
    """Return the hosts that are no longer as they were seen, as they are now.

    The generation of a host that is gone is 0, which is no key's.
    """
    if not seen:
        return []
    with answering():
        rows = await pool.fetch(SQL["changed"], *zip(*seen, strict=True))
    return [Seen(*row) for row in rows]


async def sessions_of(pool: Pool, hub_id: int) -> set[tuple[int, int]]:
    """Return the sessions, as pairs of host and session, that are written down for a process."""
    with answering():
        return {(host_id, session) for host_id, session in await pool.fetch(SQL["of_hub"], hub_id)}


async def rules(pool: Pool, host_ids: Sequence[int]) -> dict[int, Rules]:
    """Return what is forbidden on hosts."""
    with answering():
        rows = await pool.fetch(SQL["rules"], host_ids)
    return {
        row["id"]: Rules(row["version"], [tuple(rule) for rule in json.loads(row["rules"])])
        for row in rows
    }


async def attempts(pool: Pool, named: Sequence[Named]) -> list[Known | None]:
    """Return what there is to know about attempts, each in its place."""
    with answering():
        rows = await pool.fetch(SQL["attempts"], *zip(*named, strict=True))
    known: list[Known | None] = [None] * len(named)
    for place, *found in rows:
        known[place - 1] = Known(*found)
    return known
