"""The timeline's months: made ahead of time, dropped whole when they are old."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from onward.store.database import Connection

_AHEAD: Final = 3  # months; a process that runs longer without anybody opening uses the default

Month = tuple[int, int]


async def keep_months(connection: Connection, kept: int, *, now: datetime | None = None) -> None:
    """Make the months to come, and drop those that ended more than `kept` months ago."""
    at = now or await connection.fetchval("SELECT now()")
    this = (at.year, at.month)
    existing = await _existing(connection)
    for month in (_later(this, n) for n in range(_AHEAD + 1)):
        if month not in existing:
            await _make(connection, month)
    oldest = _later(this, -kept)
    for month in existing:
        if month < oldest:
            await connection.execute(f"DROP TABLE onward.{_table(month)}")
    await connection.execute(
        f"DELETE FROM onward.timeline_default WHERE at < '{_first(oldest)}'"  # noqa: S608 - a date
    )


async def _existing(connection: Connection) -> list[Month]:
    names = await connection.fetch(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'onward.timeline'::regclass AND c.relname ~ '^timeline_[0-9]{6}$'"
    )
    return [(int(name[9:13]), int(name[13:15])) for (name,) in names]


async def _make(connection: Connection, month: Month) -> None:
    start, end = _first(month), _first(_later(month, 1))
    table = _table(month)
    # What the default partition has caught of this month moves first: it would forbid the attach.
    await connection.execute(
        f"""
        CREATE TABLE onward.{table} (LIKE onward.timeline INCLUDING ALL EXCLUDING IDENTITY);
        WITH caught AS (
            DELETE FROM onward.timeline_default
             WHERE at >= '{start}' AND at < '{end}' RETURNING *
        )
        INSERT INTO onward.{table} SELECT * FROM caught;
        ALTER TABLE onward.timeline
            ATTACH PARTITION onward.{table} FOR VALUES FROM ('{start}') TO ('{end}');
        """  # noqa: S608 - dates and a name made here, no caller's text in it
    )


def _table(month: Month) -> str:
    return f"timeline_{month[0]:04}{month[1]:02}"


def _later(month: Month, months: int) -> Month:
    years, index = divmod(month[0] * 12 + month[1] - 1 + months, 12)
    return years, index + 1


def _first(month: Month) -> str:
    return datetime(*month, 1, tzinfo=UTC).isoformat()
