"""Batches that meet: over the same commands, in opposite orders, with one command many times.

A batch locks in the order of the ids, whatever the order in which it was given. So two of them
never hold what the other needs, and the one that comes second to the lowest common command comes
second everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import permutations, product
from random import Random

import asyncpg
import pytest

from onward.core.lifecycle import Lifecycle
from onward.core.lifecycles import EXECUTION, NODE
from onward.store import guard, transitions
from onward.store.database import connect
from onward.store.transitions import Event
from tests.proof_table import Tried
from tests.races.model import STALE_GENERATION, End, Events, Row, Said
from tests.races.stage import Case, Connection, Stage, until_blocked
from tests.races.test_pairs import (
    BOTH_COMMIT,
    FIRST_ENDS_FIRST,
    FIRST_ROLLS_BACK,
    ONE_BY_ONE,
    SECOND_ENDS_FIRST,
)

KEYS = range(3)
ORDERS = (ONE_BY_ONE, FIRST_ENDS_FIRST, SECOND_ENDS_FIRST)


def drawn_rows(draw: Random, table: Lifecycle) -> dict[int, Row | None]:
    """Three commands, most of them live; now and then one that nobody knows."""
    live = [status for status in table.states if status not in table.terminal]
    return {
        key: None if draw.random() < 0.1 else Row(draw.choice([*live, *table.states]))
        for key in KEYS
    }


def drawn_batch(draw: Random, table: Lifecycle, *, at_most: int = 6) -> Events:
    tolds = (None, 0, STALE_GENERATION) if table is EXECUTION else (None,)
    return Events(
        tuple(
            Said(draw.choice(KEYS), draw.choice(list(table.moves)), draw.choice(tolds))
            for _ in range(draw.randint(1, at_most))
        )
    )


def every_overlap(draw: Random, table: Lifecycle) -> list[Case]:
    """Every two sets out of three commands, one forwards, the other backwards."""
    sets = [[key for key in KEYS if bits >> key & 1] for bits in range(1, 8)]
    events = list(table.moves)
    return [
        Case(
            table,
            {key: Row(draw.choice(list(table.states))) for key in KEYS},
            (
                Events(tuple(Said(key, draw.choice(events)) for key in first)),
                Events(tuple(Said(key, draw.choice(events)) for key in reversed(second))),
            ),
            order,
            ends,
        )
        for first, second in product(sets, repeat=2)
        for order in ORDERS
        for ends in (BOTH_COMMIT, FIRST_ROLLS_BACK)
    ]


@pytest.mark.parametrize("table", [NODE, EXECUTION], ids=lambda table: table.name)
async def test_every_overlap_of_two_batches_in_opposite_orders(
    stage: Stage, tried: Tried, table: Lifecycle
):
    cases = every_overlap(Random(table.name), table)
    violations = await stage.violations(cases)
    assert not violations, f"{len(violations)} of {len(cases)}: {violations[:5]}"
    tried("overlaps of two batches", len(cases))


@pytest.mark.parametrize("table", [NODE, EXECUTION], ids=lambda table: table.name)
@pytest.mark.parametrize("longest", [1, 6], ids=["a-single", "a-batch"])
async def test_a_batch_with_repeated_commands_meets(
    stage: Stage, tried: Tried, table: Lifecycle, *, longest: int, proof: bool
):
    """Each event of a command sees what the one before it did, across both batches."""
    cases = []
    for number in range(10_000 if proof else 500):
        draw = Random(f"{table.name} {longest} {number}")
        cases.append(
            Case(
                table,
                drawn_rows(draw, table),
                (drawn_batch(draw, table), drawn_batch(draw, table, at_most=longest)),
                draw.choice(ORDERS),
                (draw.choice(list(End)), draw.choice(list(End))),
            )
        )
    violations = await stage.violations(cases)
    assert not violations, f"{len(violations)} of {len(cases)}: {violations[:5]}"
    tried("batches with repeats against a single or a batch", len(cases))


class Three:
    """Two batches, and somebody who holds one row until both are under way."""

    def __init__(self, holder: Connection, first: Connection, second: Connection) -> None:
        self.holder, self.first, self.second = holder, first, second

    async def hold(self, cmd_id: str) -> None:
        await self.holder.execute("BEGIN")
        await self.holder.execute("SELECT FROM commands WHERE cmd_id = $1 FOR UPDATE", cmd_id)

    async def until_waits(self, who: Connection, for_whom: Connection) -> None:
        await until_blocked(self.holder, who.get_server_pid(), for_whom.get_server_pid())


@pytest.fixture
async def three(shared_url: str) -> AsyncIterator[Three]:
    connections = [await connect(shared_url) for _ in range(3)]
    try:
        yield Three(*connections)
    finally:
        for connection in connections:
            await connection.close()


async def make_commands(connection: Connection) -> list[str]:
    """Three commands in QUEUED, in the order of their ids."""
    rows = await connection.fetch(
        "INSERT INTO commands (cmd_id, lifecycle, status, timeout_s, deadline_at) "
        "SELECT gen_random_uuid(), $1, $2, 3600, now() + '1 hour' FROM generate_series(1, 3) "
        "RETURNING cmd_id::text",
        NODE.name,
        NODE.initial,
    )
    return sorted(cmd_id for (cmd_id,) in rows)


async def in_one_transaction(connection: Connection, events: Sequence[Event]) -> list[str]:
    async with connection.transaction():
        return [answer.result.value for answer in await transitions.record(connection, events)]


async def test_batches_in_any_two_orders_never_wait_in_a_circle(three: Three, tried: Tried):
    """The first is stopped half-way, at every command, until the second waits for it."""
    played = 0
    for first, second, held in product(permutations(KEYS), permutations(KEYS), KEYS):
        ids = await make_commands(three.holder)
        await three.hold(ids[held])
        one = asyncio.create_task(
            in_one_transaction(three.first, [Event(ids[key], "send") for key in first])
        )
        await three.until_waits(three.first, three.holder)
        two = asyncio.create_task(
            in_one_transaction(three.second, [Event(ids[key], "ack") for key in second])
        )
        await three.until_waits(three.second, three.first)
        await three.holder.execute("COMMIT")
        assert await one == ["OK"] * 3
        assert await two == ["OK"] * 3
        played += 1
    tried("half-way meetings of two batches", played, "0 deadlocks")


async def test_without_the_order_of_ids_the_same_meeting_is_a_deadlock(
    three: Three, monkeypatch: pytest.MonkeyPatch
):
    """So the test above can fail: it is the order that keeps it from failing."""
    monkeypatch.setattr(
        guard, "_in_rounds", lambda events: (list(range(len(events))), [len(events)])
    )
    ids = await make_commands(three.holder)
    await three.hold(ids[1])
    one = asyncio.create_task(
        in_one_transaction(three.first, [Event(ids[key], "send") for key in (0, 1, 2)])
    )
    await three.until_waits(three.first, three.holder)
    two = asyncio.create_task(
        in_one_transaction(three.second, [Event(ids[key], "ack") for key in (2, 1, 0)])
    )
    # Both wait at the middle one, the second in the queue behind the first.
    await three.until_waits(three.second, three.first)
    await three.holder.execute("COMMIT")
    outcomes = await asyncio.gather(one, two, return_exceptions=True)
    assert any(isinstance(outcome, asyncpg.DeadlockDetectedError) for outcome in outcomes)
