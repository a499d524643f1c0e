"""Whatever the network makes of a command's events, they end where the model says.

Hypothesis shuffles and doubles the events of up to three commands, cuts them into batches and
single statements, and delivers them over two connections: in turn, where the model is simply folded
over them; and at once, where the timeline tells in which order they were judged, and that order
must explain every verdict.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onward.core.lifecycle import Lifecycle
from onward.core.lifecycles import LIFECYCLES
from onward.store import transitions
from onward.store.database import connect
from onward.store.transitions import Answer, Event
from tests.proof_table import Tried
from tests.races.model import STALE_GENERATION, Line, Row, Said, judge
from tests.races.stage import Connection

COMMANDS = 3
Batches = list[list[Said]]


class Storm(NamedTuple):
    """Events of one lifecycle's commands, cut into statements for each of two connections."""

    table: Lifecycle
    first: Batches
    second: Batches


@st.composite
def storms(draw: st.DrawFn) -> Storm:
    table = draw(st.sampled_from(list(LIFECYCLES.values())))
    said = st.builds(
        Said,
        st.integers(0, COMMANDS - 1),
        st.sampled_from([*table.moves, "no_such_event"]),
        st.sampled_from([None, None, 0, STALE_GENERATION]),
    )
    once = draw(st.lists(said, min_size=1, max_size=12))
    again = draw(st.lists(st.sampled_from(once), max_size=8))
    events = draw(st.permutations(once + again))
    middle = draw(st.integers(0, len(events)))
    return Storm(table, draw(cuts(events[:middle])), draw(cuts(events[middle:])))


@st.composite
def cuts(draw: st.DrawFn, events: Sequence[Said]) -> Batches:
    """Cut a sequence anywhere, or everywhere, or nowhere."""
    ends = draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events)))
    batches: Batches = [[]]
    for event, ends_here in zip(events, ends, strict=True):
        batches[-1].append(event)
        if ends_here:
            batches.append([])
    return [batch for batch in batches if batch]


class Fleet:
    """Fresh commands for one storm, and the two connections that speak to them."""

    def __init__(self, first: Connection, second: Connection, table: Lifecycle) -> None:
        self.connections = (first, second)
        self.table = table
        self.ids: list[str] = []
        self.epochs: list[int] = []

    async def make(self) -> None:
        made = await self.connections[0].fetch(
            "INSERT INTO commands (cmd_id, lifecycle, status, timeout_s, due_at) "
            "SELECT gen_random_uuid(), $1, $2, 3600, now() + '1 hour' "
            "FROM generate_series(1, $3) RETURNING cmd_id::text, epoch",
            self.table.name,
            str(self.table.initial),
            COMMANDS,
        )
        self.ids = [cmd_id for cmd_id, _ in made]
        self.epochs = [epoch for _, epoch in made]

    async def deliver(self, who: int, batch: Sequence[Said]) -> list[Answer]:
        return await transitions.record(
            self.connections[who],
            [
                Event(
                    self.ids[said.key],
                    said.event,
                    None if said.told is None else self.epochs[said.key] + said.told,
                    # The timeline shall say which attempt it was that spoke.
                    source=f"{who} {said.told}",
                )
                for said in batch
            ],
        )

    async def lines(self, key: int) -> list[tuple[int, Said, tuple[str, str, str]]]:
        """The timeline of a command: who said what, and the verdict with from and to."""
        found = []
        query = transitions.SQL["timeline"]
        for line in await self.connections[0].fetch(query, self.ids[key], 0, None):
            who, told = line["source"].split(" ")
            said = Said(key, line["event"], None if told == "None" else int(told))
            verdict = (line["verdict"], line["from_status"], line["to_status"])
            found.append((int(who), said, verdict))
        return found

    async def row(self, key: int) -> tuple[str, int, str | None]:
        row = await self.connections[0].fetchrow(
            "SELECT status, version, late_result ->> 'event' FROM commands WHERE cmd_id = $1",
            self.ids[key],
        )
        assert row is not None
        return tuple(row)


Property = Callable[[Fleet, Storm], Coroutine[None, None, None]]
Play = Callable[[Property, Storm], None]


def told(line: Line) -> tuple[str, str, int]:
    assert line.after is not None
    return (line.verdict, line.after.status, line.after.version)


def was_told(answer: Answer) -> tuple[str, str, int]:
    assert answer.record is not None
    return (answer.result.value, answer.record.status, answer.record.version)


async def ends_as_folded(fleet: Fleet, storm: Storm) -> None:
    rows = [Row(str(storm.table.initial))] * COMMANDS
    expected: list[list[tuple[str, str, str]]] = [[] for _ in rows]
    # In turn, so that both connections have to see what the other one did.
    for who, batch in in_turn(storm):
        answers = await fleet.deliver(who, batch)
        for said, answer in zip(batch, answers, strict=True):
            line = judge(storm.table, rows[said.key], said)
            assert was_told(answer) == told(line)
            assert answer.changed is (line.verdict == "OK")
            assert line.after is not None
            expected[said.key].append((line.verdict, rows[said.key].status, line.after.status))
            rows[said.key] = line.after
    for key, row in enumerate(rows):
        assert await fleet.row(key) == (row.status, row.version, row.late)
        assert [verdict for _, _, verdict in await fleet.lines(key)] == expected[key]


def in_turn(storm: Storm) -> Iterator[tuple[int, list[Said]]]:
    for number in range(max(len(storm.first), len(storm.second))):
        for who, batches in enumerate((storm.first, storm.second)):
            if number < len(batches):
                yield who, batches[number]


async def is_explained_by_its_timeline(fleet: Fleet, storm: Storm) -> None:
    async def deliver_all(who: int, batches: Batches) -> list[list[Answer]]:
        answers = []
        for batch in batches:
            # The locks are held for one more turn, so that the two are sure to get in each
            # other's way.
            async with fleet.connections[who].transaction():
                answers.append(await fleet.deliver(who, batch))
        return answers

    both = await asyncio.gather(deliver_all(0, storm.first), deliver_all(1, storm.second))

    sent = [
        (who, said, answer)
        for who, (batches, answered) in enumerate(
            zip((storm.first, storm.second), both, strict=True)
        )
        for batch, answers in zip(batches, answered, strict=True)
        for said, answer in zip(batch, answers, strict=True)
    ]
    judged = 0
    for key in range(COMMANDS):
        row, answers = Row(str(storm.table.initial)), []
        for who, said, verdict in await fleet.lines(key):
            line = judge(storm.table, row, said)
            assert line.after is not None
            assert verdict == (line.verdict, row.status, line.after.status)
            answers.append((who, said, told(line)))
            row = line.after
        assert await fleet.row(key) == (row.status, row.version, row.late)
        # Each connection was answered in the order in which it spoke, with what the timeline says.
        for who in (0, 1):
            assert [(w, s, was_told(a)) for w, s, a in sent if (w, s.key) == (who, key)] == [
                answer for answer in answers if answer[0] == who
            ]
        judged += len(answers)
    assert judged == len(sent) == sum(Counter(a.result for _, _, a in sent).values())


@pytest.fixture(scope="module")
def play(shared_url: str) -> Iterator[Play]:
    """Run a property over one storm, on two connections that stay open for all of them."""
    with (
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
        _both(runner, shared_url) as both,
    ):

        async def one(holds: Property, storm: Storm) -> None:
            fleet = Fleet(*both, storm.table)
            await fleet.make()
            await holds(fleet, storm)

        yield lambda holds, storm: runner.run(one(holds, storm))


@contextmanager
def _both(runner: asyncio.Runner, url: str) -> Iterator[tuple[Connection, Connection]]:
    first, second = runner.run(connect(url)), runner.run(connect(url))
    try:
        yield first, second
    finally:
        runner.run(first.close())
        runner.run(second.close())


@pytest.mark.parametrize("holds", [ends_as_folded, is_explained_by_its_timeline])
def test_a_storm(play: Play, tried: Tried, *, holds: Property, proof: bool):
    played = 0

    @settings(
        max_examples=2_000 if proof else 200,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(storms())
    def property_(storm: Storm) -> None:
        nonlocal played
        played += 1
        play(holds, storm)

    property_()
    tried(f"shuffled and doubled storms: {holds.__name__.replace('_', ' ')}", played)
