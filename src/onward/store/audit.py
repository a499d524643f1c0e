"""Who did what: one row a deed, written in the deed's own transaction and never changed.

What people do with jobs is in the timeline of jobs already. Both are read as one list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, get_args

from onward.store import queries
from onward.store.database import Connection, Pool, answering

SQL = queries.load("audit.sql")

# Of what something was done with. Each is the kind of a subject: the id of a host, also for its
# blocks and its agent; the name of a command type; the id of a key, also for sessions; the number
# of an item; the id of a job. What is done with many at once has no subject.
Kind = Literal["job", "host", "block", "command_type", "key", "agent", "session", "item"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_VALUE_MAX: Final = 2_000  # characters of a value in a detail, as JSON
_ID = re.compile("[1-9][0-9]{0,17}").fullmatch
_LAST: Final = 2**63 - 1
# Where a deed is written down; of two at the same moment, the audit's counts as the later.
_JOBS: Final = 1
_AUDIT: Final = 2
_NOW: Final = datetime(9999, 12, 31, tzinfo=UTC)  # after every deed


class Doer(NamedTuple):
    """Who does something, and by which request; what a program does by itself has none."""

    name: str
    request_id: str | None = None


class Position(NamedTuple):
    """A place in the list, behind a deed."""

    at: datetime = _NOW
    source: int = _AUDIT
    seq: int = 0


class Deed(NamedTuple):
    """Something that somebody has done."""

    at: datetime
    source: int
    seq: int
    by: str
    deed: str
    kind: Kind
    subject: str
    detail: Mapping[str, object] | None
    request_id: str | None

    @property
    def position(self) -> Position:
        """Where the list goes on after it."""
        return Position(self.at, self.source, self.seq)


async def note(
    connection: Connection,
    by: Doer,
    *,
    kind: Kind,
    deed: str,
    subject: object = "",
    detail: Mapping[str, object] | None = None,
) -> None:
    """Write down what `by` does, in the transaction in which it is done.

    A secret must not be in the detail. What is long in it is left out: it is somewhere else.
    """
    told = None if detail is None else json.dumps({n: _short(v) for n, v in detail.items()})
    await connection.execute(SQL["note"], by.name, deed, kind, str(subject), told, by.request_id)


async def page(
    pool: Pool,
    *,
    after: Position | None = None,
    limit: int,
    by: str | None = None,
    kinds: Sequence[Kind] = (),
    subject: str | None = None,
) -> list[Deed]:
    """Return the next deeds behind a position, the newest first.

    What is filtered is asked for kind by kind, each out of an index of its own: a page costs the
    same wherever it is, and whatever else was done.
    """
    at, source, seq = after or Position()
    query, given = _asked(
        {
            "at": at,
            # At the same moment: what is older of the same source, and all of an earlier one.
            "job_seq": seq if source == _JOBS else _LAST * (source > _JOBS),
            "seq": seq if source == _AUDIT else 0,
            "limit": limit,
            "by": by,
            "subject": subject,
            "job_id": _job_id(subject),
        },
        kinds,
    )
    if query is None:
        return []
    with answering():
        rows = await pool.fetch(query, *given)
    return [Deed(*row)._replace(detail=_read(row["detail"])) for row in rows]


def _asked(values: Mapping[str, object], kinds: Sequence[Kind]) -> tuple[str | None, list[object]]:
    """Write the query, and say what its parameters are; none, if nothing can answer it."""
    filters = [name for name in ("by", "subject") if values[name] is not None]
    # Without a filter the audit need not be asked for one kind after the other.
    chosen: Sequence[Kind | None] = kinds or (KINDS if filters else ("job", None))
    parts = [_part(kind, filters) for kind in chosen if kind != "job" or _has_jobs(values)]
    if not parts:
        return None, []
    text = SQL["merged"].replace("{parts}", "\nUNION ALL\n".join(parts))
    return _numbered(text, values)


def _part(kind: Kind | None, filters: Sequence[str]) -> str:
    if kind == "job":
        named = {"by": "t.by = {by}", "subject": "t.job_id = {job_id}"}
        conditions = [named[name] for name in filters]
    else:
        conditions = [f"a.{name} = {{{name}}}" for name in filters]
        # A literal, out of our own list.
        conditions += [f"a.kind = '{kind}'"] * (kind is not None)
    form = SQL["of_jobs" if kind == "job" else "of_others"]
    return form.replace("{filter}", " AND ".join(["true", *conditions]))


def _numbered(text: str, values: Mapping[str, object]) -> tuple[str, list[object]]:
    """Give numbers to the parameters that a query names: PostgreSQL wants no others."""
    named = [name for name in values if f"{{{name}}}" in text]
    for number, name in enumerate(named, 1):
        text = text.replace(f"{{{name}}}", f"${number}")
    return text, [values[name] for name in named]


def _job_id(subject: str | None) -> int | None:
    """Return the id that a subject is, if it can be that of a job."""
    return int(subject) if subject is not None and _ID(subject) else None


def _has_jobs(values: Mapping[str, object]) -> bool:
    return values["subject"] is None or values["job_id"] is not None


def _short(value: object) -> object:
    plain = value.isoformat() if isinstance(value, datetime) else value
    return plain if len(json.dumps(plain)) <= _VALUE_MAX else "…"


def _read(detail: str | None) -> Mapping[str, object] | None:
    return None if detail is None else json.loads(detail)
