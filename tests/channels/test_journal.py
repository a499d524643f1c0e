"""The journal keeps what happened, and its checker finds what must not have."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from onward.channels.simulated import (
    Effect,
    Journal,
    Network,
    SimulatedChannel,
    SimulatedFleet,
    What,
    check_journal,
)
from tests.channels.virtual_time import in_virtual_time, now, run_in_virtual_time
from tests.channels.worlds import delivery, outcome


def story(*events: str) -> list[str]:
    """Lines of a journal, from `host command/epoch what`; a `~` before it makes it shared."""
    lines = []
    for sequence, event in enumerate(events, 1):
        host, attempt, what = event.removeprefix("~").split()
        command_id, epoch = attempt.split("/")
        effect = Effect(
            sequence, float(sequence), int(host), command_id, int(epoch), What(what),
            not event.startswith("~"),
        )  # fmt: skip
        lines.append(effect.line())
    return lines


GOOD = (
    "1 a/1 started",
    "2 a/2 started",
    "1 a/1 stopped",
    "1 a/3 started",
    "2 a/2 crashed",
    "1 a/3 finished",
    "1 a/1 refused",
    "~1 s/4 started",
    "~1 t/5 started",
    "1 b/6 refused",
    "~1 s/4 finished",
    "~1 t/5 finished",
    "1 a/7 answered",
    "1 b/8 started",
)


BESIDE = (
    "2: host 1, command 'b', epoch 2 ran beside 1: host 1, command 'a', epoch 1,"
    " and one of them is exclusive"
)
LOWER = (
    "3: host 1, command 'b', epoch 1 started after a higher epoch: 1: host 1, command 'a', epoch 2"
)


def test_a_good_day_has_no_problems():
    assert check_journal(story(*GOOD)) == []
    assert check_journal([]) == []


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        (
            ("1 a/1 started", "1 a/1 finished", "1 a/1 started"),
            "3: host 1, command 'a', epoch 1 ran twice in one epoch: before at 1",
        ),
        (
            ("1 a/1 started", "1 b/2 started"),
            BESIDE,
        ),
        (
            ("~1 a/1 started", "1 b/2 started"),
            BESIDE,
        ),
        (
            ("1 a/2 started", "1 a/2 finished", "1 b/1 started"),
            LOWER,
        ),
        (
            ("1 a/1 refused", "1 a/1 started"),
            "2: host 1, command 'a', epoch 1 ran although it was refused at 1",
        ),
        (("1 a/1 finished",), "1: host 1, command 'a', epoch 1 finished without a start"),
        (
            ("1 a/1 started", "1 a/1 stopped", "1 a/1 finished"),
            "3: host 1, command 'a', epoch 1 finished without a start",
        ),
    ],
)
def test_a_planted_fault_is_found_and_named(planted: tuple[str, ...], problem: str):
    assert check_journal(story(*planted)) == [problem]


def test_every_start_below_the_highest_epoch_is_found():
    planted = ("1 a/5 started", "1 a/5 finished", "1 b/3 started", "1 b/3 finished")
    problems = check_journal(story(*planted, "1 c/4 started"))
    assert [problem[:34] for problem in problems] == [
        "3: host 1, command 'b', epoch 3 st",
        "5: host 1, command 'c', epoch 4 st",
    ]


def test_a_gap_in_the_sequence_is_found():
    lines = story(*GOOD)
    assert check_journal(lines[:5] + lines[6:])[0] == "line 6: 7 follows 5"


def test_a_line_that_cannot_be_read_is_a_problem_unless_a_kill_has_torn_it():
    lines = story("1 a/1 started")
    assert check_journal([*lines, lines[0][:20]]) == []
    assert "line 1 cannot be read" in check_journal([lines[0][:20], *lines])[0]
    assert "line 1 cannot be read" in check_journal(['{"what": "started"}', *lines])[0]
    assert "line 1 cannot be read" in check_journal(["[]", *lines])[0]


_attempts = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 6),
        st.integers(1, 2),
        st.sampled_from([0, 0, 1, 4]),
        st.booleans(),
        st.sampled_from([0.0, 0.5, 2.0]),
    ),
    max_size=25,
)


def _lived(
    attempts: list[tuple[str, int, int, int, bool, float]], network: Network, *, fenced: bool = True
) -> list[str]:
    """The journal of hosts to which anything is sent in any order."""

    async def scenario() -> list[str]:
        fleet = SimulatedFleet(clock=now, fenced=fenced)
        channel = SimulatedChannel(fleet, network)
        calls = []
        for command_id, epoch, host_id, sleep_s, exclusive, pause_s in attempts:
            attempt = delivery(
                command_id, epoch, host_id=host_id, sleep_s=sleep_s, exclusive=exclusive
            )
            calls.append(asyncio.create_task(outcome(channel, attempt)))
            await asyncio.sleep(pause_s)
        await asyncio.gather(*calls)
        await asyncio.sleep(1_000)
        return [*fleet.journal.lines()]

    return run_in_virtual_time(scenario())


@effort(max_examples=60, deadline=None)
@given(_attempts, st.integers(0, 100), st.sampled_from([Network.calm, Network.terrible]))
def test_whatever_is_sent_in_whatever_order_a_fenced_host_keeps_the_promises(attempts, seed, kind):
    lines = _lived(attempts, kind(seed))
    assert check_journal(lines) == []
    for line in lines:
        assert Effect.of(line).line() == line


@effort(max_examples=40, deadline=None)
@given(_attempts, st.data())
def test_a_start_that_is_doubled_anywhere_is_found(attempts, data):
    lines = _lived([("z", 1, 1, 0, True, 0.0), *attempts], Network.calm())
    starts = [number for number, line in enumerate(lines) if Effect.of(line).what is What.STARTED]
    doubled = lines[data.draw(st.sampled_from(starts))]
    at = data.draw(st.integers(lines.index(doubled), len(lines)))
    planted = [*lines[: at + 1], doubled, *lines[at + 1 :]]
    renumbered = [
        json.dumps(json.loads(line) | {"sequence": number}) for number, line in enumerate(planted)
    ]
    assert any("ran twice in one epoch" in problem for problem in check_journal(renumbered))


@in_virtual_time
async def test_a_journal_in_a_file_is_written_before_the_effect_counts(tmp_path: Path):
    path = tmp_path / "journal"
    fleet = SimulatedFleet(journal=Journal(path), clock=now)
    seen: list[str] = []
    channel = SimulatedChannel(fleet, Network.calm())
    await channel.deliver(delivery(lines=1), lambda *_: seen.append(path.read_text()))
    fleet.journal.close()
    assert [Effect.of(line).what for line in seen[0].splitlines()] == [What.STARTED]
    assert path.read_text().splitlines() == [*fleet.journal.lines()]


@in_virtual_time
async def test_a_start_that_cannot_be_written_does_not_happen(tmp_path: Path):
    journal = Journal(tmp_path / "journal")
    fleet = SimulatedFleet(journal=journal, clock=now)
    journal.close()
    ran: list[object] = []
    with pytest.raises(ValueError, match="closed file"):
        await SimulatedChannel(fleet, Network.calm()).deliver(
            delivery(lines=1), lambda *line: ran.append(line)
        )
    assert ran == []
    assert journal.effects == []


@in_virtual_time
async def test_hosts_take_up_their_memory_from_the_file(tmp_path: Path):
    path = tmp_path / "journal"
    before = SimulatedFleet(journal=Journal(path), clock=now)
    channel = SimulatedChannel(before, Network.calm())
    assert await outcome(channel, delivery("done", 1)) == "done"
    assert await outcome(channel, delivery("done", 2)) == "repeated done"
    assert await outcome(channel, delivery("fails", 3, fail_times=2)) == "failed"
    assert await outcome(channel, delivery("odd", 4, command_type="dance")) == "HostRefused"
    assert await channel.cancel(delivery("early", 5)) is True
    waiting = asyncio.create_task(outcome(channel, delivery("cut", 6, sleep_s=5)))
    await asyncio.sleep(1)
    before.journal.close()
    waiting.cancel()
    with path.open("a") as file:
        file.write('{"sequence":99,"at"')

    after = SimulatedFleet(journal=Journal(path), clock=now)
    channel = SimulatedChannel(after, Network.calm())
    assert await outcome(channel, delivery("done", 1)) == "HostBusy"
    assert await outcome(channel, delivery("done", 2)) == "repeated done"
    assert await outcome(channel, delivery("odd", 4)) == "HostBusy"
    assert await outcome(channel, delivery("early", 5)) == "HostBusy"
    assert await outcome(channel, delivery("cut", 6, sleep_s=5)) == "repeated failed"
    assert await outcome(channel, delivery("new", 5)) == "HostBusy"
    assert await outcome(channel, delivery("fails", 7, fail_times=2)) == "failed"
    assert await outcome(channel, delivery("fails", 8, fail_times=2)) == "done"
    assert await outcome(channel, delivery("done", 9)) == "repeated done"
    assert await outcome(channel, delivery("cut", 10, sleep_s=5)) == "done"
    after.journal.close()
    assert check_journal(path.read_text().splitlines()) == []
    assert path.read_text().splitlines() == [*after.journal.lines()]
