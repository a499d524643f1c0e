"""Every pair of operations on one command, from every status, in every order of their statements.

A session begins, says one thing, and commits or rolls back: three turns. Two sessions have 20
orders of six turns. `--proof` plays all of them, and either session may roll back. Without it, only
orders that differ in what the database sees are played, and only the first may roll back, in one
pair of four:

- BEGIN takes no lock and, in READ COMMITTED, no snapshot, so it commutes with every turn of the
  other session: what counts is the order of the two statements and the two ends: six are left.
- Three of the six are the other three with the sessions exchanged; every pair is played both ways.
- Where the second statement waits for the first session's end, its own end cannot come before that:
  two of the three are then one and the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement, product

import pytest

from onward.core.lifecycle import Lifecycle
from onward.core.lifecycles import EXECUTION, NODE
from tests.proof_table import Tried
from tests.races.model import (
    STALE_GENERATION,
    Create,
    End,
    Events,
    Expire,
    Operation,
    Row,
    Said,
    Schedule,
    in_status,
)
from tests.races.stage import Case, Stage

TURNS = 6
ALL_ORDERS: tuple[Schedule, ...] = tuple(
    tuple(0 if turn in firsts else 1 for turn in range(TURNS))
    for firsts in combinations(range(TURNS), TURNS // 2)
)
ONE_BY_ONE: Schedule = (0, 0, 0, 1, 1, 1)
FIRST_ENDS_FIRST: Schedule = (0, 0, 1, 1, 0, 1)
SECOND_ENDS_FIRST: Schedule = (0, 0, 1, 1, 1, 0)

BOTH_COMMIT = (End.COMMIT, End.COMMIT)
FIRST_ROLLS_BACK = (End.ROLLBACK, End.COMMIT)
SECOND_ROLLS_BACK = (End.COMMIT, End.ROLLBACK)

ABSENT = "absent"


def operations(table: Lifecycle, start: str) -> list[Operation]:
    """Everything that can be said to a command of this lifecycle."""
    # An execution's events come from an attempt: the present one, or a former one.
    tolds = (0, STALE_GENERATION) if table is EXECUTION and start != ABSENT else (None,)
    found: list[Operation] = [
        Events((Said(0, event, told),)) for event in table.moves for told in tolds
    ]
    found += [Create(), Expire()]
    if start == ABSENT:
        found.append(Create(other_content=True))
    return found


def start_row(table: Lifecycle, start: str, pair: Sequence[Operation]) -> dict[int, Row | None]:
    if start == ABSENT:
        return {0: None}
    due = any(isinstance(operation, Expire) for operation in pair)
    return {0: in_status(table, start, due=due)}


def distinct_cases(table: Lifecycle, start: str) -> Iterator[Case]:
    said = operations(table, start)
    for number, pair in enumerate(product(said, said)):
        rows = start_row(table, start, pair)
        for ends in (BOTH_COMMIT, FIRST_ROLLS_BACK)[: 1 if number % 4 else 2]:
            yield Case(table, rows, pair, ONE_BY_ONE, ends)
            yield (overlapping := Case(table, rows, pair, FIRST_ENDS_FIRST, ends))
            if not overlapping.foretold.waits[1]:
                yield Case(table, rows, pair, SECOND_ENDS_FIRST, ends)


def all_cases(table: Lifecycle, start: str) -> Iterator[Case]:
    for pair in combinations_with_replacement(operations(table, start), 2):
        rows = start_row(table, start, pair)
        for order in ALL_ORDERS:
            for ends in (BOTH_COMMIT, FIRST_ROLLS_BACK, SECOND_ROLLS_BACK):
                yield Case(table, rows, pair, order, ends)


@pytest.mark.parametrize(
    ("table", "start"),
    [
        pytest.param(table, start, id=f"{table.name}-{start}")
        for table in (NODE, EXECUTION)
        for start in (ABSENT, *table.states)
    ],
)
async def test_two_sessions_leave_what_one_after_the_other_would_have_left(
    stage: Stage, tried: Tried, table: Lifecycle, *, start: str, proof: bool
):
    """Verdicts, waiting, row and timeline are those of the order in which locks were granted."""
    cases = list(all_cases(table, start) if proof else distinct_cases(table, start))
    violations = await stage.violations(cases)
    assert not violations, f"{len(violations)} of {len(cases)}: {violations[:5]}"
    tried(f"interleavings of two {table.name} operations", len(cases))
