"""Whether PostgreSQL can serve us, and has what this program has made there, as checks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from onward.errors import ServerProblem
from onward.fleet.doctor.check import Check, Found, Needs, Patient, Repair, broken, query
from onward.fleet.ready import STUCK_AFTER_S
from onward.settings import Settings
from onward.store import database, doctor, schema
from onward.store.guarded import GUARDED
from onward.store.timeline import MONTHLY

_LONG_S: Final = 60.0  # for a transaction
_SKEW_MAX_S: Final = 2.0
_DEAD_MAX: Final = 100_000  # rows of a small table that turns over quickly
_FULL: Final = 0.8  # of the connections
_LOCKS_SPARED: Final = 2  # times what the workers may hold at once


async def _postgresql(patient: Patient) -> Found:
    if patient.connected is None:
        return broken(patient.away)
    async with doctor.reading(patient.pool, limit_s=patient.limit_s) as connection:
        try:
            await database.check_server(connection, durable=False)
        except ServerProblem as error:
            return broken(str(error))
        version = connection.get_server_version()
    return Found(basis=f"PostgreSQL {version.major}.{version.minor}")


async def _durable(patient: Patient) -> Found:
    """Say whether a COMMIT means that it is safe; who has said that it need not be is warned."""
    async with doctor.reading(patient.pool, limit_s=patient.limit_s) as connection:
        try:
            await database.check_server(connection)
        except ServerProblem as error:
            return broken(str(error), warns=not patient.settings.require_durable)
    return Found()


async def _schema(patient: Patient) -> Found:
    async with doctor.reading(patient.pool, limit_s=patient.limit_s) as connection:
        present = await schema.revision(connection)
    if present == schema.HEAD:
        return Found(basis=f"revision {present}")
    return broken(f"the database is at {present or 'nothing'}, and this program at {schema.HEAD}")


async def _law(patient: Patient) -> Found:
    found = set(await _rows(patient, "law"))
    ours = set(schema.law())
    return broken(
        *(f"{_case(row)} is missing or otherwise" for row in sorted(ours - found)),
        *(f"{_case(row)} is no law of ours" for row in sorted(found - ours)),
    )


def _case(row: Sequence[object]) -> str:
    return "{}: {} in {} is {}".format(*row)


async def _functions(patient: Patient) -> Found:
    found: dict[str, str] = dict(await _rows(patient, "functions"))
    ours = schema.functions()
    breaches = [f"{name} is missing or otherwise" for name in ours if found.get(name) != ours[name]]
    async with doctor.reading(patient.pool, limit_s=patient.limit_s) as connection:
        if not await schema.is_signed(connection):
            breaches.append("what is derived was written by another version of Onward")
    return broken(*breaches)


async def _rows(patient: Patient, name: str, *given: object) -> list[tuple[Any, ...]]:
    found = await doctor.rows(patient.pool, name, *given, limit_s=patient.limit_s)
    return [tuple(row) for row in found]


def _guarded(_: Settings) -> Sequence[object]:
    return ([table.table for table in GUARDED],)


def _parts(_: Settings) -> Sequence[object]:
    tables, indexes = schema.made()
    return sorted(tables), sorted(indexes)


def _monthly(_: Settings) -> Sequence[object]:
    return (list(MONTHLY),)


async def _renew(patient: Patient) -> int:
    async with doctor.repairing(patient.pool, limit_s=patient.limit_s) as connection:
        await schema.renew(connection)
    return 0


async def _months(patient: Patient) -> int:
    async with doctor.repairing(patient.pool, limit_s=patient.limit_s) as connection:
        await schema.make_months(connection)
    return 0


async def _clock(patient: Patient) -> Found:
    """Compare the clocks, in the middle of the time that asking took."""
    async with doctor.reading(patient.pool, limit_s=patient.limit_s) as connection:
        before = datetime.now(UTC)
        theirs: datetime = await connection.fetchval("SELECT clock_timestamp()")
        after = datetime.now(UTC)
    skew_s = (theirs - (before + (after - before) / 2)).total_seconds()
    if abs(skew_s) > _SKEW_MAX_S + (after - before).total_seconds():
        return broken(f"the clock of the server is {skew_s:+.1f} s from that of this machine")
    return Found(basis=f"{skew_s:+.3f} s apart")


async def _connections(patient: Patient) -> Found:
    ((used, usable),) = await _rows(patient, "connections")
    if used > _FULL * usable or usable - used < patient.settings.pool_size:
        return broken(f"{used} of {usable} connections are taken")
    return Found(basis=f"{used} of {usable} are taken")


async def _locks(patient: Patient) -> Found:
    settings = patient.settings
    ((room, workers),) = await _rows(patient, "lock_room", settings.worker_lost_after_s)
    wanted = max(workers, 1) * settings.worker_capacity
    if room < _LOCKS_SPARED * wanted:
        return broken(
            f"there is room for {room:,} locks, and {max(workers, 1)} workers may hold {wanted:,}"
        )
    return Found(basis=f"room for {room:,}, of which the workers may hold {wanted:,}")


async def _workers(patient: Patient) -> Found:
    lost_after_s = patient.settings.worker_lost_after_s
    ((breathing, getting_on, waiting),) = await _rows(
        patient, "workers", lost_after_s, STUCK_AFTER_S
    )
    if not breathing:
        return broken(f"no worker breathes, and {waiting:,} executions wait")
    if not getting_on:
        return broken(f"{breathing} workers breathe, and none gets on")
    return Found(basis=f"{getting_on} of {breathing} get on")


_RENEWED: Final = Repair("write the law, the functions and the constraints anew", _renew)
_MADE: Final = Repair("make the months that are missing", _months)

SERVER: Final[Sequence[Check]] = (
    Check(
        "postgresql",
        "PostgreSQL answers, and is new enough.",
        _postgresql,
        "Check ONWARD_DATABASE_URL and that the server runs, or unset it for the embedded one.",
        needs=Needs.NOTHING,
        opens=Needs.SERVER,
    ),
    Check(
        "durable",
        "PostgreSQL keeps what it has confirmed.",
        _durable,
        "Switch on fsync, full_page_writes and synchronous_commit.",
        needs=Needs.SERVER,
    ),
    Check(
        "clock",
        "The clocks of this machine and of the server agree.",
        _clock,
        "Let both follow the same time server.",
        warns=True,
        needs=Needs.SERVER,
    ),
    Check(
        "connections",
        "There are connections to spare.",
        _connections,
        "Raise max_connections of PostgreSQL, or lower ONWARD_POOL_SIZE.",
        warns=True,
        needs=Needs.SERVER,
    ),
    Check(
        "long-transactions",
        "No transaction is open for longer than a minute.",
        query("long_transactions", lambda _: (_LONG_S,)),
        "Whoever follows the changes waits for it: end the program, or its transaction.",
        warns=True,
        needs=Needs.SERVER,
    ),
    Check(
        "schema",
        "The database has the schema of this program.",
        _schema,
        "Run `onward db upgrade`, or the program that it belongs to.",
        needs=Needs.SERVER,
        opens=Needs.SCHEMA,
    ),
    Check(
        "tables",
        "Every table and every index is there and whole.",
        query("missing_parts", _parts),
        "Restore it from a backup; an index can be made again from its revision.",
    ),
    Check(
        "law",
        "The law in the database is the law of this program.",
        _law,
        "Run `onward doctor --repair`, or the program that it belongs to.",
        repair=_RENEWED,
    ),
    Check(
        "functions",
        "The functions in the database are those of this program.",
        _functions,
        "Run `onward doctor --repair`, or the program that they belong to.",
        repair=_RENEWED,
    ),
    Check(
        "constraints",
        "The database itself refuses a status that there is not.",
        query("constraints", _guarded),
        "Run `onward doctor --repair`.",
        repair=_RENEWED,
    ),
    Check(
        "months",
        "This month and the next have their partitions.",
        query("missing_months", _monthly),
        "Start any program of Onward, or run `onward doctor --repair`.",
        warns=True,
        repair=_MADE,
    ),
    Check(
        "default-partitions",
        "Nothing was told in a month that has no partition.",
        query("caught"),
        "Run `onward doctor --repair`, which makes the month and moves it there.",
        warns=True,
        repair=_MADE,
    ),
    Check(
        "locks",
        "There is room for the locks of all hosts that the workers may hold.",
        _locks,
        "Raise max_locks_per_transaction of PostgreSQL.",
        warns=True,
    ),
    Check(
        "vacuum",
        "Autovacuum runs, and keeps up.",
        query("vacuum", lambda _: (_DEAD_MAX,)),
        "Switch it on; VACUUM the table, and end transactions that stay open.",
        warns=True,
    ),
    Check(
        "workers",
        "A worker breathes and gets on.",
        _workers,
        "Start one: `onward up`, or `onward worker`.",
        warns=True,
    ),
)
