"""A command is made once: who says so again is told what is there, and changes nothing."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onward.commands import (
    create_command,
    execute,
    get_command,
    get_timeline,
    new_command_id,
    record_event,
)
from onward.core.lifecycles import LIFECYCLES
from onward.core.verdicts import TransitionResult
from onward.store.commands import NewCommand
from tests.store.asking import one, row_of, rows, state_of, until_blocked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from onward.store.database import Connection
    from onward.wiring import Onward

OK, DUPLICATE, CONFLICT = (
    TransitionResult.OK,
    TransitionResult.DUPLICATE,
    TransitionResult.CONFLICT,
)
CONTENT: dict[str, Any] = {
    "type": "pump.on",
    "params": {"ml": 250, "zone": {"a": 1, "b": [1, 2]}},
    "node": "greenhouse-1",
    "task_id": "t-1",
    "timeout_s": 12.5,
}
OTHER_CONTENT: list[dict[str, Any]] = [
    {"type": "pump.off"},
    {"params": {"ml": 251, "zone": {"a": 1, "b": [1, 2]}}},
    {"params": {"ml": 250, "zone": {"a": 1, "b": [2, 1]}}},
    {"params": None},
    {"node": "greenhouse-2"},
    {"task_id": "t-2"},
    {"task_id": None},
    {"timeout_s": 12.0},
    {"lifecycle": "platform"},
]

# One id's own number, so that the order of ids is the order of these numbers.
ID = "00000000-0000-7000-8000-{:012}".format


pytestmark = pytest.mark.usefixtures("opened")


def wanted(cmd_id: str, **changes: object) -> NewCommand:
    plain = NewCommand(
        cmd_id=cmd_id,
        lifecycle="node",
        node="",
        type="",
        task_id=None,
        params="{}",
        timeout_s=300.0,
        source="",
    )
    return plain._replace(**changes)  # type: ignore[arg-type]  # the caller's own


@asynccontextmanager
async def held(opened: Onward, *cmd_ids: str, keep: bool) -> AsyncIterator[Connection]:
    """Hold commands inserted and not committed; in the end commit them, or take them back."""
    async with opened.commands.pool.acquire() as holder:
        transaction = holder.transaction()
        await transaction.start()
        await holder.executemany(
            "INSERT INTO commands (cmd_id, lifecycle, status, timeout_s) "
            "VALUES ($1, 'node', 'QUEUED', 300)",
            [(cmd_id,) for cmd_id in cmd_ids],
        )
        yield holder
        await (transaction.commit() if keep else transaction.rollback())


async def test_a_new_command_is_in_the_first_status_of_its_lifecycle_with_one_clock():
    for name, lifecycle in LIFECYCLES.items():
        answer = await create_command(lifecycle=name)
        assert (answer.result, answer.changed) == (OK, True)
        row = await row_of(state_of(answer).cmd_id)
        assert (row["lifecycle"], row["status"]) == (name, lifecycle.initial)
        assert row["version"] == state_of(answer).version == 1
        assert row["epoch"] == state_of(answer).epoch
        assert (row["deadline_at"] is None) != (row["due_at"] is None)


async def test_what_was_given_is_what_is_stored():
    cmd_id = new_command_id()
    await create_command(cmd_id, **CONTENT, source="test")
    row = await row_of(cmd_id)
    assert {name: row[name] for name in CONTENT} == CONTENT
    assert row["deadline_at"] - row["created_at"] == timedelta(seconds=12.5)
    (created,) = await get_timeline(cmd_id)
    assert (created["event"], created["verdict"], created["source"]) == ("create", "OK", "test")


async def test_an_id_in_another_spelling_is_the_same_command():
    cmd_id = new_command_id()
    await create_command(cmd_id)
    for spelling in (
        cmd_id.upper(),
        f"{{{cmd_id}}}",
        cmd_id.replace("-", ""),
        f"urn:uuid:{cmd_id}",
    ):
        answer = await create_command(spelling)
        assert (answer.result, state_of(answer).cmd_id) == (DUPLICATE, cmd_id)


async def test_the_same_again_is_a_duplicate_and_changes_nothing():
    cmd_id = new_command_id()
    await create_command(cmd_id, **CONTENT)
    before = await row_of(cmd_id)
    answer = await create_command(cmd_id, **CONTENT)
    assert (answer.result, answer.changed) == (DUPLICATE, False)
    assert await row_of(cmd_id) == before
    assert [row["verdict"] for row in await get_timeline(cmd_id)] == ["OK", "DUPLICATE"]


async def test_another_content_is_a_conflict_that_says_so_and_changes_nothing():
    cmd_id = new_command_id()
    await create_command(cmd_id, **CONTENT)
    before = await row_of(cmd_id)
    for change in OTHER_CONTENT:
        answer = await create_command(cmd_id, **{**CONTENT, **change})
        assert (answer.result, answer.changed) == (CONFLICT, False), change
        assert "another content" in answer.result.meaning
        assert state_of(answer).cmd_id == cmd_id
    assert await row_of(cmd_id) == before
    told = [row["verdict"] for row in await get_timeline(cmd_id)]
    assert told == ["OK", *["CONFLICT"] * len(OTHER_CONTENT)]


async def test_the_order_of_keys_and_the_spelling_of_numbers_are_not_content():
    cmd_id = new_command_id()
    await create_command(cmd_id, params={"a": 1, "b": {"c": 2, "d": 3}})
    again = await create_command(cmd_id, params={"b": {"d": 3.0, "c": 2}, "a": 1.0})
    assert again.result is DUPLICATE


async def test_creating_again_never_resets_a_command_that_moved_or_ended():
    cmd_id = new_command_id()
    await create_command(cmd_id, **CONTENT)
    for event, status in [("send", "SENT"), ("done", "DONE")]:
        await record_event(cmd_id, event)
        before = await row_of(cmd_id)
        same = await create_command(cmd_id, **CONTENT)
        other = await create_command(cmd_id, type="something else")
        assert (same.result, other.result) == (DUPLICATE, CONFLICT)
        assert state_of(same).status == state_of(other).status == status
        assert await row_of(cmd_id) == before


@pytest.mark.parametrize(("loser_type", "verdict"), [("a", DUPLICATE), ("b", CONFLICT)])
async def test_of_two_creators_at_once_one_makes_it_and_the_other_is_told(
    opened, loser_type, verdict
):
    """Both wait for a third that then takes its own back: forced, not hoped for."""
    cmd_id = ID(1)
    creators = []
    async with opened.commands.pool.acquire() as watcher:
        async with held(opened, cmd_id, keep=False) as holder:
            for kind in ("a", loser_type):
                creator = opened.commands.create_all([wanted(cmd_id, type=kind)])
                creators.append(asyncio.create_task(creator))
            await until_blocked(watcher, by=holder.get_server_pid(), waiting=2)
        answers = [answer for creator in creators for answer in await creator]
    assert sorted(answer.result for answer in answers) == sorted([OK, verdict])
    assert {state_of(answer) for answer in answers} == {state_of(answers[0])}
    assert await one("SELECT count(*) FROM commands") == 1


@pytest.mark.parametrize(("kind", "verdict"), [("", DUPLICATE), ("b", CONFLICT)])
async def test_a_creator_that_waited_for_one_that_committed_sees_what_it_made(
    opened, kind, verdict
):
    """The row is newer than the snapshot of the statement that ran into it."""
    cmd_id = ID(1)
    async with opened.commands.pool.acquire() as watcher:
        async with held(opened, cmd_id, keep=True) as holder:
            late = asyncio.create_task(opened.commands.create_all([wanted(cmd_id, type=kind)]))
            await until_blocked(watcher, by=holder.get_server_pid())
        (answer,) = await late
    assert (answer.result, state_of(answer).cmd_id) == (verdict, cmd_id)


async def test_creators_of_the_same_many_in_any_order_share_them_without_a_deadlock(opened):
    rng = random.Random(4)
    ids = [new_command_id() for _ in range(300)]

    async def create(kind: str) -> list[TransitionResult]:
        order = rng.sample(ids, len(ids))
        answers = await opened.commands.create_all([wanted(c, type=kind) for c in order])
        assert [state_of(answer).cmd_id for answer in answers] == order
        return [answer.result for answer in answers]

    told = await asyncio.gather(*(create(kind) for kind in "aabb"))
    flat = [result for results in told for result in results]
    assert flat.count(OK) == len(ids)
    assert set(flat) == {OK, DUPLICATE, CONFLICT}
    assert await one("SELECT count(*) FROM commands") == len(ids)


async def test_single_calls_at_once_with_one_id_are_one_ok():
    cmd_id = new_command_id()
    answers = await asyncio.gather(*(create_command(cmd_id, type=str(n % 2)) for n in range(20)))
    results = [answer.result for answer in answers]
    assert results.count(OK) == 1
    assert (results.count(DUPLICATE), results.count(CONFLICT)) == (9, 10)


async def test_one_id_twice_in_a_batch_is_made_by_the_first_of_them(opened):
    one, two = ID(1), ID(2)
    batch = [
        wanted(two, type="b"),
        wanted(one, type="a"),
        wanted(one, type="a"),
        wanted(one, type="other"),
        wanted(two, type="b"),
    ]
    answers = await opened.commands.create_all(batch)
    assert [answer.result for answer in answers] == [OK, OK, DUPLICATE, CONFLICT, DUPLICATE]
    assert [state_of(answer).cmd_id for answer in answers] == [two, one, one, one, two]
    assert await rows("SELECT type FROM commands ORDER BY cmd_id") == [("a",), ("b",)]


async def test_the_very_same_item_twice_in_a_batch_is_a_duplicate(opened):
    item = wanted(ID(1))
    answers = await opened.commands.create_all([item, item])
    assert [answer.result for answer in answers] == [OK, DUPLICATE]


async def test_a_task_that_belongs_to_another_command_is_a_conflict_without_a_row():
    owner, other = new_command_id(), new_command_id()
    await create_command(owner, task_id="64", node="1")
    answer = await create_command(other, task_id=64, node="1")
    assert answer == (None, CONFLICT, False)
    assert await get_command(other) is None
    assert [row["verdict"] for row in await get_timeline(other)] == ["CONFLICT"]
    elsewhere = await create_command(other, task_id=64, node="2")
    assert elsewhere.result is OK


async def test_creators_that_claim_the_same_tasks_in_opposite_order_do_not_deadlock(opened):
    """Each has claimed one task and waits for a third; then each asks for the other's task."""
    batches = [
        [wanted(ID(11), task_id="x"), wanted(ID(12)), wanted(ID(13), task_id="y")],
        [wanted(ID(21), task_id="y"), wanted(ID(22)), wanted(ID(23), task_id="x")],
    ]
    async with opened.commands.pool.acquire() as watcher:
        async with held(opened, ID(12), ID(22), keep=False) as holder:
            creators = [asyncio.create_task(opened.commands.create_all(b)) for b in batches]
            await until_blocked(watcher, by=holder.get_server_pid(), waiting=2)
        told = await asyncio.gather(*creators)
    results = [answer.result for answers in told for answer in answers]
    assert sorted(results) == sorted([OK] * 4 + [CONFLICT] * 2)


async def test_a_big_batch_answers_each_in_its_place(opened):
    """Larger than a statement; made, repeated and contradicted in a mixed order."""
    rng = random.Random(3)
    fresh, repeated, changed = ([new_command_id() for _ in range(4_000)] for _ in range(3))
    before = [wanted(c, params='{"n": 1}') for c in repeated + changed]
    assert {a.result for a in await opened.commands.create_all(before)} == {OK}
    await execute("ANALYZE commands")

    batch = [
        *((wanted(c, params='{"n": 1}'), OK) for c in fresh),
        *((wanted(c, params='{"n": 1.0}'), DUPLICATE) for c in repeated),
        *((wanted(c, params=json.dumps({"n": 2})), CONFLICT) for c in changed),
    ]
    rng.shuffle(batch)
    answers = await opened.commands.create_all([command for command, _ in batch])

    assert [state_of(a).cmd_id for a in answers] == [command.cmd_id for command, _ in batch]
    assert [a.result for a in answers] == [expected for _, expected in batch]
    assert await one("SELECT count(*) FROM commands") == 12_000


async def test_a_few_among_many_are_answered_each_in_its_place(opened):
    """So few that the planner may find it cheaper to walk the table than the list given."""
    ids = [new_command_id() for _ in range(50)]
    await opened.commands.create_all([wanted(c) for c in ids])
    await execute("ANALYZE commands")
    batch = [
        (wanted(c, type="" if position % 2 else "other"), DUPLICATE if position % 2 else CONFLICT)
        for position, c in enumerate(random.Random(5).sample(ids, 10))
    ]
    answers = await opened.commands.create_all([command for command, _ in batch])
    assert [state_of(a).cmd_id for a in answers] == [command.cmd_id for command, _ in batch]
    assert [a.result for a in answers] == [expected for _, expected in batch]


async def test_the_timeline_names_the_source_of_each_of_a_batch(opened):
    await opened.commands.create_all([wanted(ID(1)), wanted(ID(2))])
    batch = [wanted(ID(n), source=source) for n, source in [(1, "a"), (2, "b"), (3, "c"), (4, "d")]]
    await opened.commands.create_all(batch)
    for command in batch:
        assert (await get_timeline(command.cmd_id))[-1]["source"] == command.source
