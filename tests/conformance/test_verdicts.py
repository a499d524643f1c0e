"""One law, five readers: core, single call, one statement, one batch and the printed page agree.

Exhaustive: every lifecycle, every status, every event and one that nobody knows, said without an
epoch, with the present one and with a former one.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

import onward
from onward import commands
from onward.core.lifecycle import Lifecycle, Timer
from onward.core.lifecycles import LIFECYCLES
from onward.core.verdicts import TransitionResult as Result
from onward.store import schema, transitions
from onward.store.transitions import Answer, Event
from onward.wiring import Onward
from tests.conftest import settings_for
from tests.proof_table import Tried

PAGE = Path(__file__).parents[2] / "docs" / "lifecycles.md"
UNKNOWN_EVENT = "no_such_event"
NO_EPOCH, PRESENT, FORMER = "no epoch", "the present epoch", "a former epoch"


class Cell(NamedTuple):
    """One question to the law."""

    table: Lifecycle
    status: str
    event: str
    epoch: str

    @property
    def answer(self) -> tuple[Result, str]:
        """What the core says."""
        if self.epoch == FORMER:
            return Result.STALE_EPOCH, str(self.status)
        result, target = self.table.decide(self.status, self.event)
        return result, str(target)

    @property
    def kept_late(self) -> bool:
        return self.epoch != FORMER and self.table.keeps_late(self.status, self.event)

    @property
    def draws_epoch(self) -> bool:
        return self.answer[0] is Result.OK and self.table.moves[self.event].draws_epoch

    def __repr__(self) -> str:
        return f"{self.event} with {self.epoch} in {self.table.name} {self.status}"


CELLS = [
    Cell(table, status, event, epoch)
    for table in LIFECYCLES.values()
    for status in table.states
    for event in (*table.moves, UNKNOWN_EVENT)
    for epoch in (NO_EPOCH, PRESENT, FORMER)
]

Way = Callable[[Onward, Sequence[Event]], Awaitable[Sequence[Answer]]]


async def single_calls(_: Onward, events: Sequence[Event]) -> list[Answer]:
    return [
        await commands.record_event(event.cmd_id, event.event, epoch=event.epoch)
        for event in events
    ]


async def statements_of_one(opened: Onward, events: Sequence[Event]) -> list[Answer]:
    async with opened.commands.pool.acquire() as connection:
        return [(await transitions.record(connection, [event]))[0] for event in events]


async def one_batch(_: Onward, events: Sequence[Event]) -> list[Answer]:
    return await commands.record_events(events)


@pytest.fixture(autouse=True)
async def opened(database_url: str) -> AsyncIterator[Onward]:
    """Open without waiting for company: a single call is a statement of its own."""
    async with onward.open(settings_for(database_url, group_commit_ms=0)) as found:
        yield found


async def rows_by_id() -> dict[str, asyncpg.Record]:
    rows = await commands.fetch("SELECT * FROM commands")
    return {str(row["cmd_id"]): row for row in rows}


async def a_command_in_each(cells: Sequence[Cell]) -> list[str]:
    """Make a command for each cell, and put it into its status past the guard."""
    made = await asyncio.gather(
        *(commands.create_command(lifecycle=cell.table.name) for cell in cells)
    )
    ids = [answer.record.cmd_id for answer in made if answer.record]
    groups = defaultdict(list)
    for cmd_id, cell in zip(ids, cells, strict=True):
        groups[str(cell.status)].append(cmd_id)
    for status, group in groups.items():
        await commands.execute(
            "UPDATE commands SET status = $2 WHERE cmd_id = ANY ($1)", group, status
        )
    return ids


@pytest.mark.parametrize("way", [single_calls, statements_of_one, one_batch])
async def test_every_cell_has_the_verdict_of_the_core(opened: Onward, tried: Tried, way: Way):
    ids = await a_command_in_each(CELLS)
    before = await rows_by_id()
    epochs = {PRESENT: 0, FORMER: -1}
    events = [
        commands.event(
            cmd_id,
            cell.event,
            epoch=None if cell.epoch == NO_EPOCH else before[cmd_id]["epoch"] + epochs[cell.epoch],
        )
        for cmd_id, cell in zip(ids, CELLS, strict=True)
    ]

    answers = await way(opened, events)

    after = await rows_by_id()
    lines = defaultdict(list)
    for line in await commands.fetch("SELECT * FROM timeline WHERE event <> 'create' ORDER BY seq"):
        lines[str(line["cmd_id"])].append(line)
    for cell, cmd_id, answer in zip(CELLS, ids, answers, strict=True):
        told_and_kept_as_decided(cell, cmd_id, answer, after[cmd_id])
        nothing_else_changed(cell, before[cmd_id], after[cmd_id])
        one_line_tells_it(cell, lines[cmd_id])
    tried("verdicts of status × event × epoch, in SQL", len(CELLS), "all as the core decides")


def told_and_kept_as_decided(cell: Cell, cmd_id: str, answer: Answer, row: asyncpg.Record) -> None:
    result, status = cell.answer
    assert (answer.result, answer.changed) == (result, result is Result.OK), cell
    assert answer.record == (cmd_id, cell.table.name, status, row["epoch"], row["version"]), cell
    assert row["status"] == status, cell


def nothing_else_changed(cell: Cell, before: asyncpg.Record, after: asyncpg.Record) -> None:
    result, status = cell.answer
    assert (after["epoch"] > before["epoch"]) is cell.draws_epoch, cell
    assert (after["epoch"] == before["epoch"]) is not cell.draws_epoch, cell
    if result is Result.OK:
        assert after["late_result"] is None, cell
        assert after["version"] == before["version"] + 1, cell
        assert after["updated_at"] > before["updated_at"], cell
        watched_by_the_clock_of(cell.table, status, after)
    elif cell.kept_late:
        assert json.loads(after["late_result"] or "{}").get("event") == cell.event, cell
        assert after["version"] == before["version"] + 1, cell
    else:
        assert after == before, cell


def watched_by_the_clock_of(table: Lifecycle, status: str, row: asyncpg.Record) -> None:
    clocks = {
        Timer.DEADLINE: row["deadline_at"],
        Timer.DUE: row["due_at"],
        Timer.NONE: row["finished_at"],
    }
    running = {timer for timer, at in clocks.items() if at is not None}
    assert running == {table.timer(status)}, (table.name, status)


def one_line_tells_it(cell: Cell, lines: Sequence[asyncpg.Record]) -> None:
    result, status = cell.answer
    assert len(lines) == 1, cell
    (line,) = lines
    assert (line["event"], line["verdict"]) == (cell.event, result.value), cell
    assert (line["from_status"], line["to_status"]) == (cell.status, status), cell


async def test_a_command_that_nobody_knows_is_told_so_in_every_way(opened: Onward):
    for way in (single_calls, statements_of_one, one_batch):
        cmd_id = commands.new_command_id()
        (answer,) = await way(opened, [Event(cmd_id, "ack")])
        assert answer == (None, Result.UNKNOWN_COMMAND, False)
        (line,) = await commands.get_timeline(cmd_id)
        assert (line["verdict"], line["from_status"], line["to_status"]) == (
            "UNKNOWN_COMMAND",
            None,
            None,
        )


async def test_a_new_command_is_in_the_first_status_and_watched():
    for table in LIFECYCLES.values():
        answer = await commands.create_command(lifecycle=table.name)
        assert answer.record
        row = (await rows_by_id())[answer.record.cmd_id]
        assert row["status"] == answer.record.status == table.initial
        watched_by_the_clock_of(table, table.initial, row)


async def test_the_law_in_the_database_is_the_law_of_the_core(tried: Tried):
    columns = "lifecycle, event, status, verdict, target, timer, draws_epoch, keeps_late"
    stored = [tuple(row) for row in await commands.fetch(f"SELECT {columns} FROM law")]  # noqa: S608 - no text of a caller
    law = schema.law()
    assert Counter(stored) == Counter(law)
    assert {row[:3] for row in law} == {
        (cell.table.name, cell.event, cell.status) for cell in CELLS if cell.event != UNKNOWN_EVENT
    }
    for name, event, status, verdict, target, timer, draws_epoch, keeps_late in law:
        table = LIFECYCLES[name]
        assert (verdict, target) == table.decide(status, event)
        assert timer == table.timer(target)
        assert draws_epoch is table.moves[event].draws_epoch
        assert keeps_late is table.keeps_late(status, event)
    tried("rows of the law in the database", len(stored), "all as the core has them")


async def test_the_database_refuses_a_status_of_another_lifecycle(tried: Tried):
    words = {str(status) for table in LIFECYCLES.values() for status in table.states} | {"", "ack"}
    refused = 0
    for table in LIFECYCLES.values():
        answer = await commands.create_command(lifecycle=table.name)
        assert answer.record
        for status in sorted(words - set(table.states)):
            with pytest.raises(asyncpg.CheckViolationError, match="commands_status_known"):
                await commands.execute(
                    "UPDATE commands SET status = $2 WHERE cmd_id = $1",
                    answer.record.cmd_id,
                    status,
                )
            refused += 1
        for status in table.states:
            await commands.execute(
                "UPDATE commands SET status = $2 WHERE cmd_id = $1", answer.record.cmd_id, status
            )
    tried("statuses of other lifecycles written past the guard", refused, "all refused")


def printed_verdicts(page: str) -> dict[tuple[str, str, str], str]:
    """Read the tables of verdicts off the page: (lifecycle, status, event) -> cell."""
    cells: dict[tuple[str, str, str], str] = {}
    lifecycle, head = "", [""]
    for line in page.splitlines():
        if line.startswith("## "):
            lifecycle = line.removeprefix("## ")
        if not line.startswith("| "):
            head = [""]
            continue
        row = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if head == [""]:
            head = row
        elif head[:2] == ["status", "rank"] and not row[0].startswith("---"):
            cells |= {
                (lifecycle, row[0], event): cell
                for event, cell in zip(head[4:], row[4:], strict=True)
            }
    return cells


def test_the_printed_page_says_what_the_core_decides(tried: Tried):
    decided = {}
    for cell in CELLS:
        if cell.event != UNKNOWN_EVENT and cell.epoch == NO_EPOCH:
            result, target = cell.answer
            decided[cell.table.name, str(cell.status), cell.event] = (
                f"→ {target}" if result is Result.OK else result.value
            )
    assert printed_verdicts(PAGE.read_text(encoding="utf-8")) == decided
    tried("cells of the printed tables", len(decided), "all as the core decides")
