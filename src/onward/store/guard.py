"""The guarded path, seen from Python: events in, one verdict each out.

The core decides, SQL enforces, and the two are compared for every event: SQL answers with the
status that it saw, and the core is asked what the event means there. If they ever differ, one of
them was changed alone, and a wrong status is worse than no answer.

A batch is not a transaction of the caller's. Each event is judged on its own merit and stays,
whatever becomes of the others; what a batch shares is the round trip and the COMMIT.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Generic, TypeVar

import asyncpg

from onward.core.lifecycles import LIFECYCLES
from onward.core.verdicts import Transition, TransitionResult
from onward.errors import GuardDrift
from onward.store.database import Connection, Pool, answering

# Two statements under way keep PostgreSQL busy while Python prepares the next; more only queue.
_STATEMENTS_AT_ONCE = 2

Key = TypeVar("Key", str, int)
State = TypeVar("State")

_OK = TransitionResult.OK
# What the core decides, for every question that a row can ask: this is on the hot path.
_DECIDED = {
    (table.name, status, event): decision
    for table in LIFECYCLES.values()
    for (status, event), decision in table.table.items()
}

# An event is a tuple: the key of its row, its name, the epoch it speaks for (None: it does not
# speak for an attempt), its source, and what came along with it, as JSON.
Said = tuple[Key, str, int | None, str, str | None]


class Guard(Generic[Key, State]):
    """The guarded path of one table: `query` calls its function, `state` makes its record."""

    def __init__(self, query: str, state: Callable[[Key, str, str, int, int], State]) -> None:
        self._query = query
        self._state: Callable[[Key, str, str, int, int], State] = state
        self._unknown: Transition[State] = Transition(
            None, TransitionResult.UNKNOWN_COMMAND, changed=False
        )

    async def record_all(
        self,
        pool: Pool,
        events: Sequence[Said[Key]],
        *,
        batch_max: int,
        now: datetime | None = None,
    ) -> list[Transition[State]]:
        """Record events, any number, and answer each in its place.

        Events of one row are applied in the order given; rows have no order among them.
        """
        answers: list[Transition[State] | None] = [None] * len(events)
        limit = asyncio.Semaphore(_STATEMENTS_AT_ONCE)

        async def record_part(part: list[int]) -> None:
            batch = [events[at] for at in part]
            with answering():
                async with limit, pool.acquire() as connection:
                    answered = await self.record(connection, batch, now)
            for at, answer in zip(part, answered, strict=True):
                answers[at] = answer

        # All parts come to an end before the first failure is told: none goes on behind the back
        # of a caller who was told that something went wrong.
        parts = (record_part(part) for part in _parts(events, batch_max))
        for outcome in await asyncio.gather(*parts, return_exceptions=True):
            if outcome is not None:
                raise outcome
        return _complete(events, answers)

    async def record(
        self,
        connection: Connection,
        events: Sequence[Said[Key]],
        now: datetime | None = None,
        *,
        along: tuple[str, Sequence[object]] | None = None,
    ) -> list[Transition[State]]:
        """Record events in one statement on this connection, in the caller's transaction if any.

        Takes the rows' locks until that transaction ends. `along` is a query that does something
        besides, and what it takes after the seven parameters of the guarded path.
        """
        query, more = along or (self._query, ())
        order, round_ends = _in_rounds(events)
        keys, names, epochs, sources, data = zip(*[events[at] for at in order], strict=True)
        rows = await connection.fetch(
            query,
            keys,
            names,
            _unless_empty(epochs),
            _unless_empty(sources),
            _unless_empty(data),
            round_ends,
            now,
            *more,
        )
        answers: list[Transition[State] | None] = [None] * len(events)
        for row in rows:
            at = order[row[0] - 1]
            answers[at] = self.judged(events[at], row)
        return _complete(events, answers)

    def judged(self, event: Said[Key], row: asyncpg.Record) -> Transition[State]:
        """Turn one answer of SQL's into a transition, after asking the core if it agrees."""
        _, verdict, lifecycle, seen, seen_epoch, status, epoch, version = row[:8]
        if seen is None:
            return self._unknown
        key, name, told, _, _ = event
        if told is not None and told != seen_epoch:
            result, target = TransitionResult.STALE_EPOCH, seen
        else:
            result, target = _DECIDED.get((lifecycle, seen, name)) or (
                TransitionResult.INVALID_STATE,
                seen,
            )
        if result._value_ != verdict or target != status:
            raise GuardDrift(
                f"{key}: {name!r} in {lifecycle} {seen!r} is {result} → {target!r} "
                f"by the core, but {verdict} → {status!r} by SQL"
            )
        return Transition(
            self._state(key, lifecycle, status, epoch, version), result, result is _OK
        )


def _complete(
    events: Sequence[Said[Key]], answers: Sequence[Transition[State] | None]
) -> list[Transition[State]]:
    complete = [answer for answer in answers if answer is not None]
    if len(complete) != len(events):
        raise GuardDrift(f"{len(events)} events were recorded, but {len(complete)} answered")
    return complete


def _unless_empty(column: tuple[object, ...]) -> tuple[object, ...] | None:
    """Leave out a column that nobody filled: it costs as much to encode as one that says much."""
    empty = column.count(None) + column.count("")
    return None if empty == len(column) else column


def _in_rounds(events: Sequence[Said[Key]]) -> tuple[list[int], list[int]]:
    """Order positions so that a round has one event a row, in the order of the keys.

    Returns the positions and the end of each round. A UUID is canonical text here, so its order as
    text is its order in the database, and all batches lock in the same one.
    """
    keys = [event[0] for event in events]
    if len(set(keys)) == len(keys):
        return sorted(range(len(keys)), key=keys.__getitem__), [len(keys)]

    nth: list[int] = []
    said: Counter[Key] = Counter()
    for key in keys:
        nth.append(said[key])
        said[key] += 1
    order = sorted(range(len(keys)), key=lambda at: (nth[at], keys[at]))
    sizes = Counter(nth)
    return order, list(accumulate(sizes[round_] for round_ in range(len(sizes))))


def _parts(events: Sequence[Said[Key]], batch_max: int) -> Iterator[list[int]]:
    """Cut a batch into statements, never between two events of one row."""
    order = list(range(len(events)))
    if len(events) > batch_max:
        order.sort(key=lambda at: events[at][0])
    start = 0
    while start < len(order):
        end = min(start + batch_max, len(order))
        while end < len(order) and events[order[end]][0] == events[order[end - 1]][0]:
            end += 1
        yield order[start:end]
        start = end
