"""The races harness can fail: ways to get it wrong, each caught by the cases of the guarded path.

The path below is written by hand in a few statements, correct as it stands (and accepted, so the
harness asks for behaviour and not for one implementation). Each flaw leaves out one of its cares.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import partial

import pytest

from onward.core.lifecycles import EXECUTION, LIFECYCLES, NODE
from onward.core.verdicts import Transition
from onward.core.verdicts import TransitionResult as Result
from onward.store.transitions import Answer, CommandState, Event
from tests.proof_table import Tried
from tests.races.model import Events, Operation
from tests.races.stage import Case, Connection, staged
from tests.races.test_pairs import BOTH_COMMIT, distinct_cases


class Flaw(Enum):
    """What a hurried author leaves out."""

    NONE = auto()
    LOOKS_WITHOUT_LOCK = auto()  # reads, decides, writes: the oldest race of all
    VERDICT_FROM_SNAPSHOT = auto()  # the write is guarded, but the answer is what was read before
    GUARD_FROM_SNAPSHOT = auto()  # locks and moves in one statement, whose guard sees the old row
    NO_LOOK_AT_ALL = auto()  # UPDATE commands SET status = 'SENT' WHERE cmd_id = $1
    NO_EPOCH_CHECK = auto()
    NO_NEW_EPOCH = auto()
    FORGETS_REFUSALS = auto()
    FORGETS_LATE_RESULTS = auto()


async def record_by_hand(
    connection: Connection, events: Sequence[Event], *, flaw: Flaw = Flaw.NONE
) -> list[Answer]:
    return [await _record_one(connection, event, flaw) for event in events]


async def _record_one(connection: Connection, event: Event, flaw: Flaw) -> Answer:
    locks = flaw not in {Flaw.LOOKS_WITHOUT_LOCK, Flaw.VERDICT_FROM_SNAPSHOT, Flaw.NO_LOOK_AT_ALL}
    look = "SELECT lifecycle, status, epoch, version FROM commands WHERE cmd_id = $1"
    if flaw is Flaw.GUARD_FROM_SNAPSHOT:
        lifecycle, status, epoch, version = await _move_from_snapshot(connection, event)
    else:
        lifecycle, status, epoch, version = await connection.fetchrow(  # type: ignore[misc]  # the row is there
            look + (" FOR NO KEY UPDATE" if locks else ""), event.cmd_id
        )
    table = LIFECYCLES[lifecycle]
    result, target = table.decide(status, event.event)
    if flaw is Flaw.NO_LOOK_AT_ALL:
        result, target = Result.OK, table.moves[event.event].target
    if event.epoch not in {None, epoch} and flaw is not Flaw.NO_EPOCH_CHECK:
        result, target = Result.STALE_EPOCH, status

    if flaw is not Flaw.GUARD_FROM_SNAPSHOT and result is Result.OK:
        draws = table.moves[event.event].draws_epoch and flaw is not Flaw.NO_NEW_EPOCH
        guard = " AND status = $4" if flaw is Flaw.VERDICT_FROM_SNAPSHOT else " AND $4 <> ''"
        moved = await connection.fetchrow(
            "UPDATE commands SET status = $2, version = version + 1, "  # noqa: S608 - no text of a caller
            "epoch = CASE WHEN $3 THEN nextval('epochs') ELSE epoch END "
            f"WHERE cmd_id = $1 {guard} RETURNING epoch, version",
            event.cmd_id,
            target,
            draws,
            status,
        )
        epoch, version = moved or (epoch, version + 1)
    elif (
        result is not Result.STALE_EPOCH
        and table.keeps_late(status, event.event)
        and flaw is not Flaw.FORGETS_LATE_RESULTS
    ):
        kept = await connection.fetchval(
            "UPDATE commands SET late_result = jsonb_build_object('event', $2::text), "
            "version = version + 1 WHERE cmd_id = $1 AND late_result IS NULL RETURNING version",
            event.cmd_id,
            event.event,
        )
        version = kept or version
    if result is Result.OK or flaw is not Flaw.FORGETS_REFUSALS:
        await connection.execute(
            "INSERT INTO timeline (cmd_id, event, verdict, from_status, to_status, epoch, source) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7)",
            event.cmd_id,
            event.event,
            result.value,
            status,
            target,
            epoch,
            event.source,
        )
    state = CommandState(event.cmd_id, lifecycle, target, epoch, version)
    return Transition(state, result, result is Result.OK)


async def _move_from_snapshot(connection: Connection, event: Event) -> tuple[str, str, int, int]:
    """Lock, and move what was locked, in one statement.

    The lock waits and then shows the newest row. The UPDATE still starts from the statement's
    snapshot: it compares the old status, finds nothing to do, and never gets to the newest row.
    """
    row = await connection.fetchrow(
        """
        WITH locked AS MATERIALIZED (
            SELECT c.cmd_id, c.lifecycle, c.status, c.epoch, c.version
              FROM commands c WHERE c.cmd_id = $1 FOR NO KEY UPDATE
        ), moved AS (
            UPDATE commands c
               SET status = l.target, version = c.version + 1,
                   epoch = CASE WHEN l.draws_epoch THEN nextval('epochs') ELSE c.epoch END
              FROM locked k JOIN law l ON (l.lifecycle, l.event, l.status)
                                        = (k.lifecycle, $2::text, k.status)
             WHERE c.cmd_id = k.cmd_id AND c.status = k.status AND l.verdict = 'OK'
               AND ($3::bigint IS NULL OR $3 = k.epoch)
            RETURNING c.epoch, c.version
        )
        SELECT k.lifecycle, k.status, coalesce(m.epoch, k.epoch) AS epoch,
               coalesce(m.version, k.version) AS version
          FROM locked k LEFT JOIN moved m ON true
        """,
        event.cmd_id,
        event.event,
        event.epoch,
    )
    assert row is not None
    return (row["lifecycle"], row["status"], row["epoch"], row["version"])


SAID = {"send", "ack", "done", "timeout", "succeed", "retry"}


def cases() -> list[Case]:
    """Two events from a status where much may happen, overlapping and one after the other."""
    return [
        case
        for table, start in ((NODE, "SENT"), (EXECUTION, "RUNNING"), (EXECUTION, "TIMEOUT"))
        for case in distinct_cases(table, start)
        if case.ends == BOTH_COMMIT and all(map(says_one_of_them, case.operations))
    ]


def says_one_of_them(operation: Operation) -> bool:
    return isinstance(operation, Events) and operation.said[0].event in SAID


async def test_another_correct_path_is_accepted(shared_url: str):
    async with staged(shared_url, record=record_by_hand) as stage:
        assert await stage.violations(cases()) == []


@pytest.mark.parametrize(
    ("flaw", "kinds"),
    [
        (Flaw.LOOKS_WITHOUT_LOCK, {"status", "verdict", "timeline", "path"}),
        (Flaw.VERDICT_FROM_SNAPSHOT, {"verdict", "timeline", "path"}),
        (Flaw.GUARD_FROM_SNAPSHOT, {"status", "timeline", "path"}),
        (Flaw.NO_LOOK_AT_ALL, {"status", "verdict", "timeline", "path"}),
        (Flaw.NO_EPOCH_CHECK, {"status", "verdict", "timeline"}),
        (Flaw.NO_NEW_EPOCH, {"epoch"}),
        (Flaw.FORGETS_REFUSALS, {"timeline"}),
        (Flaw.FORGETS_LATE_RESULTS, {"row", "verdict"}),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Flaw) else "",
)
async def test_a_flaw_is_caught(shared_url: str, tried: Tried, flaw: Flaw, kinds: set[str]):
    """Each in every way in which it shows: a wrong row is not excused by a timeline that agrees."""
    played = cases()
    async with staged(shared_url, record=partial(record_by_hand, flaw=flaw)) as stage:
        violations = await stage.violations(played)
    caught = {violation.kind for violation in violations}
    assert kinds <= caught, f"{flaw} showed only as {caught}: {violations[:3]}"
    tried("deliberate flaws, each under the same cases", 1, "all caught")
