"""Following what changes: everything that was committed, once, in one order, from any position."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import asyncpg
import pytest

import onward
from onward.commands import create_command
from onward.store import changes, timeline
from onward.store.changes import KINDS, Change, Position, Reader, can_go_on, horizon
from onward.store.database import Connection, Pool
from onward.store.transitions import Event
from onward.wiring import Onward
from tests.conftest import settings_for
from tests.proof_table import Tried
from tests.store.asking import BOUND_S

TELL = {
    "job": "INSERT INTO job_timeline (job_id, event) VALUES (1, $1) RETURNING tx",
    "execution": "INSERT INTO execution_timeline (execution_id, event, verdict) "
    "VALUES (1, $1, 'OK') RETURNING tx",
    "command": "INSERT INTO timeline (cmd_id, event, verdict) "
    "VALUES (gen_random_uuid(), $1, 'OK') RETURNING tx",
}


@pytest.fixture(scope="module")
async def opened(shared_url: str) -> AsyncIterator[Onward]:
    async with onward.open(settings_for(shared_url, pool_size=20)) as found:
        yield found


async def tell(connection: Connection | Pool, kind: str, event: str) -> int:
    """Tell something in the transaction of a connection; returns the number of that."""
    return int(await connection.fetchval(TELL[kind], event))


async def settled(pool: Pool) -> Position:
    """The position behind everything that was committed before now; waits for those who are open.

    Whatever else the server does has transactions of its own, and they end.
    """
    number = int(await pool.fetchval("SELECT pg_current_xact_id()::text::bigint"))
    async with asyncio.timeout(BOUND_S):
        while (found := await horizon(pool)).tx <= number:
            pass
    return found


async def read_all(pool: Pool, position: Position, *, limit: int = 1_000) -> list[Change]:
    """Everything after a position, by a reader that takes `limit` at a time."""
    reader = Reader(pool, position, limit=limit)
    found = []
    while read := await reader.read():
        found += read
        assert len(found) < 10_000, "the reader does not get on"
    return found


def events_of(found: list[Change]) -> list[str]:
    return [change.event for change in found]


async def test_nothing_has_changed_since_now(pool: Pool):
    start = await settled(pool)
    reader = Reader(pool, start, limit=10)
    assert await reader.read() == []
    assert reader.position.key >= start.key


async def test_a_change_says_what_changed(pool: Pool, opened: Onward):
    start = await settled(pool)
    job_id = 4711
    execution_id = await pool.fetchval(
        "INSERT INTO executions (job_id, host_id, read_only, timeout_s, status) "
        "VALUES ($1, 5, false, 60, 'QUEUED') RETURNING id",
        job_id,
    )
    await pool.execute("INSERT INTO job_timeline (job_id, event) VALUES ($1, 'submit')", job_id)
    await pool.execute(
        "SELECT record_executions_v1(ARRAY[$1::bigint], '{claim}', NULL, NULL, NULL, '{1}', NULL)",
        execution_id,
    )
    command = await onward_command(opened)
    await settled(pool)
    job, execution, created, acknowledged = await read_all(pool, start)
    assert [KINDS[change.kind - 1] for change in (job, execution, created, acknowledged)] == [
        "job",
        "execution",
        "command",
        "command",
    ]
    assert (job.job_id, job.event, job.status) == (job_id, "submit", None)
    assert (execution.job_id, execution.execution_id, execution.host_id) == (
        job_id,
        execution_id,
        5,
    )
    assert (execution.event, execution.status) == ("claim", "RUNNING")
    assert (str(created.cmd_id), created.event, created.status) == (command, "create", "QUEUED")
    assert (acknowledged.event, acknowledged.status) == ("ack", "ACK")


async def onward_command(opened: Onward) -> str:
    """A command that was acknowledged twice, of which one counts."""
    made = await create_command()
    assert made.record is not None
    assert (await opened.commands.record(Event(made.record.cmd_id, "ack"))).changed
    assert not (await opened.commands.record(Event(made.record.cmd_id, "ack"))).changed
    return made.record.cmd_id


async def test_who_commits_late_is_waited_for_and_nobody_is_missed(pool: Pool):
    """Ten write in order and commit in the opposite order; a reader looks after every commit."""
    start = await settled(pool)
    reader = Reader(pool, start, limit=3)
    told: list[Change] = []
    async with AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(pool.acquire()) for _ in range(10)]
        open_ = [writer.transaction() for writer in writers]
        numbers = []
        for number, (writer, transaction) in enumerate(zip(writers, open_, strict=True)):
            await transaction.start()
            numbers.append(await tell(writer, KINDS[number % 3], f"writer {number}"))
        assert numbers == sorted(numbers)
        for transaction in reversed(open_):
            assert await reader.read() == [], "somebody older is still open"
            await transaction.commit()
    await settled(pool)
    while read := await reader.read():
        told += read
    assert events_of(told) == [f"writer {number}" for number in range(10)]


async def test_what_is_rolled_back_was_never_told(pool: Pool):
    start = await settled(pool)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await tell(connection, "job", "never")
        await transaction.rollback()
    await tell(pool, "job", "told")
    await settled(pool)
    assert events_of(await read_all(pool, start)) == ["told"]


async def test_what_was_refused_changed_nothing(pool: Pool):
    start = await settled(pool)
    for verdict in ("DUPLICATE", "STALE_EPOCH", "UNKNOWN_COMMAND"):
        await pool.execute(
            "INSERT INTO timeline (cmd_id, event, verdict) VALUES (gen_random_uuid(), 'x', $1)",
            verdict,
        )
        await pool.execute(
            "INSERT INTO execution_timeline (execution_id, event, verdict) VALUES (1, 'x', $1)",
            verdict,
        )
    await settled(pool)
    assert await read_all(pool, start) == []


async def test_every_change_is_a_position_from_which_the_rest_follows(
    pool: Pool, tried: Tried, *, proof: bool
):
    """Transactions of all sizes and mixtures; every position, with limits that cut anywhere."""
    start = await settled(pool)
    drawn = random.Random(8)
    for _ in range(60 if proof else 12):
        async with pool.acquire() as connection, connection.transaction():
            for number in range(drawn.randrange(9)):
                await tell(connection, drawn.choice(KINDS), f"change {number}")
    await settled(pool)
    whole = await read_all(pool, start)
    assert len({change.key for change in whole}) == len(whole) > 30
    assert [change.key for change in whole] == sorted(change.key for change in whole)
    positions = [start, *(change.position for change in whole)]
    for limit in (1, 2, 3, 7, 1_000):
        for read, position in enumerate(positions):
            assert await read_all(pool, position, limit=limit) == whole[read:], (limit, position)
    tried("positions that a reader of changes went on from", 5 * len(positions))


async def test_a_transaction_that_is_larger_than_a_reading_is_read_in_parts(pool: Pool):
    start = await settled(pool)
    async with pool.acquire() as connection, connection.transaction():
        for number in range(25):
            for kind in KINDS:
                await tell(connection, kind, f"{kind} {number}")
    await settled(pool)
    reader = Reader(pool, start, limit=4)
    parts = []
    while read := await reader.read():
        assert len(read) <= 3 * 4
        parts.append(read)
    assert [f"{kind} {number}" for kind in KINDS for number in range(25)] == [
        change.event for part in parts for change in part
    ]


async def test_any_order_of_commits_is_told_exactly_once(pool: Pool, tried: Tried, *, proof: bool):
    """Writers begin, write, commit and roll back at random; readers come, go on, and leave."""
    runs = 300 if proof else 15
    for seed in range(runs):
        print(f"seed {seed}")
        await one_storm(pool, random.Random(seed))
    tried("storms of overlapping transactions, followed", runs)


async def one_storm(pool: Pool, drawn: random.Random) -> None:
    start = await settled(pool)
    writers = [await pool.acquire() for _ in range(6)]
    open_: dict[int, tuple[asyncpg.transaction.Transaction, list[str]]] = {}
    committed: list[str] = []
    heard: list[Change] = []
    position = start
    for step in range(80):
        at = drawn.randrange(len(writers))
        if at not in open_:
            transaction = writers[at].transaction()
            await transaction.start()
            open_[at] = (transaction, [])
        elif drawn.random() < 0.6:
            event = f"step {step}"
            await tell(writers[at], drawn.choice(KINDS), event)
            open_[at][1].append(event)
        else:
            transaction, told = open_.pop(at)
            if drawn.random() < 0.8:
                await transaction.commit()
                committed += told
            else:
                await transaction.rollback()
        if drawn.random() < 0.3:
            # Whoever goes on knows the position and nothing else.
            reader = Reader(pool, position, limit=drawn.choice((1, 2, 5, 100)))
            heard += await reader.read()
            position = reader.position
    for transaction, told in open_.values():
        await transaction.commit()
        committed += told
    for writer in writers:
        await pool.release(writer)
    await settled(pool)
    heard += await read_all(pool, position, limit=drawn.choice((1, 3, 100)))
    assert sorted(events_of(heard)) == sorted(committed)
    assert heard == await read_all(pool, start)


class Watched:
    """A pool that counts what is asked of it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.asked: list[str] = []

    async def fetch(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        self.asked.append(query)
        return await self._pool.fetch(query, *parameters)

    async def fetchrow(self, query: str, *parameters: object) -> asyncpg.Record | None:
        self.asked.append(query)
        return await self._pool.fetchrow(query, *parameters)


async def test_while_nothing_happens_only_the_horizon_is_asked_for(pool: Pool):
    await tell(pool, "job", "something")
    watched = Watched(pool)
    reader = Reader(watched, await settled(pool), limit=10)  # type: ignore[arg-type]  # as much of a pool as it needs
    while await reader.read():
        pass
    watched.asked.clear()
    async with asyncio.timeout(BOUND_S):
        # Somebody else on the server may do something meanwhile; in the end nobody does.
        while watched.asked != [changes.SQL["horizon"]]:
            watched.asked.clear()
            await reader.read()


async def test_a_reading_looks_at_few_pages_of_a_long_timeline(pool: Pool):
    """A hundred transactions of a thousand changes each: the last one costs little to find."""
    numbers = [
        await pool.fetchval(
            "WITH told AS (INSERT INTO execution_timeline (execution_id, event, verdict) "
            "SELECT n, 'claim', 'OK' FROM generate_series(1, 1000) AS n RETURNING tx) "
            "SELECT min(tx) FROM told"
        )
        for _ in range(100)
    ]
    await pool.execute("ANALYZE execution_timeline")
    # What the server does by itself, later.
    await pool.execute(
        "SELECT brin_summarize_new_values(i.indexrelid) FROM pg_index i "
        "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
        "WHERE a.amname = 'brin' AND c.relkind = 'i'"
    )
    size = await pool.fetchval(
        "SELECT sum(pg_relation_size(inhrelid)) / 8192 FROM pg_inherits "
        "WHERE inhparent = 'execution_timeline'::regclass"
    )
    found = json.loads(
        await pool.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {changes.SQL['since']}",
            *(numbers[-1], numbers[-1] + 1, 0.0, 0, 0, 0, 100),
        )
    )[0]["Plan"]
    told = [node for node in nodes(found) if str(node.get("Alias")).startswith("t_")]
    scanned = [node for node in told if node["Actual Rows"]]
    assert [node["Node Type"] for node in scanned] == ["Bitmap Heap Scan"]
    # A note of the index is about 128 pages; the changes of one transaction lie on two of them.
    assert sum(pages(node) for node in told) <= 3 * 128 < size / 2


def nodes(plan: dict[str, object]) -> Iterator[dict[str, object]]:
    yield plan
    below = plan.get("Plans", [])
    assert isinstance(below, list)
    for each in below:
        yield from nodes(each)


def pages(node: dict[str, object]) -> int:
    return int(str(node["Shared Hit Blocks"])) + int(str(node["Shared Read Blocks"]))


async def test_a_position_of_ours_can_be_gone_on_from_and_others_cannot(pool: Pool):
    here = await settled(pool)
    assert await can_go_on(pool, here)
    assert await can_go_on(pool, here._replace(tx=3, kind=2, seq=1))
    assert not await can_go_on(pool, here._replace(tx=here.tx + 1_000_000))
    assert not await can_go_on(pool, here._replace(at=here.at + 10 * 86_400))
    assert not await can_go_on(pool, here._replace(at=0))


async def test_a_position_from_before_the_oldest_month_is_gone(pool: Pool):
    here = await settled(pool)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        # Thirteen months later, the month of this position is dropped.
        then = datetime.fromtimestamp(here.at, tz=UTC)
        await timeline.keep_months(connection, 13, now=then.replace(year=then.year + 2))
        kept = await connection.fetchval(changes.SQL["oldest"])
        await transaction.rollback()
    assert kept > here.at
    assert await pool.fetchval(changes.SQL["oldest"]) <= here.at
