"""Asks the database whether the promises were kept.

Nothing is taken from the senders but the answers that they were given: everything else is read from
`commands` and `timeline`, by SQL of its own, and judged by the core alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from onward.core.lifecycles import NODE
from onward.core.verdicts import TransitionResult
from onward.findings import Finding
from onward.store.database import Connection
from onward.storm.plan import COPIES, Plan

TERMINAL: Final = sorted(NODE.terminal)
_CREATED: Final = ""  # the source of what the conductor made
_DEADLINE: Final = "deadline"  # the source of what timed out by itself

UNWATCHED: Final = """
SELECT count(*) FROM commands
 WHERE status <> ALL ($1::text[]) AND deadline_at IS NULL AND due_at IS NULL
"""

_NOT_ENDED_ONCE: Final = """
SELECT c.cmd_id, c.status, count(t.seq) AS ends
  FROM commands c
  LEFT JOIN timeline t
    ON t.cmd_id = c.cmd_id AND t.verdict = 'OK' AND t.to_status = ANY ($1::text[])
 GROUP BY c.cmd_id
HAVING count(t.seq) <> 1 OR c.status <> ALL ($1::text[]) OR min(t.to_status) <> c.status
"""

_STILL_OPEN: Final = """
SELECT cmd_id, status FROM commands
 WHERE status <> ALL ($1::text[])
    OR finished_at IS NULL OR deadline_at IS NOT NULL OR due_at IS NOT NULL
"""

_TIMELINE: Final = """
SELECT cmd_id::text, event, verdict, from_status, to_status, source
  FROM timeline
 ORDER BY cmd_id, seq
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the storm knows besides the database."""

    plan: Plan
    confirmed: Mapping[str, str]  # source of a saying -> the verdict that its sender was told
    killed: str  # how the sources of the killed sender's first life begin
    timed_out: int  # moves that the sweeps were told of
    looks: int  # how often the live commands were looked at, and
    unwatched: int  # how many of them were ever seen without a clock


class _Row(NamedTuple):
    cmd_id: str
    event: str
    verdict: str
    from_status: str | None
    to_status: str | None
    source: str


async def check(connection: Connection, evidence: Evidence) -> list[Finding]:
    """Put every promise to the database; nobody else may be writing by now."""
    rows = [_Row(*row) for row in await connection.fetch(_TIMELINE)]
    return [
        await _ended_once(connection, evidence),
        _only_forward(rows),
        _replays(rows),
        _nothing_lost(rows, evidence),
        _adds_up(rows, evidence),
        await _always_watched(connection, evidence),
    ]


async def _ended_once(connection: Connection, evidence: Evidence) -> Finding:
    breaches = [
        f"{cmd_id} is {status} and ended {ends} times"
        for cmd_id, status, ends in await connection.fetch(_NOT_ENDED_ONCE, TERMINAL)
    ]
    count = await connection.fetchval("SELECT count(*) FROM commands")
    if count != len(evidence.plan.commands):
        breaches.append(f"there are {count:,} commands instead of {len(evidence.plan.commands):,}")
    return Finding(
        "ended-once",
        "Every command ended exactly once.",
        f"{count:,} commands, one move into a terminal status each",
        tuple(breaches),
    )


def _only_forward(rows: list[_Row]) -> Finding:
    moved = [row for row in rows if row.verdict == TransitionResult.OK]
    return Finding(
        "only-forward",
        "No status ever went backwards.",
        f"{len(moved):,} moves, each legal and from where the one before it led",
        tuple(breach for _, path in _by_command(moved) for breach in _illegal_steps(path)),
    )


def _illegal_steps(path: Iterable[_Row]) -> Iterator[str]:
    status = None
    for row in path:
        way = NODE.moves.get(row.event)
        legal = (
            row.event == "create" and row.to_status == NODE.initial
            if status is None
            else way is not None and status in way.sources and row.to_status == way.target
        )
        if not legal or row.from_status != status:
            yield (
                f"{row.cmd_id}: {row.event} moved it from {row.from_status} to {row.to_status} "
                f"when it was {status}"
            )
        status = row.to_status


def _replays(rows: list[_Row]) -> Finding:
    return Finding(
        "replayable",
        "The timeline explains every verdict.",
        f"{len(rows):,} events replayed through the core, each with the verdict it was given",
        tuple(breach for _, said in _by_command(rows) for breach in _differences(said)),
    )


def _differences(said: Iterable[_Row]) -> Iterator[str]:
    status = None
    for row in said:
        if status is None:
            expected = (TransitionResult.OK.value, NODE.initial)
        else:
            decision = NODE.decide(status, row.event)
            expected = (decision.result.value, decision.target)
        if (row.verdict, row.to_status) != expected or row.from_status != status:
            yield (
                f"{row.cmd_id}: {row.event} in {status} is {expected[0]} by the core, "
                f"but {row.verdict} from {row.from_status} to {row.to_status} in the timeline"
            )
        status = expected[1]


def _nothing_lost(rows: list[_Row], evidence: Evidence) -> Finding:
    told = {row.source: (row.cmd_id, row.event) for row in rows}
    said = Counter((row.cmd_id, row.event) for row in rows)
    sayings = {saying.number: saying for saying in evidence.plan.sayings}
    breaches = []
    for source in evidence.confirmed:
        saying = sayings[int(source.rpartition("/")[2])]
        if told.get(source) != (saying.cmd_id, saying.event):
            breaches.append(
                f"{saying.cmd_id}: {saying.event} was confirmed to {source} and is gone"
            )
    breaches += [
        f"{command.cmd_id}: {event} was said {said[command.cmd_id, event]} times"
        for command in evidence.plan.commands
        for event in command.story.events
        if said[command.cmd_id, event] < COPIES
    ]
    return Finding(
        "nothing-lost",
        "No confirmed event was lost.",
        f"{len(evidence.confirmed):,} confirmations found in the timeline, "
        "every event of every command at least twice",
        tuple(breaches),
    )


def _adds_up(rows: list[_Row], evidence: Evidence) -> Finding:
    """Account for every row of the timeline.

    A row is a creation, a deadline's, or names the saying that it answers. A saying that was
    confirmed has one row, with the verdict that its sender was told. A row that was confirmed to
    nobody can only be one that the killed sender did not live to hear of.
    """
    breaches, unheard = [], 0
    seen: Counter[str] = Counter()
    for row in rows:
        seen[row.source] += 1
        if row.source in {_CREATED, _DEADLINE}:
            continue
        told = evidence.confirmed.get(row.source)
        unheard += told is None
        if told not in {None, row.verdict}:
            breaches.append(f"{row.source} was told {told}, the timeline says {row.verdict}")
        if told is None and not row.source.startswith(evidence.killed):
            breaches.append(f"{row.cmd_id}: {row.event} by {row.source!r} was confirmed to nobody")
        if seen[row.source] > 1:
            breaches.append(f"{row.source} has {seen[row.source]} rows")
    for source, answered in (
        (_CREATED, len(evidence.plan.commands)),
        (_DEADLINE, evidence.timed_out),
    ):
        if seen[source] != answered:
            what = source or "create"
            breaches.append(f"{what}: {answered:,} answers, {seen[source]:,} rows")
    return Finding(
        "adds-up",
        "Answers and timeline agree.",
        f"{len(rows):,} rows = {seen[_CREATED]:,} created + {len(evidence.confirmed):,} confirmed "
        f"+ {seen[_DEADLINE]:,} by deadline + {unheard:,} that the killed sender never heard of",
        tuple(breaches),
    )


async def _always_watched(connection: Connection, evidence: Evidence) -> Finding:
    breaches = [
        f"{cmd_id} is left {status}"
        for cmd_id, status in await connection.fetch(_STILL_OPEN, TERMINAL)
    ]
    if evidence.unwatched:
        breaches.append(f"a clock was missing {evidence.unwatched:,} times")
    return Finding(
        "always-watched",
        "Nothing was open without a clock, and nothing is open now.",
        f"{evidence.looks:,} looks at the live commands during the storm, and one at the end",
        tuple(breaches),
    )


def _by_command(rows: list[_Row]) -> Iterator[tuple[str, Iterator[_Row]]]:
    return groupby(rows, key=lambda row: row.cmd_id)
