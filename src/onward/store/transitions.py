"""The guarded path, seen from Python: events in, one verdict each out.

The core decides, SQL enforces, and the two are compared for every event: `record_events_v1` answers
with the status that it saw, and the core is asked what the event means there. If they ever differ,
one of them was changed alone, and a wrong status is worse than no answer.

A batch is not a transaction of the caller's. Each event is judged on its own merit and stays,
whatever becomes of the others; what a batch shares is the round trip and the COMMIT.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

import asyncpg

from onward.core.lifecycles import LIFECYCLES
from onward.core.verdicts import Transition, TransitionResult
from onward.errors import GuardDrift
from onward.store import queries
from onward.store.database import Connection, Pool, answering

SQL = queries.load("commands.sql")

# Two statements under way keep PostgreSQL busy while Python prepares the next; more only queue.
_STATEMENTS_AT_ONCE = 2


class CommandState(NamedTuple):
    """Where a command stands, as the store last saw it."""

    cmd_id: str
    lifecycle: str
    status: str
    epoch: int
    version: int


class Event(NamedTuple):
    """Something that was said about a command; every field has been checked by `inputs`."""

    cmd_id: str
    event: str
    epoch: int | None = None  # from 1; None: said by somebody who does not speak for an attempt
    source: str = ""
    data: str | None = None  # JSON: duration_ms, result_code, error_code, error_message, result


Answer = Transition[CommandState]

_OK = TransitionResult.OK
# What the core decides, for every question that a row can ask: this is on the hot path.
_DECIDED = {
    (table.name, status, event): decision
    for table in LIFECYCLES.values()
    for (status, event), decision in table.table.items()
}
_UNKNOWN: Answer = Transition(None, TransitionResult.UNKNOWN_COMMAND, changed=False)


async def record_all(
    pool: Pool, events: Sequence[Event], *, batch_max: int, now: datetime | None = None
) -> list[Answer]:
    """Record events, any number, and answer each in its place.

    Events of one command are applied in the order given; commands have no order among them.
    """
    if not events:
        return []
    answers: list[Answer | None] = [None] * len(events)
    limit = asyncio.Semaphore(_STATEMENTS_AT_ONCE)

    async def record_part(part: list[int]) -> None:
        batch = [events[position] for position in part]
        with answering():
            async with limit, pool.acquire() as connection:
                answered = await record(connection, batch, now)
        for position, answer in zip(part, answered, strict=True):
            answers[position] = answer

    # All parts come to an end before the first failure is told: none goes on behind the back of a
    # caller who was told that something went wrong.
    parts = (record_part(part) for part in _parts(events, batch_max))
    for outcome in await asyncio.gather(*parts, return_exceptions=True):
        if outcome is not None:
            raise outcome
    return [answer or _missing(event) for event, answer in zip(events, answers, strict=True)]


async def record(
    connection: Connection,
    events: Sequence[Event],
    now: datetime | None = None,
) -> list[Answer]:
    """Record events in one statement on this connection, in the caller's transaction if it has one.

    Takes the rows' locks until that transaction ends.
    """
    order, round_ends = _in_rounds(events)
    cmd_ids, names, epochs, sources, data = zip(*[events[at] for at in order], strict=True)
    rows = await connection.fetch(
        SQL["record_events"],
        cmd_ids,
        names,
        _unless_empty(epochs),
        _unless_empty(sources),
        _unless_empty(data),
        round_ends,
        now,
    )
    answers: list[Answer | None] = [None] * len(events)
    for row in rows:
        at = order[row[0] - 1]
        answers[at] = judged(events[at], row)
    return [answer or _missing(event) for event, answer in zip(events, answers, strict=True)]


def judged(event: Event, row: asyncpg.Record) -> Answer:
    """Turn one answer of SQL's into a transition, after asking the core whether it agrees."""
    _, verdict, lifecycle, seen, seen_epoch, status, epoch, version = row[:8]
    if seen is None:
        return _UNKNOWN
    cmd_id, name, told, _, _ = event
    if told is not None and told != seen_epoch:
        result, target = TransitionResult.STALE_EPOCH, seen
    else:
        result, target = _DECIDED.get((lifecycle, seen, name)) or (
            TransitionResult.INVALID_STATE,
            seen,
        )
    if result._value_ != verdict or target != status:
        raise GuardDrift(
            f"{cmd_id}: {name!r} in {lifecycle} {seen!r} is {result} → {target!r} "
            f"by the core, but {verdict} → {status!r} by SQL"
        )
    state = CommandState(cmd_id, lifecycle, status, epoch, version)
    return Transition(state, result, result is _OK)


def _missing(event: Event) -> Answer:
    raise GuardDrift(f"{event.cmd_id}: {event.event!r} was judged OK by SQL, but nothing moved")


def _unless_empty(column: tuple[object, ...]) -> tuple[object, ...] | None:
    """Leave out a column that nobody filled: it costs as much to encode as one that says much."""
    empty = column.count(None) + column.count("")
    return None if empty == len(column) else column


def _in_rounds(events: Sequence[Event]) -> tuple[list[int], list[int]]:
    """Order positions so that a round has one event a command, in the order of the ids.

    Returns the positions and the end of each round. The ids are canonical, so their order as text
    is their order in the database, and all batches lock in the same one.
    """
    ids = [event.cmd_id for event in events]
    if len(set(ids)) == len(ids):
        return sorted(range(len(ids)), key=ids.__getitem__), [len(ids)]

    nth: list[int] = []
    said: Counter[str] = Counter()
    for cmd_id in ids:
        nth.append(said[cmd_id])
        said[cmd_id] += 1
    order = sorted(range(len(ids)), key=lambda position: (nth[position], ids[position]))
    sizes = Counter(nth)
    return order, list(accumulate(sizes[round_] for round_ in range(len(sizes))))


def _parts(events: Sequence[Event], batch_max: int) -> Iterator[list[int]]:
    """Cut a batch into statements, never between two events of one command."""
    order = list(range(len(events)))
    if len(events) > batch_max:
        order.sort(key=lambda position: events[position].cmd_id)
    start = 0
    while start < len(order):
        end = min(start + batch_max, len(order))
        while end < len(order) and events[order[end]].cmd_id == events[order[end - 1]].cmd_id:
            end += 1
        yield order[start:end]
        start = end
