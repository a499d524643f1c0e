"""The timeline: every event with its verdict, in the order of judging, a month a partition."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from onward.commands import (
    create_command,
    execute,
    get_timeline,
    new_command_id,
    record_event,
    record_events,
)
from onward.commands import event as made
from onward.store import timeline
from onward.store.transitions import Event
from tests.store.asking import one, rows, state_of

if TYPE_CHECKING:
    from onward.wiring import Onward

pytestmark = pytest.mark.usefixtures("opened")


def month(year: int, number: int, day: int = 15) -> datetime:
    return datetime(year, number, day, 12, tzinfo=UTC)


def months_from(at: datetime, count: int) -> list[str]:
    numbers = range(at.year * 12 + at.month - 1, at.year * 12 + at.month - 1 + count)
    return [f"timeline_{number // 12:04}{number % 12 + 1:02}" for number in numbers]


async def partitions() -> list[str]:
    found = await rows(
        "SELECT inhrelid::regclass::text FROM pg_inherits "
        "WHERE inhparent = 'timeline'::regclass ORDER BY 1"
    )
    return [name for (name,) in found if name != "timeline_default"]


async def places(cmd_id: str) -> list[str]:
    """The partition of each row of a command."""
    found = await rows(
        "SELECT tableoid::regclass::text FROM timeline WHERE cmd_id = $1 ORDER BY seq", cmd_id
    )
    return [name for (name,) in found]


async def keep(opened: Onward, kept: int, now: datetime) -> None:
    async with opened.commands.pool.acquire() as connection, connection.transaction():
        await timeline.keep_months(connection, kept, now=now)


async def say(opened: Onward, cmd_id: str, *moments: datetime) -> None:
    for moment in moments:
        await opened.commands.record_all([Event(cmd_id, "ack")], now=moment)


async def test_this_month_and_the_next_three_are_there():
    now = await one("SELECT now()")
    assert await partitions() == months_from(now, 4)


async def test_an_event_lands_in_its_month_to_the_microsecond(opened):
    await keep(opened, 1, month(2040, 11))
    cmd_id = new_command_id()
    await say(
        opened,
        cmd_id,
        datetime(2040, 11, 1, tzinfo=UTC),
        datetime(2040, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2040, 12, 1, tzinfo=UTC),
        datetime(2040, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2041, 1, 1, tzinfo=UTC),
    )
    assert await places(cmd_id) == [
        "timeline_204011",
        "timeline_204011",
        "timeline_204012",
        "timeline_204012",
        "timeline_204101",
    ]


async def test_a_month_that_ended_too_long_ago_is_dropped_whole(opened):
    await keep(opened, 1, month(2040, 1))
    cmd_id = new_command_id()
    await say(opened, cmd_id, *(month(2040, number) for number in (1, 2, 3, 4)))

    await keep(opened, 2, month(2040, 5, 1))

    assert await partitions() == [f"timeline_2040{number:02}" for number in range(3, 9)]
    assert [line["at"] for line in await get_timeline(cmd_id)] == [month(2040, 3), month(2040, 4)]


async def test_keeping_months_again_changes_nothing(opened):
    before = await rows("SELECT oid, xmin::text FROM pg_class ORDER BY oid")
    await keep(opened, 13, await one("SELECT now()"))
    assert await rows("SELECT oid, xmin::text FROM pg_class ORDER BY oid") == before


async def test_what_came_before_its_month_was_made_moves_into_it(opened):
    cmd_id = new_command_id()
    await say(opened, cmd_id, month(2040, 5), month(2040, 6), month(2050, 1))
    before = await get_timeline(cmd_id)
    assert await places(cmd_id) == ["timeline_default"] * 3

    await keep(opened, 1, month(2040, 5))

    assert await places(cmd_id) == ["timeline_204005", "timeline_204006", "timeline_default"]
    assert await get_timeline(cmd_id) == before


async def test_events_are_told_in_the_order_of_judging_whatever_their_time(opened):
    """The clock of the second one is behind: its month is another, and its place is the same."""
    await keep(opened, 1, month(2040, 1))
    cmd_id = state_of(await create_command()).cmd_id
    for event, moment in [
        ("send", month(2040, 3)),
        ("ack", month(2040, 1)),
        ("done", month(2040, 2)),
    ]:
        await opened.commands.record_all([Event(cmd_id, event)], now=moment)
    told = await get_timeline(cmd_id)
    assert [line["event"] for line in told] == ["create", "send", "ack", "done"]
    sequence = [int(str(line["seq"])) for line in told]
    assert sequence == sorted(set(sequence))


async def test_events_of_one_command_in_one_batch_keep_their_order():
    cmd_id = state_of(await create_command()).cmd_id
    said = ["ack", "send", "ack", "done", "done", "fail"]
    await record_events([made(cmd_id, name) for name in said])
    told = (await get_timeline(cmd_id))[1:]
    assert [line["event"] for line in told] == said
    assert [line["verdict"] for line in told] == [
        "OK",
        "STALE",
        "DUPLICATE",
        "OK",
        "TERMINAL",
        "TERMINAL",
    ]


async def test_an_ignored_event_is_told_with_all_that_came_along():
    cmd_id = state_of(await create_command()).cmd_id
    await record_event(cmd_id, "done", source="node-1", duration_ms=5)
    await record_event(cmd_id, "fail", source="node-2", error_code=7, note="why not")
    told = (await get_timeline(cmd_id))[-1]
    assert told["detail"] == {"error_code": "7", "note": "why not"}
    assert (told["source"], told["verdict"]) == ("node-2", "TERMINAL")
    assert (told["from_status"], told["to_status"]) == ("DONE", "DONE")


async def test_an_event_that_no_lifecycle_has_is_told_too():
    cmd_id = state_of(await create_command()).cmd_id
    await record_event(cmd_id, "explode")
    told = (await get_timeline(cmd_id))[-1]
    assert (told["event"], told["verdict"], told["to_status"]) == (
        "explode",
        "INVALID_STATE",
        "QUEUED",
    )


async def test_an_event_for_a_command_that_nobody_knows_is_told_too():
    cmd_id = new_command_id()
    await record_event(cmd_id, "done", source="node-1", duration_ms=5)
    (told,) = await get_timeline(cmd_id)
    assert (told["event"], told["verdict"]) == ("done", "UNKNOWN_COMMAND")
    assert (told["from_status"], told["to_status"], told["epoch"]) == (None, None, None)
    assert told["detail"] == {"duration_ms": 5}


async def test_a_former_attempt_that_speaks_is_told_with_its_own_epoch():
    state = state_of(await create_command(lifecycle="execution"))
    await record_event(state.cmd_id, "plan")
    await record_event(state.cmd_id, "claim")
    await record_event(state.cmd_id, "succeed", epoch=state.epoch)
    told = (await get_timeline(state.cmd_id))[-1]
    assert (told["verdict"], told["epoch"]) == ("STALE_EPOCH", state.epoch)
    assert told["to_status"] == "RUNNING"


async def test_a_command_that_is_removed_leaves_its_timeline():
    cmd_id = state_of(await create_command()).cmd_id
    await execute("DELETE FROM commands WHERE cmd_id = $1", cmd_id)
    await record_event(cmd_id, "ack")
    told = [(line["event"], line["verdict"]) for line in await get_timeline(cmd_id)]
    assert told == [("create", "OK"), ("ack", "UNKNOWN_COMMAND")]


async def test_a_command_s_timeline_is_found_by_the_index():
    await execute(
        "INSERT INTO timeline (cmd_id, event, verdict) "
        "SELECT gen_random_uuid(), 'ack', 'OK' FROM generate_series(1, 20000)"
    )
    await execute("ANALYZE timeline")
    plan = await rows("EXPLAIN SELECT * FROM timeline WHERE cmd_id = $1", new_command_id())
    text = "\n".join(line for (line,) in plan)
    (this_month,) = months_from(await one("SELECT now()"), 1)
    assert f"Seq Scan on {this_month}" not in text
    assert "Index" in text
