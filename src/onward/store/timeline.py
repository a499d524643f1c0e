"""The months of what only grows: made ahead of time, dropped whole when they are old."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from onward.store.database import Connection

# The tables that are partitioned by month.
MONTHLY: Final = (
    "timeline",
    "job_timeline",
    "execution_timeline",
    "execution_logs",
    "order_timeline",
    "audit",
)
_AHEAD: Final = 3  # months; a process that runs longer without anybody opening uses the default

Month = tuple[int, int]


async def keep_months(connection: Connection, kept: int, *, now: datetime | None = None) -> None:
    """Make the months to come, and drop those that ended more than `kept` months ago."""
    at = now or await connection.fetchval("SELECT now()")
    this = (at.year, at.month)
    oldest = _later(this, -kept)
    for table in MONTHLY:
        existing = await _existing(connection, table)
        for month in (_later(this, n) for n in range(_AHEAD + 1)):
            if month not in existing:
                await _make(connection, table, month)
        for month in existing:
            if month < oldest:
                await connection.execute(f"DROP TABLE onward.{_part(table, month)}")
        await connection.execute(
            f"DELETE FROM onward.{table}_default WHERE at < '{_first(oldest)}'"  # noqa: S608 - ours
        )


async def make_missing(connection: Connection) -> None:
    """Make the months to come, and those of which the default partitions have caught something."""
    at: datetime = await connection.fetchval("SELECT now()")
    for table in MONTHLY:
        existing = await _existing(connection, table)
        ahead = {_later((at.year, at.month), n) for n in range(_AHEAD + 1)}
        for month in sorted((ahead | await _caught(connection, table)) - set(existing)):
            await _make(connection, table, month)


async def _caught(connection: Connection, table: str) -> set[Month]:
    rows = await connection.fetch(
        "SELECT DISTINCT extract(year FROM at)::integer, "  # noqa: S608 - a name of ours
        f"extract(month FROM at)::integer FROM onward.{table}_default"
    )
    return {(year, month) for year, month in rows}


async def _existing(connection: Connection, table: str) -> list[Month]:
    names = await connection.fetch(
        "SELECT right(c.relname, 6) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = to_regclass('onward.' || $1) AND c.relname ~ '_[0-9]{6}$'",
        table,
    )
    return [(int(name[:4]), int(name[4:])) for (name,) in names]


async def _make(connection: Connection, table: str, month: Month) -> None:
    start, end = _first(month), _first(_later(month, 1))
    part = _part(table, month)
    # What the default partition has caught of this month moves first: it would forbid the attach.
    await connection.execute(
        f"""
        CREATE TABLE onward.{part} (LIKE onward.{table} INCLUDING ALL EXCLUDING IDENTITY);
        WITH caught AS (
            DELETE FROM onward.{table}_default
             WHERE at >= '{start}' AND at < '{end}' RETURNING *
        )
        INSERT INTO onward.{part} SELECT * FROM caught;
        ALTER TABLE onward.{table}
            ATTACH PARTITION onward.{part} FOR VALUES FROM ('{start}') TO ('{end}');
        """  # noqa: S608 - dates and names made here, no caller's text in it
    )


def _part(table: str, month: Month) -> str:
    return f"{table}_{month[0]:04}{month[1]:02}"


def _later(month: Month, months: int) -> Month:
    years, index = divmod(month[0] * 12 + month[1] - 1 + months, 12)
    return years, index + 1


def _first(month: Month) -> str:
    return datetime(*month, 1, tzinfo=UTC).isoformat()
