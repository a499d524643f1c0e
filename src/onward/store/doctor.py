"""Asks the database whether every invariant holds, and puts right what follows from the rest of it.

A question is one statement in a transaction that may only read, with a time after which it is given
up: nobody waits for it, and it never hangs. A repair is one transaction under the locks of the
normal path. It writes what can be derived, and no status: statuses are the guarded path's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal, NamedTuple

import asyncpg

from onward.store import queries
from onward.store.database import Connection, Pool, answering

SQL = queries.load("doctor.sql")

COUNTED_MAX: Final = 10_000  # breaches of one invariant; beyond that there are "more than"
_SHOWN: Final = 10
_BATCH: Final = 50_000  # executions that one repair locks
_BEFORE_ALL: Final = -(2**63)  # whatever number somebody made up
_LOCK: Final = 0x6F6E77646F63  # "onwdoc": the advisory lock of all repairs
# Whoever works is not held up for long: a lock that is not free soon is asked for another time.
_LOCK_WAIT_S: Final = 10

Place = Literal["queue", "runs", "failures"]


class Breaches(NamedTuple):
    """What speaks against an invariant."""

    number: int  # at most one more than COUNTED_MAX
    shown: Sequence[str]  # the first of them


@asynccontextmanager
async def reading(pool: Pool, *, limit_s: float) -> AsyncIterator[Connection]:
    """Give a connection that can only read, and whose statements are given up after a while."""
    with answering():
        async with pool.acquire() as connection, connection.transaction(readonly=True):
            await _limit(connection, "statement_timeout", limit_s)
            yield connection


@asynccontextmanager
async def repairing(pool: Pool, *, limit_s: float) -> AsyncIterator[Connection]:
    """Give the connection of a transaction in which nobody else repairs anything."""
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            await _limit(connection, "statement_timeout", limit_s)
            await _limit(connection, "lock_timeout", _LOCK_WAIT_S)
            await connection.execute(SQL["one_repair"], _LOCK)
            yield connection


async def _limit(connection: Connection, name: str, seconds: float) -> None:
    await connection.execute(f"SET LOCAL {name} = {int(seconds * 1_000)}")


async def breaches(pool: Pool, question: str, *given: object, limit_s: float) -> Breaches:
    """Ask a question of `doctor.sql`."""
    # Counted up to a bound: a question that finds everything wrong is answered in time as well.
    asked = f"""
        WITH found AS MATERIALIZED (
            SELECT breach FROM ({SQL[question]}) AS b LIMIT {COUNTED_MAX + 1}
        )
        SELECT count(*), (array_agg(breach))[:{_SHOWN}] FROM found"""  # noqa: S608 - our own text
    async with reading(pool, limit_s=limit_s) as connection:
        row = await connection.fetchrow(asked, *given)
    assert row is not None  # noqa: S101 - counting always answers with one row
    return Breaches(row[0], row[1] or ())


async def rows(
    pool: Pool, question: str, *given: object, limit_s: float
) -> Sequence[asyncpg.Record]:
    """Ask a question that is answered with figures."""
    async with reading(pool, limit_s=limit_s) as connection:
        return await connection.fetch(SQL[question], *given)


async def repair(pool: Pool, statement: str, *, limit_s: float) -> int:
    """Run one statement of `doctor.sql` that puts something right; returns how many rows."""
    written = SQL[statement].replace("{unplanned}", SQL["unplanned"])
    async with repairing(pool, limit_s=limit_s) as connection:
        told = await connection.execute(written)
    return int(told.rpartition(" ")[2])


async def repair_place(pool: Pool, place: Place, *, limit_s: float) -> int:
    """Make `queue`, `runs` or `failures` what the executions' statuses say; returns how many rows.

    In batches, in the order of the executions: what cannot be put right is not met again.
    """
    repaired, after = 0, _BEFORE_ALL
    while True:
        async with repairing(pool, limit_s=limit_s) as connection:
            wrong = await _wrong(connection, place, after)
            if not wrong:
                return repaired
            await connection.execute(SQL["lock_executions"], wrong)
            for step in (f"clear_{place}", f"fill_{place}"):
                told = await connection.execute(SQL[step], wrong)
                repaired += int(told.rpartition(" ")[2])
            after = wrong[-1]


async def _wrong(connection: Connection, place: Place, after: int) -> list[int]:
    found = await connection.fetch(
        f"SELECT id FROM (SELECT id FROM ({SQL[f'{place}_unknown']}) AS u "  # noqa: S608 - our text
        f"UNION SELECT id FROM ({SQL[f'{place}_missing']}) AS m) AS w "
        "WHERE id > $1 ORDER BY id LIMIT $2",
        after,
        _BATCH,
    )
    return [row["id"] for row in found]
