"""Brings a database to the schema, the functions and the law of this program.

Two kinds of things live there. The *schema* grows by revisions (Alembic, raw SQL) and holds data.
What is *derived* from the program - the law, the functions, the constraint on status - is written
anew whenever the program's differs, so that it can never be forgotten in a revision.

Everything happens in one transaction under one advisory lock: ten processes may start at once, one
does the work and the others find it done.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
from importlib import resources
from typing import Final

import asyncpg

from onward.core.lifecycles import LIFECYCLES
from onward.errors import SchemaMismatch, ServerUnreachable
from onward.store import timeline
from onward.store.database import Connection
from onward.store.guarded import GUARDED
from onward.store.queries import read_sql, rendered

HEAD: Final = "0008"  # the newest revision; checked against the files by a test
_LOCK: Final = 0x6F6E77617264  # "onward": the advisory lock of all migrations

_PATIENCE_S: Final = 3  # in the way of everybody who comes after us
_PAUSE_S: Final = 1.0
_TRIES: Final = 30

_FUNCTIONS: Final = ("ledger_functions.sql", "market_functions.sql")

_FUNCTION: Final = re.compile(
    r"CREATE FUNCTION onward\.(\w+)\(.*?AS \$function\$(.*?)\$function\$", re.DOTALL
)

LawRow = tuple[str, str, str, str, str, str, bool, bool]


async def upgrade(connection: Connection, *, timeline_keep_months: int) -> None:
    """Bring the database up to date; cheap when it is.

    Whoever works meanwhile is not kept waiting behind a lock that we cannot have: we try again.
    """
    for left in reversed(range(_TRIES)):
        try:
            await _upgrade(connection, timeline_keep_months)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if not left:
                raise ServerUnreachable(
                    "PostgreSQL has given us no lock on our own tables for long: end the "
                    f"transactions that hold them, and start again ({error})."
                ) from error
            await asyncio.sleep(_PAUSE_S)
        else:
            return


async def _upgrade(connection: Connection, timeline_keep_months: int) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(f"SET LOCAL lock_timeout = {_PATIENCE_S * 1_000:.0f}")
        present = await revision(connection)
        if present != HEAD:
            await connection.execute(script(present))
        elif await connection.fetchval("SELECT digest FROM onward.derived") != _digest():
            await connection.execute(derived())
        await timeline.keep_months(connection, timeline_keep_months)


async def renew(connection: Connection) -> None:
    """Write anew what is derived from this program, whether or not the database says it has it."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(derived())


async def make_months(connection: Connection) -> None:
    """Make the months that are missing; none is dropped."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await timeline.make_missing(connection)


async def is_signed(connection: Connection) -> bool:
    """Say whether the database was last written by a program whose law and functions are ours."""
    return bool(await connection.fetchval("SELECT digest FROM onward.derived") == _digest())


async def revision(connection: Connection) -> str | None:
    """Say which revision the database is at; `None` for one that has never seen Onward."""
    if await connection.fetchval("SELECT to_regclass('onward.schema_revision')") is None:
        return None
    found: str | None = await connection.fetchval("SELECT version_num FROM onward.schema_revision")
    return found


def script(present: str | None) -> str:
    """Render the SQL that leads from a revision to the newest one, and to this program's law."""
    # Loaded only when there is something to migrate: it is slow to import.
    from alembic import command, util  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config(output_buffer=(rendered := io.StringIO()))
    config.set_main_option("script_location", "onward.store:migrations")
    config.set_main_option("path_separator", "os")
    try:
        command.upgrade(config, f"{present}:head" if present else "head", sql=True)
    except util.CommandError as error:
        raise SchemaMismatch(
            f"The database is at revision {present}, which this version of Onward (at {HEAD}) "
            "does not know: upgrade this program."
        ) from error
    return f"CREATE SCHEMA IF NOT EXISTS onward;\n{rendered.getvalue()}\n{derived()}"


def law() -> list[LawRow]:
    """Return the law as rows: what every event means in every status of every lifecycle."""
    return [
        (
            table.name,
            event,
            str(status),
            decision.result.value,
            str(decision.target),
            table.timer(decision.target).value,
            table.moves[event].draws_epoch,
            table.keeps_late(status, event),
        )
        for table in LIFECYCLES.values()
        for (status, event), decision in table.table.items()
    ]


def functions() -> dict[str, str]:
    """Return the body of every function that this program makes, by its name."""
    return dict(_FUNCTION.findall(_unsigned()))


def made() -> tuple[set[str], set[str]]:
    """Return the tables and the indexes that all revisions together have made and not dropped."""
    # Found without importing them: that would load Alembic.
    revisions = resources.files(__package__).joinpath("migrations", "versions").iterdir()
    text = "\n".join(file.read_text("utf-8") for file in revisions if file.name.endswith(".sql"))
    return _left(text, "TABLE"), _left(text, "INDEX")


def _left(text: str, kind: str) -> set[str]:
    made = re.findall(rf"^CREATE (?:UNIQUE )?{kind} (?:onward\.)?(\w+)", text, re.MULTILINE)
    dropped = re.findall(rf"^DROP {kind} (?:onward\.)?(\w+)", text, re.MULTILINE)
    return set(made) - set(dropped)


def derived() -> str:
    """Render the SQL that writes anew what is derived from this program, and signs it."""
    return f"""{_unsigned()}
INSERT INTO onward.derived (digest) VALUES ('{_digest()}')
    ON CONFLICT (one) DO UPDATE SET digest = excluded.digest;
"""  # noqa: S608 - rendered from the law, no caller's text in it


def _digest() -> str:
    return hashlib.sha256(_unsigned().encode()).hexdigest()


def _unsigned() -> str:
    functions = "\n".join(table.sql() for table in GUARDED)
    # What calls them is made after them.
    functions += "".join(rendered(read_sql(name)) for name in _FUNCTIONS)
    constraints = "\n".join(table.constraint() for table in GUARDED)
    rows = ",\n".join(f"    ({', '.join(map(_literal, row))})" for row in law())
    return f"""{functions}
{constraints}
TRUNCATE onward.law;
INSERT INTO onward.law VALUES
{rows};
-- The planner must know how small the law is before the first batch, not after.
ANALYZE onward.law;
"""  # noqa: S608 - as above


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"'{value}'"
