"""A deadline that passes is an event like any other: judged once, by whoever sweeps first."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onward.commands import (
    create_command,
    execute,
    expire_due,
    fetch,
    get_timeline,
    new_command_id,
    record_event,
)
from onward.core.lifecycles import LIFECYCLES
from onward.core.verdicts import TransitionResult
from onward.store.commands import NewCommand
from onward.store.transitions import SQL, Event
from tests.store.asking import BOUND_S, row_of, rows, state_of

pytestmark = pytest.mark.usefixtures("opened")

OK, TERMINAL = TransitionResult.OK, TransitionResult.TERMINAL
SWEEPER = Path(__file__).with_name("sweeper.py")
A_DAY = timedelta(days=1)
# Tomorrow: a sweep that takes the time from the database finds nothing due.
T0 = datetime.now(UTC).replace(microsecond=0) + A_DAY


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


async def made(opened, *, lifecycle: str = "node", timeout_s: float = 10.0) -> str:
    """Make a command at T0."""
    cmd_id = new_command_id()
    new = NewCommand(cmd_id, lifecycle, "", "", None, "{}", timeout_s, "")
    await opened.commands.create_all([new], now=T0)
    return cmd_id


async def many_due(count: int) -> set[str]:
    """Make commands whose deadline passed a moment ago, without the wait for it."""
    made = await fetch(
        "INSERT INTO commands (cmd_id, lifecycle, status, timeout_s, deadline_at) "
        "SELECT gen_random_uuid(), 'node', (ARRAY['QUEUED', 'SENT', 'ACK'])[1 + n % 3], 1, "
        "       now() - interval '1 s' FROM generate_series(1, $1) n RETURNING cmd_id",
        count,
    )
    return {str(cmd_id) for (cmd_id,) in made}


async def test_a_deadline_expires_when_it_has_passed_and_not_before(opened):
    cmd_id = await made(opened, timeout_s=10)
    assert await expire_due() == []
    assert await expire_due(now=after(10) - timedelta(microseconds=1)) == []

    (moved,) = await expire_due(now=after(10))

    assert (moved.result, moved.changed) == (OK, True)
    assert (state_of(moved).cmd_id, state_of(moved).status) == (cmd_id, "TIMEOUT")
    row = await row_of(cmd_id)
    assert (row["status"], row["finished_at"], row["deadline_at"]) == ("TIMEOUT", after(10), None)
    assert await expire_due(now=after(10)) == []


async def test_the_timeline_says_that_it_was_the_deadline(opened):
    cmd_id = await made(opened)
    await record_event(cmd_id, "send")
    await expire_due(now=after(11))
    told = (await get_timeline(cmd_id))[-1]
    assert [told[name] for name in ("event", "source", "verdict", "from_status", "to_status")] == [
        "timeout",
        "deadline",
        "OK",
        "SENT",
        "TIMEOUT",
    ]
    assert told["at"] == after(11)


async def test_moving_on_does_not_move_the_deadline(opened):
    cmd_id = await made(opened)
    for seconds, event in [(1, "send"), (2, "ack")]:
        await opened.commands.record_all([Event(cmd_id, event)], now=after(seconds))
        assert (await row_of(cmd_id))["deadline_at"] == after(10)


async def test_every_status_that_a_timeout_leaves_expires_and_no_other():
    """Each is put into its status by hand, with a deadline that has passed."""
    expected = {}
    for name, lifecycle in LIFECYCLES.items():
        for status in lifecycle.states:
            cmd_id = state_of(await create_command(lifecycle=name)).cmd_id
            await execute(
                "UPDATE commands SET status = $2, deadline_at = now() WHERE cmd_id = $1",
                cmd_id,
                status,
            )
            timeout = lifecycle.moves.get("timeout")
            leaves = timeout is not None and status in timeout.sources
            expected[cmd_id] = "TIMEOUT" if leaves else str(status)

    moved = await expire_due()

    found = {
        str(cmd_id): status for cmd_id, status in await rows("SELECT cmd_id, status FROM commands")
    }
    assert found == expected
    assert {move.result for move in moved} == {OK}


@pytest.mark.parametrize(
    ("lifecycle", "events", "status"),
    [("node", ["send_fail"], "SEND_FAILED"), ("platform", ["send", "deliver"], "DELIVERED")],
)
async def test_a_status_that_no_timeout_leaves_never_expires_but_falls_due(
    opened, lifecycle, events, status
):
    cmd_id = await made(opened, lifecycle=lifecycle)
    for event in events:
        await opened.commands.record_all([Event(cmd_id, event)], now=after(1))
    assert await expire_due(now=T0 + 1_000 * A_DAY) == []
    row = await row_of(cmd_id)
    assert (row["status"], row["deadline_at"]) == (status, None)
    # When somebody should look is when it would have expired.
    assert row["due_at"] == (after(10) if lifecycle == "node" else after(11))


async def test_sending_again_arms_the_deadline_anew(opened):
    cmd_id = await made(opened)
    for seconds, event in [(1, "send_fail"), (100, "send")]:
        (answer,) = await opened.commands.record_all([Event(cmd_id, event)], now=after(seconds))
        assert answer.changed
    row = await row_of(cmd_id)
    assert (row["deadline_at"], row["due_at"]) == (after(110), None)
    assert await expire_due(now=after(109)) == []
    assert len(await expire_due(now=after(110))) == 1


async def test_one_sweep_takes_all_that_is_due_however_many():
    due = await many_due(2_500)
    moved = await expire_due()
    assert len(moved) == len(due)
    assert {state_of(move).cmd_id for move in moved} == due


async def test_sweepers_of_one_process_share_the_work_exactly():
    due = await many_due(5_000)
    shares = await asyncio.gather(*(expire_due() for _ in range(6)))
    moved = [state_of(move).cmd_id for share in shares for move in share]
    assert len(moved) == len(due)
    assert set(moved) == due
    assert await timeouts_told() == [(1, len(due))]


async def test_sweepers_of_several_processes_share_the_work_exactly(database_url, proof):
    due = await many_due(50_000 if proof else 6_000)
    programs = [
        subprocess.Popen(  # noqa: ASYNC220 - started here, awaited in a thread below
            [sys.executable, SWEEPER, database_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for program in programs:
            assert program.stdout is not None
            assert await asyncio.to_thread(program.stdout.readline) == "open\n"
        shares = await asyncio.gather(
            *(asyncio.to_thread(program.communicate, "now\n", BOUND_S * 4) for program in programs)
        )
    finally:
        for program in programs:
            program.kill()
    moved = [tuple(move) for told, _ in shares for move in json.loads(told)]
    assert len(moved) == len(due)
    assert set(moved) == {(cmd_id, "OK") for cmd_id in due}
    assert await timeouts_told() == [(1, len(due))]


async def test_a_sweep_does_not_wait_for_a_row_that_somebody_holds(opened):
    held, free = sorted(await many_due(2))
    async with opened.commands.pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM commands WHERE cmd_id = $1 FOR UPDATE", held)
        async with asyncio.timeout(BOUND_S):
            moved = await expire_due()
        assert [state_of(move).cmd_id for move in moved] == [free]
    assert [state_of(move).cmd_id for move in await expire_due()] == [held]


async def test_an_event_that_was_there_first_keeps_its_command_from_expiring(opened):
    """The sweep runs while DONE is judged and not yet committed, and again when it is."""
    cmd_id = next(iter(await many_due(1)))
    async with opened.commands.pool.acquire() as node, node.transaction():
        await node.fetch(SQL["record_events"], [cmd_id], ["done"], [None], [""], [None], [1], None)
        assert await expire_due() == []
    assert await expire_due() == []
    assert (await row_of(cmd_id))["status"] == "DONE"


async def test_rows_that_were_ended_by_hand_do_not_keep_a_sweep_busy():
    """More than a sweep takes at once, all with a deadline before that of the one that is due."""
    await many_due(1_500)
    await execute("UPDATE commands SET status = 'DONE', deadline_at = now() - interval '1 day'")
    due = await many_due(1)
    async with asyncio.timeout(BOUND_S):
        moved = await expire_due()
    assert {state_of(move).cmd_id for move in moved} == due


async def test_the_first_result_after_a_timeout_is_kept_and_stays():
    cmd_id = next(iter(await many_due(1)))
    await expire_due()

    late = await record_event(cmd_id, "done", duration_ms=5, result={"ml": 250})
    later = await record_event(cmd_id, "fail", error_code="E1")

    assert (late.result, later.result) == (TERMINAL, TERMINAL)
    row = await row_of(cmd_id)
    assert (row["status"], row["duration_ms"], row["error_code"]) == ("TIMEOUT", None, None)
    kept = row["late_result"]
    assert (kept["event"], kept["duration_ms"], kept["result"]) == ("done", 5, {"ml": 250})
    told = [(line["event"], line["verdict"]) for line in await get_timeline(cmd_id)]
    assert told[-2:] == [("done", "TERMINAL"), ("fail", "TERMINAL")]


async def test_what_is_no_result_is_not_kept_as_one():
    cmd_id = next(iter(await many_due(1)))
    await expire_due()
    for event in ("ack", "send", "timeout", "no such event"):
        await record_event(cmd_id, event)
    assert (await row_of(cmd_id))["late_result"] is None


async def test_a_sweep_finds_what_is_due_by_the_index():
    await execute(
        "INSERT INTO commands (cmd_id, lifecycle, status, timeout_s, deadline_at) "
        "SELECT gen_random_uuid(), 'node', 'SENT', 1, now() + n * interval '1 s' "
        "  FROM generate_series(-50, 50000) n"
    )
    await execute("ANALYZE commands")
    plan = "\n".join(line for (line,) in await rows(f"EXPLAIN {SQL['expire_due']}", None, 1_000))
    assert "Index Scan using commands_deadline on commands" in plan
    assert "Seq Scan" not in plan


async def timeouts_told() -> list[tuple[int, int]]:
    """How many commands have how many timeouts that were taken."""
    return await rows(
        "SELECT times, count(*) FROM (SELECT count(*) AS times FROM timeline "
        "WHERE event = 'timeout' AND verdict = 'OK' GROUP BY cmd_id) t GROUP BY times"
    )
