"""Commands on their way to hosts that answer later: who is to hand them over, and what came of it.

Any number of processes may hand over; each takes what is due and nobody else has taken. Handing the
same command over twice is harmless: the host knows it by its id.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from onward.store import queries
from onward.store.database import Pool, answering

SQL = queries.load("sendings.sql")


class Sending(NamedTuple):
    """A command that is to be handed over now."""

    cmd_id: str
    lifecycle: str
    status: str
    epoch: int
    type: str
    params: Mapping[str, object]
    left_s: float  # until its time is up
    host_id: int
    host_name: str
    address: str
    key_generation: int
    doubt: bool  # whether somebody may have handed it over already


class Standing(NamedTuple):
    """How a command stands that nobody is to hand over any more."""

    unsent: bool  # for certain
    status: str


class Ended(NamedTuple):
    """A command that has come to its end."""

    status: str
    result_code: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    result: Any = None


async def take(
    pool: Pool, channel: str, *, limit: int, again_s: float, again_max_s: float
) -> list[Sending]:
    """Take what is due to be handed over, and put off when it is due again."""
    with answering():
        rows = await pool.fetch(SQL["take"], channel, limit, again_s, again_max_s)
    return [
        Sending(*row)._replace(cmd_id=str(row["cmd_id"]), params=json.loads(row["params"]))
        for row in rows
    ]


async def certain(pool: Pool, cmd_id: str, *, again_s: float) -> None:
    """Note that a command which was taken has not been handed over, and is to be soon."""
    with answering():
        await pool.execute(SQL["certain"], cmd_id, again_s)


async def abandon(pool: Pool, cmd_id: str) -> Standing | None:
    """See to it that nobody hands a command over any more; `None` if there is no such command."""
    with answering():
        row = await pool.fetchrow(SQL["abandon"], cmd_id)
    return None if row is None else Standing(*row)


async def ended(pool: Pool, cmd_ids: Collection[str]) -> dict[str, Ended]:
    """Return those of the commands that have come to their end."""
    with answering():
        rows = await pool.fetch(SQL["ended"], list(cmd_ids))
    return {str(row["cmd_id"]): _ended(row) for row in rows}


def _ended(row: asyncpg.Record) -> Ended:
    _, *told, result = row
    return Ended(*told)._replace(result=None if result is None else json.loads(result))


async def left_from(pool: Pool, cmd_id: str, status: str) -> str | None:
    """Return the status that a command had before it came to this one."""
    with answering():
        before: str | None = await pool.fetchval(SQL["left_from"], cmd_id, status)
    return before


async def generations(pool: Pool, names: Sequence[str], channel: str) -> dict[str, tuple[int, int]]:
    """Return the id and the generation of the key of the hosts of these names."""
    with answering():
        rows = await pool.fetch(SQL["generations"], list(names), channel)
    return {name: (host_id, generation) for name, host_id, generation in rows}


async def failed_before(pool: Pool, first_id: str, cmd_id: str) -> int | None:
    """Return the epoch of the last former attempt of which somebody said that it failed."""
    with answering():
        epoch: int | None = await pool.fetchval(SQL["failed_before"], first_id, cmd_id)
    return epoch
