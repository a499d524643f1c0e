"""What is done with one job at the same moment, by people and by workers, in both orders.

Each pair is played on two connections in three schedules: the first has ended when the second
begins; the first has done its deed but not committed when the second begins; and the same, but the
first rolls back. Whether the second waits for the first is asked of PostgreSQL (`pg_blocking_pids`)
and has to be as foretold: most deeds of workers wait for nobody. Nothing is slept for.

Whoever comes too late is told what happened instead. After every schedule the counters of the jobs
are those of their executions, the timelines replay through the core, and nothing is open without a
time at which somebody looks at it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import pytest

from onward.store import jobs
from onward.store.database import Pool, connect
from tests.proof_table import Tried
from tests.races.deeds import (
    Build,
    Deed,
    Hand,
    Scene,
    abandoned,
    approve,
    block,
    cancel,
    claim,
    delete_host,
    edit,
    failed,
    finish,
    hand_over,
    next_in_line,
    pause,
    plan,
    queued,
    reject,
    rescue,
    retry_by_hand,
    retry_later,
    running,
    stopped,
    submit,
    submit_by_names,
    unplanned,
    waiting_for_approval,
    with_hosts,
)
from tests.races.soundness import unsound
from tests.races.stage import until_blocked

if TYPE_CHECKING:
    import asyncpg

BOUND_S = 30.0


class Schedule(Enum):
    """When the first of two ends, and how."""

    ONE_BY_ONE = "one by one"
    OVERLAPPING = "overlapping"
    ROLLED_BACK = "the first rolls back"


# What is foretold


@dataclass(frozen=True)
class Foretold:
    """What both are told when they overlap, and how it ends; then, where it differs, one by one."""

    first: str
    second: str
    end: dict[str, int]  # the executions of the job, by status
    waits: bool = False
    second_after: str | None = None  # when the first had ended before it began
    end_after: dict[str, int] | None = None
    swept: dict[str, int] | None = None  # when the reaper has been there, if it changes anything
    late: str | None = None  # what came too late and was kept beside the first execution


@dataclass(frozen=True)
class Pair:
    """Two deeds, and what comes of them in either order."""

    begin: Build
    deeds: tuple[Deed, Deed]
    forth: Foretold  # the first of the two comes first
    back: Foretold  # the second does


NEW_2, QUEUED_2, RUNNING_2, CANCELLED_2 = (
    {status: 2} for status in ("NEW", "QUEUED", "RUNNING", "CANCELLED")
)
DONE = {"SUCCESS": 2}
WAITS, STOPPED, LOST = ({"SUCCESS": 1, status: 1} for status in ("QUEUED", "CANCELLED", "FAILED"))
HALF_RUNS = {"RUNNING": 1, "QUEUED": 1}
HANDED_OVER, ENDED_ONLY = "ended 1, claimed 1", "ended 1, claimed 0"
CLAIMED, NOTHING = "claimed 2, blocked 0", "claimed 0, blocked 0"

PAIRS: dict[str, Pair] = {
    "approve + reject": Pair(
        waiting_for_approval,
        (approve, reject),
        Foretold("APPROVED", "refused: APPROVED by bob", NEW_2, waits=True),
        Foretold("REJECTED", "refused: REJECTED by eve", CANCELLED_2, waits=True),
    ),
    "approve + edit": Pair(
        waiting_for_approval,
        (approve, edit("ann")),
        Foretold("APPROVED", "refused: APPROVED", NEW_2, waits=True),
        Foretold("edited", "refused: it is version 2 now", NEW_2, waits=True),
    ),
    "edit + edit": Pair(
        waiting_for_approval,
        (edit("ann"), edit("bob")),
        Foretold("edited", "refused: it is version 2 now", NEW_2, waits=True),
        Foretold("edited", "refused: it is version 2 now", NEW_2, waits=True),
    ),
    "approve + cancel": Pair(
        waiting_for_approval,
        (approve, cancel),
        Foretold("APPROVED", "CANCELLED", CANCELLED_2, waits=True),
        Foretold("CANCELLED", "refused: cancelled", CANCELLED_2, waits=True),
    ),
    "cancel + cancel": Pair(
        queued,
        (cancel, cancel),
        Foretold("CANCELLED", "CANCELLED_BEFORE", CANCELLED_2, waits=True),
        Foretold("CANCELLED", "CANCELLED_BEFORE", CANCELLED_2, waits=True),
    ),
    "cancel + pause": Pair(
        queued,
        (cancel, pause),
        Foretold("CANCELLED", "refused: nothing to hold back", CANCELLED_2, waits=True),
        Foretold("paused", "CANCELLED", CANCELLED_2, waits=True),
    ),
    # Cancelling asks what runs; whoever reports does not wait for that, nor is it waited for.
    "cancel + finish": Pair(
        running,
        (cancel, finish),
        Foretold("CANCELLED", "OK", DONE),
        Foretold("OK", "CANCELLED", DONE, second_after="TOO_LATE"),
    ),
    "the host confirms that it stopped + finish": Pair(
        running,
        (stopped, finish),
        Foretold("OK", "TERMINAL", STOPPED, waits=True, late="succeed"),
        Foretold("OK", "TERMINAL", DONE, waits=True),
    ),
    # What comes back to the queue of a cancelled job is not claimed; the reaper ends it.
    "retry + cancel": Pair(
        running,
        (retry_later, cancel),
        Foretold("OK", "CANCELLED", WAITS, end_after=STOPPED, swept=STOPPED),
        Foretold("CANCELLED", "OK", WAITS, swept=STOPPED),
    ),
    "rescue + late finish": Pair(
        abandoned,
        (rescue, finish),
        Foretold("rescued 1", "STALE_EPOCH", WAITS, waits=True),
        Foretold("OK", "rescued 0", DONE),
    ),
    "cancel + claim": Pair(
        queued,
        (cancel, claim),
        Foretold("CANCELLED", NOTHING, CANCELLED_2),
        Foretold(CLAIMED, "CANCELLED", RUNNING_2, waits=True),
    ),
    # A claim that looks before the pause is committed came first.
    "pause + claim": Pair(
        queued,
        (pause, claim),
        Foretold("paused", CLAIMED, RUNNING_2, second_after=NOTHING, end_after=QUEUED_2),
        Foretold(CLAIMED, "paused", RUNNING_2),
    ),
    "block + claim": Pair(
        queued,
        (block, claim),
        Foretold(
            "blocked",
            CLAIMED,
            RUNNING_2,
            second_after="claimed 1, blocked 1",
            end_after={"RUNNING": 1, "BLOCKED": 1},
        ),
        Foretold(CLAIMED, "blocked", RUNNING_2),
    ),
    "hand over + cancel what is next": Pair(
        next_in_line,
        (hand_over, cancel),
        Foretold(HANDED_OVER, "CANCELLED", {"RUNNING": 1, "CANCELLED": 1}, waits=True),
        Foretold("CANCELLED", ENDED_ONLY, CANCELLED_2),
    ),
    "hand over + pause what is next": Pair(
        next_in_line,
        (hand_over, pause),
        Foretold(HANDED_OVER, "paused", HALF_RUNS),
        Foretold("paused", HANDED_OVER, HALF_RUNS, second_after=ENDED_ONLY, end_after=QUEUED_2),
    ),
    "claim + claim": Pair(
        queued,
        (claim, claim),
        Foretold(CLAIMED, NOTHING, RUNNING_2),
        Foretold(CLAIMED, NOTHING, RUNNING_2),
    ),
    "plan + cancel": Pair(
        unplanned,
        (plan, cancel),
        Foretold("planned 2", "CANCELLED", CANCELLED_2, waits=True),
        Foretold("CANCELLED", "planned 0", CANCELLED_2, waits=True),
    ),
    "plan + pause": Pair(
        unplanned,
        (plan, pause),
        Foretold("planned 2", "paused", QUEUED_2, waits=True),
        Foretold("paused", "planned 0", NEW_2, waits=True),
    ),
    "submit + host deletion": Pair(
        with_hosts,
        (submit_by_names, delete_host),
        Foretold("made for 2", "IN_USE", {}, waits=True),
        Foretold("DELETED", "refused: no such hosts: host-1", {}, waits=True),
    ),
    "submit + submit of the same": Pair(
        with_hosts,
        (submit("{}"), submit("{}")),
        Foretold("made", "found", {}, waits=True),
        Foretold("made", "found", {}, waits=True),
    ),
    "submit + submit of something else": Pair(
        with_hosts,
        (submit('{"a": 1}'), submit('{"a": true}')),
        Foretold("made", "refused: another params", {}, waits=True),
        Foretold("made", "refused: another params", {}, waits=True),
    ),
    "retry by hand + the same": Pair(
        failed,
        (retry_by_hand, retry_by_hand),
        Foretold("made", "found", LOST, waits=True),
        Foretold("made", "found", LOST, waits=True),
    ),
}


# How it is played


class Table:
    """Two hands, and an observer who sees who waits for whom."""

    def __init__(self, one: Hand, other: Hand, observer: Hand) -> None:
        self.pool = observer.pool
        self._observer = observer.connection
        self._hands = (one, other)

    async def play(self, scene: Scene, first: Deed, second: Deed, *, how: Schedule) -> Played:
        one, other = self._hands
        if how is Schedule.ONE_BY_ONE:
            return Played(await first(scene, one.pool), await second(scene, other.pool))
        whole = one.connection.transaction()
        await whole.start()
        try:
            told = await first(scene, one.pool)
            late = asyncio.ensure_future(second(scene, other.pool))
            waits = await until_blocked(self._observer, other.pid, one.pid, unless=late)
        except BaseException:
            await whole.rollback()
            raise
        await (whole.rollback() if how is Schedule.ROLLED_BACK else whole.commit())
        async with asyncio.timeout(BOUND_S):
            return Played(told, await late, waits=waits)


@dataclass(frozen=True)
class Played:
    """What both were told, and whether the second had to wait for the first."""

    first: str
    second: str
    waits: bool = False


@pytest.fixture
async def table(shared_url: str) -> AsyncIterator[Table]:
    """One database for all pairs: each has hosts and jobs of its own."""
    async with AsyncExitStack() as stack:

        async def opened() -> asyncpg.Connection[asyncpg.Record]:
            connection = await connect(shared_url)
            stack.push_async_callback(connection.close)
            return connection

        observer = Hand(await opened())
        await observer.execute(
            "INSERT INTO command_types (name, needs_approval) "
            "VALUES ('noop', false), ('deploy', true) ON CONFLICT DO NOTHING"
        )
        yield Table(Hand(await opened()), Hand(await opened()), observer)


async def statuses(pool: Pool, scene: Scene) -> Counter[str]:
    rows = await pool.fetch("SELECT status FROM executions WHERE job_id = $1", scene.job_id)
    return Counter(row["status"] for row in rows)


async def late_result(pool: Pool, scene: Scene) -> str | None:
    query = "SELECT late_result ->> 'event' FROM executions WHERE id = ANY ($1) ORDER BY id LIMIT 1"
    found: str | None = await pool.fetchval(query, scene.ids)
    return found


@pytest.mark.parametrize("name", PAIRS)
async def test_of_two_deeds_one_comes_first_and_the_other_is_told(
    table: Table, tried: Tried, name: str
):
    pair = PAIRS[name]
    for deeds, foretold, other in (
        (pair.deeds, pair.forth, pair.back),
        (pair.deeds[::-1], pair.back, pair.forth),
    ):
        for how in Schedule:
            scene = await pair.begin(table.pool)
            played = await table.play(scene, *deeds, how=how)
            assert played == expected(foretold, other, how), (deeds, how)
            if how is not Schedule.ROLLED_BACK:
                await ends_as(foretold, scene, how)
    assert await unsound(table.pool) == []
    count = 2 * len(Schedule)
    tried("pairs of deeds with one job, forced into an order", count, "the loser is told")


def expected(foretold: Foretold, other: Foretold, how: Schedule) -> Played:
    match how:
        case Schedule.ONE_BY_ONE:
            return Played(foretold.first, foretold.second_after or foretold.second)
        case Schedule.OVERLAPPING:
            return Played(foretold.first, foretold.second, waits=foretold.waits)
        case Schedule.ROLLED_BACK:
            # Whoever waited finds that nothing was done, and is told what the first one would be.
            second = other.first if foretold.waits else foretold.second
            return Played(foretold.first, second, waits=foretold.waits)


async def ends_as(foretold: Foretold, scene: Scene, how: Schedule) -> None:
    """What is left when both have ended, and when the reaper has been there."""
    end = foretold.end
    if how is Schedule.ONE_BY_ONE:
        end = foretold.end_after or end
    assert await statuses(scene.pool, scene) == end, how
    assert await late_result(scene.pool, scene) == foretold.late, how
    await jobs.finish_cancelling(scene.pool, limit=100)
    assert await statuses(scene.pool, scene) == (foretold.swept or end), how
