"""What a host does with what comes to it: once, and with a memory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from onward.channels.agent.messages import (
    Accepted,
    Block,
    Blocks,
    Receipt,
    Refused,
    Result,
    Run,
    Stop,
    Stopped,
)
from onward.channels.base import Stream
from tests.agent.grounds import Ground, program, until


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def test_a_command_is_accepted_and_run_and_its_end_is_told(ground: Ground):
    ground.take(ground.run(prints="hello\n", complains="oh\n"))
    result = await ground.ear.until(Result)
    assert result == Result("c1", 1, succeeded=True, exit_code=0)
    assert isinstance(ground.ear.all[0], Accepted)
    assert ground.ear.output() == "hello\n"
    assert ground.ear.output(Stream.STDERR) == "oh\n"
    assert ground.effects() == ["started c1/1", "finished c1/1"]


async def test_a_repeat_joins_the_run_and_is_told_the_whole_output(ground: Ground):
    run = ground.run(prints="hello\n", sleep_s=0.5)
    ground.take(run)
    await until(lambda: ground.ear.output() == "hello\n")
    ground.host.voice.lost(ground.ear)
    ground.ear = type(ground.ear)()
    ground.host.voice.connected(ground.ear)
    ground.take(run)
    assert (await ground.ear.until(Result)).succeeded
    assert ground.ear.output() == "hello\n"
    assert ground.effects() == ["started c1/1", "finished c1/1"]


async def test_a_repeat_of_what_has_ended_is_answered_from_memory(ground: Ground):
    run = ground.run(prints="hello\n", exit_code=3)
    ground.take(run)
    first = await ground.ear.until(Result)
    ground.take(run)
    assert ground.ear.all[-1] == first._replace(repeated=True)
    assert (first.exit_code, first.succeeded) == (3, False)
    ground = ground.again()
    ground.ear.all.clear()
    ground.take(run)
    assert ground.ear.all[-1] == first._replace(repeated=True), "also after a restart"
    assert ground.ear.output() == "hello\n"
    assert len(ground.effects()) == 2


async def test_the_same_attempt_with_another_content_is_refused(ground: Ground):
    ground.take(ground.run())
    await ground.ear.until(Result)
    ground.take(ground.run(exit_code=1))
    refused = await ground.ear.until(Refused)
    assert not refused.busy
    assert "another content" in refused.why


async def test_an_epoch_that_is_over_is_refused_also_after_a_restart(ground: Ground):
    ground.take(ground.run("c1", epoch=7))
    await ground.ear.until(Result)
    ground = ground.again()
    ground.take(ground.run("c2", epoch=6))
    refused = await ground.ear.until(Refused)
    assert refused.busy
    assert "epoch 6 is over" in refused.why
    assert ground.effects() == ["started c1/7", "finished c1/7"]


async def test_one_exclusive_command_runs_at_a_time_and_others_may_share(ground: Ground):
    ground.take(ground.run("c1", 1, sleep_s=30.0))
    await until(lambda: ground.effects() == ["started c1/1"])
    ground.take(ground.run("c2", 2, exclusive=False))
    assert "busy with c1" in (await ground.ear.until(Refused)).why
    ground.take(Stop("c1", 1))
    assert (await ground.ear.until(Stopped)).stopped
    ground.take(ground.run("c3", 3, exclusive=False, sleep_s=0.3))
    ground.take(ground.run("c4", 4, exclusive=False, sleep_s=0.3))
    ground.take(ground.run("c5", 5))
    assert "busy" in (await ground.ear.until(Refused, 2)).why
    await ground.ear.until(Result, 3)
    assert {result.cmd for result in ground.ear.of(Result) if result.succeeded} == {"c3", "c4"}


async def test_a_newer_attempt_takes_the_place_of_the_one_that_runs(ground: Ground):
    ground.take(ground.run(epoch=1, sleep_s=30.0))
    await until(lambda: ground.effects() == ["started c1/1"])
    ground.take(ground.run(epoch=2))
    assert await ground.ear.until(Result) == Result(
        "c1", 1, succeeded=False, error="displaced by epoch 2"
    )
    assert (await ground.ear.until(Result, 2)).succeeded
    assert ground.effects() == ["started c1/1", "started c1/2", "finished c1/2"]


async def test_a_newer_attempt_at_what_succeeded_is_answered_and_at_what_failed_runs(
    ground: Ground,
):
    ground.take(ground.run("good", 1))
    ground.take(ground.run("bad", 2, exit_code=1))
    await ground.ear.until(Result, 1)
    ground.take(ground.run("bad", 3, exit_code=1))
    await ground.ear.until(Result, 2)
    ground.take(ground.run("good", 4))
    ground.take(ground.run("bad", 5))
    found = [await ground.ear.until(Result, count) for count in (3, 4)]
    assert found[0] == Result("good", 4, succeeded=True, exit_code=0, repeated=True)
    assert found[1] == Result("bad", 5, succeeded=True, exit_code=0)


async def test_what_was_refused_will_not_run_however_late_a_copy_comes(ground: Ground):
    late = ground.run("c2", 2)
    ground.take(ground.run("c1", 1, sleep_s=0.2))
    ground.take(late)
    refused = await ground.ear.until(Refused)
    await ground.ear.until(Result)
    ground.take(late)
    assert ground.ear.all[-1] == refused
    ground = ground.again()
    ground.take(late)
    assert ground.ear.all[-1] == refused


async def test_what_is_stopped_before_it_comes_does_not_run(ground: Ground):
    ground.take(Stop("c1", 4))
    assert (await ground.ear.until(Stopped)).stopped
    ground = ground.again()
    ground.take(ground.run(epoch=4))
    assert "stopped before it came" in (await ground.ear.until(Refused)).why
    assert ground.effects() == []


async def test_what_had_finished_cannot_be_stopped(ground: Ground):
    ground.take(ground.run())
    await ground.ear.until(Result)
    ground.take(Stop("c1", 1))
    assert not (await ground.ear.until(Stopped)).stopped


async def test_what_is_blocked_is_refused_also_after_a_restart(ground: Ground):
    soon = ground.host._clock() + 3600
    ground.take(Blocks((Block("run", "disk is full", "ann", soon), Block("x", "", "", 1.0))))
    ground = ground.again()
    ground.take(ground.run())
    refused = await ground.ear.until(Refused)
    assert refused == Refused("c1", 1, busy=False, why="blocked for run by ann: disk is full")
    ground.take(Blocks(()))
    ground.take(ground.run(epoch=2))
    assert (await ground.ear.until(Result)).succeeded
    ground.take(ground.run("c2", 3, type="x"))
    assert (await ground.ear.until(Result, 2)).succeeded, "that block was over"


async def test_a_ping_is_answered_without_the_journal(ground: Ground):
    ground.journal.close()
    ground.take(Run("p", 9, "ping", {}, None, 5.0))
    assert ground.ear.all == [Result("p", 9, succeeded=True, exit_code=0)]


async def test_a_type_without_a_program_is_refused(ground: Ground):
    ground.take(Run("c", 1, "reboot", {}, None, 5.0))
    assert "knows no command 'reboot'" in (await ground.ear.until(Refused)).why


async def test_results_are_said_at_every_connection_until_they_are_receipted(ground: Ground):
    ground.host.voice.lost(ground.ear)
    ground.take(ground.run(prints="kept\n", exit_code=4))
    await until(ground.journal.waiting)
    for _ in range(2):
        ground = ground.again()
        assert ground.ear.of(Result) == [Result("c1", 1, succeeded=False, exit_code=4)]
        assert ground.ear.output() == "kept\n"
    ground.take(Receipt("c1", 1))
    ground = ground.again()
    assert ground.ear.all == []
    ground.take(ground.run(prints="kept\n", exit_code=4))
    assert ground.ear.of(Result)[0].repeated, "it is still remembered"


async def test_what_is_not_receipted_is_said_again_without_a_new_connection(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
):
    ground.take(ground.run())
    await ground.ear.until(Result)
    ground.host.voice.say_again()
    assert len(ground.ear.of(Result)) == 1, "not so soon"
    monkeypatch.setattr("onward.agent.voice._SAY_AGAIN_S", 0.0)
    ground.host.voice.say_again()
    assert len(ground.ear.of(Result)) == 2


async def test_what_is_old_is_forgotten_and_still_does_not_run_again(ground: Ground):
    for epoch in (1, 2, 3):
        ground.take(ground.run(f"c{epoch}", epoch))
        await ground.ear.until(Result, epoch)
        ground.take(Receipt(f"c{epoch}", epoch))
    gone = ground.journal.forget(before=0.0, most=2)
    assert gone == [("c1", 1)]
    ground.host._memory.forget(gone)
    gone = ground.journal.forget(before=9e12, most=2)
    assert gone == [("c2", 2)], "the highest epoch stays: its copy would not be too old"
    ground = ground.again()
    ground.take(ground.run("c1", 1))
    assert "over" in (await ground.ear.until(Refused)).why
    ground.take(ground.run("c3", 3))
    assert (await ground.ear.until(Result)).repeated
    assert len(ground.effects()) == 6


async def test_a_disk_that_is_full_lets_nothing_begin(ground: Ground):
    ground.journal._rows.execute("CREATE TEMP TRIGGER full BEFORE INSERT ON attempts "
                                 "BEGIN SELECT RAISE(ABORT, 'disk is full'); END")  # fmt: skip
    ground.take(ground.run())
    refused = await ground.ear.until(Refused)
    assert refused.busy
    assert "disk is full" in refused.why
    assert ground.effects() == []


async def test_an_agent_that_leaves_lets_what_runs_end_and_takes_nothing_on(ground: Ground):
    ground.take(ground.run("c1", 1, sleep_s=0.3))
    await until(ground.effects)
    leaving = asyncio.create_task(ground.host.leave(10.0))
    await asyncio.sleep(0)
    ground.take(ground.run("c1x", 2, exclusive=False))
    await leaving
    assert (await ground.ear.until(Result)).succeeded
    assert (await ground.ear.until(Refused)).busy


async def test_an_agent_that_has_waited_enough_stops_what_runs(ground: Ground):
    ground.take(ground.run(sleep_s=60.0))
    await until(ground.effects)
    await ground.host.leave(0.0)
    assert "leaving" in str((await ground.ear.until(Result)).error)


async def test_half_a_character_is_refused_and_a_byte_that_is_none_arrives(ground: Ground):
    ground.take(program("printf", "%s", "\ud83d"))
    refused = await ground.ear.until(Refused)
    assert "no bytes" in refused.why
    ground.take(program("sh", "-c", 'printf %s "$1" | od -An -tx1', "sh", "\udcff", epoch=2))
    await ground.ear.until(Result)
    assert ground.ear.output().split() == ["ff"]
    assert os.listdir(ground.folder / "tmp") == []  # noqa: PTH208 - names are enough


def test_what_the_journal_has_said_yes_to_survives_a_power_cut(ground: Ground):
    """Every commit waits for the disk, as SQLite promises with these two."""
    rows = ground.journal._rows
    assert rows.execute("PRAGMA synchronous").fetchone()[0] == 2, "FULL"
    assert rows.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
