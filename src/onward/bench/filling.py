"""Commands to measure with: made by the server itself, millions in a minute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onward.errors import InvariantBroken
from onward.store.database import Connection, check_server

_CHUNK: Final = 250_000

# Ids that grow with time, as those of `new_command_id` do; the number in them is the command's.
ID_SQL: Final = "(lpad(to_hex({n}), 12, '0') || '70008000000000000000')::uuid"

_INSERT: Final = f"""
INSERT INTO commands (cmd_id, lifecycle, status, node, type, timeout_s, deadline_at)
SELECT {ID_SQL.format(n="n")}, 'node', 'QUEUED', 'node-' || n % 1000, 'bench', 86400,
       now() + interval '1 day' + n * interval '1 microsecond'
  FROM generate_series($1::bigint, $2::bigint) AS n
"""  # noqa: S608 - made of the constant above


def command_id(number: int) -> str:
    """Return the id of the command of this number, which `ID_SQL` makes as well."""
    digits = f"{number:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


async def fill(
    connection: Connection, commands: int, progress: Callable[[str], None] | None = None
) -> None:
    """Empty the tables and make commands number 0 and up, each QUEUED; then tidy up."""
    await check_server(connection)
    await connection.execute("TRUNCATE commands, timeline")
    for first in range(0, commands, _CHUNK):
        last = min(first + _CHUNK, commands)
        await connection.execute(_INSERT, first, last - 1)
        if progress:
            progress(f"loaded {last:,} of {commands:,} commands")
    await connection.execute("VACUUM (ANALYZE) commands")
    await connection.execute("CHECKPOINT")


async def verify_moved(connection: Connection, count: int, *, to: str) -> None:
    """Make sure that a measurement did what it claims: moved so many, and told so many moves."""
    moved = await connection.fetchval("SELECT count(*) FROM commands WHERE status = $1", to)
    told = await connection.fetchval(
        "SELECT count(*) FROM timeline WHERE verdict = 'OK' AND to_status = $1", to
    )
    if (moved, told) != (count, count):
        raise InvariantBroken(f"{moved:,} moved and {told:,} told, instead of {count:,} each")
