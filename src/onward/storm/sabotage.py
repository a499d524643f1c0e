"""Breaks one promise with SQL behind Onward's back, to show that the storm would notice."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from onward.store.database import Connection

# By the name of the finding that has to speak up; some are noticed by others as well.
PLANTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ended-once": """
            UPDATE commands SET status = CASE status WHEN 'DONE' THEN 'ERROR' ELSE 'DONE' END
             WHERE cmd_id = (SELECT cmd_id FROM commands LIMIT 1)
        """,
        "only-forward": """
            UPDATE timeline SET from_status = to_status, to_status = from_status
             WHERE seq = (SELECT seq FROM timeline
                           WHERE verdict = 'OK' AND from_status IS NOT NULL LIMIT 1)
        """,
        "replayable": """
            UPDATE timeline SET verdict = 'INVALID_STATE'
             WHERE seq = (SELECT seq FROM timeline WHERE verdict = 'TERMINAL' LIMIT 1)
        """,
        "nothing-lost": """
            DELETE FROM timeline
             WHERE seq = (SELECT seq FROM timeline
                           WHERE verdict = 'TERMINAL' AND source LIKE 'north.%' LIMIT 1)
        """,
        "adds-up": """
            INSERT INTO timeline (cmd_id, event, verdict, from_status, to_status, source)
            SELECT cmd_id, 'ack', 'TERMINAL', status, status, 'nobody' FROM commands LIMIT 1
        """,
        "always-watched": """
            UPDATE commands SET due_at = now()
             WHERE cmd_id = (SELECT cmd_id FROM commands LIMIT 1)
        """,
    }
)


async def plant(connection: Connection, name: str) -> None:
    """Break the promise of this name, on one command."""
    done = await connection.execute(PLANTS[name])
    assert done.endswith(" 1"), done  # noqa: S101 - a plant that touches nothing shows nothing
