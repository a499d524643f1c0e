"""Single calls that share a COMMIT: each with its own verdict, none before it is durable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from onward import commands
from onward.core.verdicts import TransitionResult as Result
from onward.errors import ServerUnreachable
from onward.store.database import connect
from onward.wiring import Onward
from tests.proof_table import Tried
from tests.races.stage import Connection

BOUND_S = 20.0

pytestmark = pytest.mark.usefixtures("opened")


@pytest.fixture
async def outside(opened: Onward) -> AsyncIterator[Connection]:
    """A connection that is not of the pool: it sees what is committed, and can hold a row."""
    connection = await connect(opened.database_url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def observer(opened: Onward) -> AsyncIterator[Connection]:
    """Another one, to look on while the first one is busy."""
    connection = await connect(opened.database_url)
    try:
        yield connection
    finally:
        await connection.close()


async def new_commands(number: int) -> list[str]:
    made = await asyncio.gather(*(commands.create_command() for _ in range(number)))
    return [answer.record.cmd_id for answer in made if answer.record]


async def until_waits_for(observer: Connection, pid: int) -> int:
    """Wait until some backend waits for `pid`, and say which."""
    async with asyncio.timeout(BOUND_S):
        while True:
            found = await observer.fetchval(
                "SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) LIMIT 1",
                pid,
            )
            if found is not None:
                return int(found)


async def test_every_caller_gets_its_own_verdict(tried: Tried):
    """A storm of calls over commands in different statuses; each answer names its own command."""
    ids = await new_commands(300)
    await commands.record_events([commands.event(cmd_id, "done") for cmd_id in ids[:100]])
    await commands.record_events([commands.event(cmd_id, "ack") for cmd_id in ids[100:200]])
    unknown = [commands.new_command_id() for _ in range(100)]

    answers = await asyncio.gather(
        *(commands.mark_command_ack(cmd_id) for cmd_id in (*ids, *unknown))
    )

    assert [answer.record and answer.record.cmd_id for answer in answers] == [*ids, *[None] * 100]
    assert [answer.result for answer in answers] == (
        [Result.TERMINAL] * 100
        + [Result.DUPLICATE] * 100
        + [Result.OK] * 100
        + [Result.UNKNOWN_COMMAND] * 100
    )
    tried("callers that shared commits", len(answers), "each got its own verdict")


async def test_no_caller_is_answered_before_its_commit(outside: Connection, observer: Connection):
    """The statement is through, and the COMMIT is made to wait: so does the caller."""
    await outside.execute(
        """
        CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END';
        CREATE CONSTRAINT TRIGGER wait_at_commit AFTER UPDATE ON commands
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_commit();
        """
    )
    ids = await new_commands(3)
    await outside.execute("SELECT pg_advisory_lock(4711)")

    calls = [asyncio.create_task(commands.mark_command_ack(cmd_id)) for cmd_id in ids]
    await until_waits_for(observer, outside.get_server_pid())
    statuses = "SELECT DISTINCT status FROM commands WHERE cmd_id = ANY ($1)"
    assert [row["status"] for row in await observer.fetch(statuses, ids)] == ["QUEUED"]
    assert not any(call.done() for call in calls)

    await outside.execute("SELECT pg_advisory_unlock(4711)")
    async with asyncio.timeout(BOUND_S):
        answers = await asyncio.gather(*calls)
    assert {answer.result for answer in answers} == {Result.OK}
    assert [row["status"] for row in await observer.fetch(statuses, ids)] == ["ACK"]


async def test_an_answer_is_visible_to_everybody_at_once(opened: Onward, tried: Tried):
    """Each caller looks from another connection as soon as it is answered."""
    ids = await new_commands(200)

    async def say_and_look(cmd_id: str) -> object:
        answer = await commands.mark_command_done(cmd_id)
        row = await opened.commands.pool.fetchrow(
            "SELECT status, version FROM commands WHERE cmd_id = $1", cmd_id
        )
        return answer.record and row and (answer.record.status, answer.record.version) == tuple(row)

    assert all(await asyncio.gather(*(say_and_look(cmd_id) for cmd_id in ids)))
    tried("answers looked up from another connection at once", len(ids), "all visible")


@pytest.mark.parametrize("event", ["send", "ack", "done", "timeout"])
async def test_of_many_who_say_the_same_one_is_right(tried: Tried, event: str):
    (cmd_id,) = await new_commands(1)
    answers = await asyncio.gather(*(commands.record_event(cmd_id, event) for _ in range(200)))
    assert Counter(answer.changed for answer in answers) == {True: 1, False: 199}
    assert len({answer.result for answer in answers}) == 2
    lines = await commands.get_timeline(cmd_id)
    assert Counter(line["verdict"] for line in lines if line["event"] == event) == Counter(
        answer.result.value for answer in answers
    )
    tried("callers of one event on one command", len(answers), "one OK each")


async def test_of_many_who_create_the_same_one_makes_it():
    cmd_id = commands.new_command_id()
    answers = await asyncio.gather(*(commands.create_command(cmd_id) for _ in range(100)))
    assert Counter(answer.result for answer in answers) == {Result.OK: 1, Result.DUPLICATE: 99}


async def test_a_cancelled_caller_takes_nobody_along(outside: Connection, observer: Connection):
    """It is cancelled while its group waits for a row; the others are answered all the same."""
    first, second, third = await new_commands(3)
    async with outside.transaction():
        await outside.execute("SELECT FROM commands WHERE cmd_id = $1 FOR UPDATE", first)
        calls = [
            asyncio.create_task(commands.mark_command_ack(cmd_id))
            for cmd_id in (first, second, third)
        ]
        await until_waits_for(observer, outside.get_server_pid())
        calls[1].cancel()
    async with asyncio.timeout(BOUND_S):
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert [getattr(outcomes[n], "result", None) for n in (0, 2)] == [Result.OK, Result.OK]
    # It was on its way already: cancelling takes nothing back.
    row = await commands.get_command(second)
    assert row is not None
    assert row["status"] == "ACK"


async def test_a_caller_cancelled_before_its_group_leaves_takes_nobody_along():
    ids = await new_commands(3)
    calls = [asyncio.create_task(commands.mark_command_ack(cmd_id)) for cmd_id in ids]
    await asyncio.sleep(0)  # the calls are handed in, and the group has not left
    calls[0].cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert [getattr(outcomes[n], "result", None) for n in (1, 2)] == [Result.OK, Result.OK]


async def test_a_killed_backend_is_told_to_its_callers_and_to_nobody_else(
    outside: Connection, observer: Connection
):
    """The group is held at a row, and its backend killed there: nothing of it was taken."""
    held, *others = await new_commands(4)
    async with outside.transaction():
        await outside.execute("SELECT FROM commands WHERE cmd_id = $1 FOR UPDATE", held)
        calls = [
            asyncio.create_task(commands.mark_command_ack(cmd_id)) for cmd_id in (held, *others)
        ]
        backend = await until_waits_for(observer, outside.get_server_pid())
        # Whoever comes now goes with another connection, and is not held up.
        (late,) = await new_commands(1)
        assert (await commands.mark_command_ack(late)).result is Result.OK
        assert await observer.fetchval("SELECT pg_terminate_backend($1)", backend)
        async with asyncio.timeout(BOUND_S):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ServerUnreachable] * 4

    answers = await asyncio.gather(
        *(commands.mark_command_ack(cmd_id) for cmd_id in (held, *others, late))
    )
    assert [answer.result for answer in answers] == [Result.OK] * 4 + [Result.DUPLICATE]


async def test_a_thousand_calls_share_their_commits(tried: Tried):
    """Counted by the transactions that wrote the timeline, which is exact."""
    ids = await new_commands(1_000)
    answers = await asyncio.gather(*(commands.mark_command_ack(cmd_id) for cmd_id in ids))
    assert {answer.result for answer in answers} == {Result.OK}
    ((commits,),) = await commands.fetch(
        "SELECT count(DISTINCT xmin::text) FROM timeline WHERE event = 'ack' AND cmd_id = ANY ($1)",
        ids,
    )
    assert 1 <= commits < 500
    tried("single calls that shared commits", len(ids), f"{commits} commits")
