"""Breaks one promise behind everybody's back, to show that the demo would notice.

Some are broken in the tables, with SQL, and some in the journal, with lines that no host wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from onward.channels.simulated import Effect, What
from onward.demo.evidence import Evidence
from onward.store.database import Connection

# By the name of the finding that has to speak up; some are noticed by others as well.
_TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nothing-lost": """
            DELETE FROM executions WHERE id = (SELECT max(id) FROM executions)
        """,
        "only-forward": """
            UPDATE execution_timeline SET from_status = to_status, to_status = from_status
             WHERE seq = (SELECT max(seq) FROM execution_timeline WHERE verdict = 'OK')
        """,
        "adds-up": """
            INSERT INTO job_counts (job_id, status, n)
            SELECT job_id, status, 1 FROM executions LIMIT 1
        """,
        "approved-first": """
            UPDATE jobs SET decided_at = now() WHERE decided_at IS NOT NULL
        """,
    }
)


def _forged_repeat(evidence: Evidence) -> Sequence[Effect]:
    """A host does once more what it has done."""
    done = next(effect for effect in evidence.effects if effect.succeeded)
    again = done._replace(epoch=done.epoch + 10**9)
    return again._replace(what=What.STARTED, succeeded=None, exit_code=None), again


def _forged_rival(evidence: Evidence) -> Sequence[Effect]:
    """A host runs a second command beside a first."""
    start = next(effect for effect in evidence.effects if effect.what is What.STARTED)
    first = start._replace(command_id="0", epoch=start.epoch + 10**9)
    return first, first._replace(command_id="00", epoch=first.epoch + 1)


def _forged_trespass(evidence: Evidence) -> Sequence[Effect]:
    """A host runs what is forbidden there."""
    each = next(
        each
        for each in evidence.executions.values()
        if (each.host_id, evidence.command_type(each.execution_id)) in evidence.blocks
    )
    command = str(each.execution_id)
    return (Effect(0, 0.0, each.host_id, command, 10**9, What.STARTED, exclusive=True),)


_JOURNAL: Final[Mapping[str, Callable[[Evidence], Sequence[Effect]]]] = MappingProxyType(
    {
        "nothing-doubled": _forged_repeat,
        "one-at-a-time": _forged_rival,
        "blocked": _forged_trespass,
    }
)
PLANTS: Final = (*_TABLES, *_JOURNAL)


async def plant(connection: Connection, evidence: Evidence, name: str) -> list[str]:
    """Break the promise of this name once; returns lines to be added to the journal."""
    if name in _TABLES:
        done = await connection.execute(_TABLES[name])
        assert done.endswith(" 1"), done  # noqa: S101 - a plant that touches nothing shows nothing
        return []
    forged = enumerate(_JOURNAL[name](evidence), len(evidence.effects) + 1)
    return [each._replace(sequence=number).line() for number, each in forged]
