"""What a node does with what reaches it, and what it remembers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onward.channels.mqtt import envelope
from onward.channels.mqtt.conduct import Node, Outcome
from onward.channels.mqtt.envelope import CANCEL, CANCELLED, WORD, Command, Message, Status
from onward.channels.mqtt.memory import INTERRUPTED, Memory
from tests.channels.conformance.ground import until

KEY, NAME, NOW = b"k" * 32, "pump-7", 1_700_000_000.0
ACK, DONE, BUSY, INVALID, FAILED = (
    WORD[event] for event in ("ack", "done", "busy", "invalid", "fail")
)


class Bench:
    """A node on a table, with somebody who writes down what it does and says."""

    def __init__(self, memory: Memory | None = None, **options: object) -> None:
        self.ran: list[str] = []
        self.payloads: list[bytes] = []
        self.go_on = asyncio.Event()
        self.fails = False
        self.now = NOW
        self.node = Node(
            NAME, KEY, do=self._do, say=self.payloads.append, memory=memory,
            clock=lambda: self.now, **options,  # type: ignore[arg-type]  # as the test says
        )  # fmt: skip

    async def _do(self, command: Command) -> Outcome:
        self.ran.append(f"{command.cmd_id}/{command.epoch}")
        if command.cmd == "wait":
            await self.go_on.wait()
        if command.cmd == "break":
            raise RuntimeError("the valve is stuck")
        return Outcome("fail", {"error": "no"}) if self.fails else Outcome()

    def told(self, cmd_id: str, epoch: int, cmd: str = "go", **changes: object) -> bytes:
        message: Message = {
            "cmd_id": cmd_id, "cmd": cmd, "params": {}, "ts": int(self.now), "epoch": epoch,
        }  # fmt: skip
        return envelope.seal(message | changes, NAME, KEY)

    def send(self, cmd_id: str, epoch: int, cmd: str = "go", **changes: object) -> None:
        self.node.command(self.told(cmd_id, epoch, cmd, **changes))

    def receipt(self, cmd_id: str, epoch: int) -> None:
        self.node.receipt(envelope.seal({"cmd_id": cmd_id, "epoch": epoch}, NAME, KEY))

    @property
    def statuses(self) -> list[Status]:
        return [envelope.open_status(each, NAME, KEY) for each in self.payloads]

    @property
    def words(self) -> list[str]:
        return [f"{each.status} {each.cmd_id}/{each.epoch}" for each in self.statuses]

    async def run(self, cmd_id: str, epoch: int, cmd: str = "go") -> None:
        said = len(self.payloads)
        self.send(cmd_id, epoch, cmd)
        await until(lambda: len(self.payloads) >= said + 2)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    found = Bench()
    yield found
    await found.node.aclose()


async def test_it_says_when_it_begins_and_how_it_ended(bench: Bench):
    await bench.run("a", 1)
    assert bench.words == [f"{ACK} a/1", f"{DONE} a/1"]
    first, second = bench.statuses
    assert first.seq < second.seq
    assert "duration_ms" in second.said


async def test_a_repeat_is_answered_from_memory(bench: Bench):
    await bench.run("a", 1)
    bench.send("a", 1)
    assert bench.ran == ["a/1"]
    assert bench.words[2:] == [f"{DONE} a/1"]


async def test_a_repeat_of_what_runs_is_acknowledged_again(bench: Bench):
    bench.send("a", 1, "wait")
    await until(lambda: bench.ran)
    bench.send("a", 1, "wait")
    bench.go_on.set()
    await until(lambda: f"{DONE} a/1" in bench.words)
    assert bench.ran == ["a/1"]
    assert bench.words == [f"{ACK} a/1", f"{ACK} a/1", f"{DONE} a/1"]


async def test_what_succeeded_is_not_run_by_a_newer_attempt(bench: Bench):
    await bench.run("a", 1)
    bench.send("a", 5)
    assert bench.ran == ["a/1"]
    assert bench.words[2:] == [f"{DONE} a/5"]


async def test_what_failed_is_run_by_a_newer_attempt(bench: Bench):
    bench.fails = True
    await bench.run("a", 1)
    await bench.run("a", 5)
    assert bench.ran == ["a/1", "a/5"]


async def test_an_epoch_that_is_over_is_refused_and_stays_refused(bench: Bench):
    await bench.run("a", 5)
    for _ in range(2):
        bench.send("b", 4)
    assert bench.ran == ["a/5"]
    assert bench.words[2:] == [f"{BUSY} b/4", f"{BUSY} b/4"]


async def test_one_command_at_a_time(bench: Bench):
    bench.send("a", 1, "wait")
    bench.send("b", 2)
    bench.go_on.set()
    await until(lambda: f"{DONE} a/1" in bench.words)
    bench.send("b", 2)  # a copy that was late: it was refused, and will not run
    await bench.run("b", 3)
    assert bench.ran == ["a/1", "b/3"]
    assert bench.words.count(f"{BUSY} b/2") == 2


async def test_as_many_at_a_time_as_it_says():
    bench = Bench(at_once=2)
    for number, name in enumerate("abc"):
        bench.send(name, number, "wait")
    bench.go_on.set()
    await until(lambda: len(bench.payloads) == 5)
    assert sorted(bench.words[2:]) == sorted([f"{BUSY} c/2", f"{DONE} a/0", f"{DONE} b/1"])


async def test_a_newer_attempt_at_what_runs_takes_its_place(bench: Bench):
    bench.send("a", 1, "wait")
    await until(lambda: bench.ran)
    bench.send("a", 2, "wait")
    await until(lambda: len(bench.ran) == 2)
    bench.go_on.set()
    await until(lambda: f"{DONE} a/2" in bench.words)
    assert f"{DONE} a/1" not in bench.words


async def test_a_command_that_breaks_is_told_and_the_node_lives(bench: Bench):
    await bench.run("a", 1, "break")
    assert bench.words[1] == f"{FAILED} a/1"
    assert "stuck" in str(bench.statuses[1].said["error"])
    await bench.run("b", 2)
    assert bench.words[-1] == f"{DONE} b/2"


async def test_it_believes_nobody_else(bench: Bench):
    good = bench.told("a", 1)
    forged: Message = json.loads(good) | {"epoch": 2}
    bench.node.command(json.dumps(forged).encode())
    bench.node.command(envelope.seal(json.loads(good), "pump-8", KEY))
    bench.node.command(envelope.seal({"cmd_id": "a", "epoch": 1}, NAME, KEY))
    bench.node.receipt(good)
    assert (bench.ran, bench.payloads, bench.node.ignored) == ([], [], 4)


async def test_what_was_sent_long_ago_does_not_run(bench: Bench):
    bench.send("a", 1, ts=int(NOW) - 61)
    bench.send("b", 2, ts=int(NOW) + 61)
    assert bench.ran == []
    assert bench.words == [f"{BUSY} a/1", f"{INVALID} b/2"]
    assert "clock" in str(bench.statuses[1].said["error"])


async def test_a_message_that_is_sent_again_later_changes_nothing(bench: Bench):
    recorded = [bench.told("a", 1), bench.told("a", 1, CANCEL), bench.told("b", 2)]
    await bench.run("a", 1)
    await bench.run("b", 2)
    bench.now += 3_600
    for payload in recorded:
        bench.node.command(payload)
    assert bench.ran == ["a/1", "b/2"]
    assert set(bench.words) == {f"{ACK} a/1", f"{DONE} a/1", f"{ACK} b/2", f"{DONE} b/2"}


async def test_a_run_is_stopped_on_request(bench: Bench):
    bench.send("a", 1, "wait")
    await until(lambda: bench.ran)
    bench.send("a", 1, CANCEL)
    bench.go_on.set()
    await bench.run("b", 2)
    assert bench.words == [f"{ACK} a/1", f"{FAILED} a/1", f"{ACK} b/2", f"{DONE} b/2"]
    assert bench.statuses[1].said["result_code"] == CANCELLED


async def test_what_was_stopped_before_it_came_does_not_run(bench: Bench):
    bench.send("a", 1, CANCEL)
    bench.send("a", 1)
    assert bench.ran == []
    assert bench.words == [f"{FAILED} a/1", f"{FAILED} a/1"]


async def test_what_has_ended_cannot_be_stopped(bench: Bench):
    await bench.run("a", 1)
    bench.send("a", 1, CANCEL)
    bench.send("a", 2, CANCEL)
    assert bench.words[2:] == [f"{DONE} a/1", f"{DONE} a/2"]


async def test_a_former_attempt_that_is_stopped_leaves_the_newer_alone(bench: Bench):
    bench.send("a", 2, "wait")
    await until(lambda: bench.ran)
    bench.send("a", 1, CANCEL)
    bench.go_on.set()
    await until(lambda: f"{DONE} a/2" in bench.words)
    assert bench.words == [f"{ACK} a/2", f"{FAILED} a/1", f"{DONE} a/2"]


async def test_a_result_is_repeated_until_it_is_receipted(bench: Bench):
    await bench.run("a", 1)
    assert bench.node.say_again()
    assert bench.words[-1] == f"{DONE} a/1"
    assert bench.statuses[-1].seq > bench.statuses[-2].seq
    bench.receipt("a", 0)
    assert bench.node.say_again()
    bench.receipt("a", 1)
    assert not bench.node.say_again()


async def test_its_memory_survives_a_restart(tmp_path: Path):
    path = tmp_path / "journal"
    before = Bench(Memory(path))
    await before.run("a", 1)
    await before.run("b", 2)
    before.receipt("b", 2)
    before.node.memory.close()

    after = Bench(Memory(path))
    assert [each.cmd_id for each in after.node.memory.unreceipted()] == ["a"]
    after.send("a", 1)
    after.send("b", 2)
    after.send("c", 1)
    assert after.ran == []
    assert after.words == [f"{DONE} a/1", f"{DONE} b/2", f"{BUSY} c/1"]
    assert min(each.seq for each in after.statuses) > max(each.seq for each in before.statuses)


async def test_a_run_that_was_interrupted_is_told_and_not_run_again(tmp_path: Path):
    path = tmp_path / "journal"
    before = Bench(Memory(path))
    before.send("a", 1, "wait")
    await until(lambda: before.ran)
    await before.node.aclose()

    after = Bench(Memory(path))
    assert after.node.say_again()
    after.send("a", 1, "wait")
    assert after.ran == []
    assert after.words == [f"{FAILED} a/1", f"{FAILED} a/1"]
    assert after.statuses[0].said["error_code"] == INTERRUPTED


async def test_a_journal_that_was_torn_anywhere_is_read_up_to_there(tmp_path: Path):
    path, torn = tmp_path / "journal", tmp_path / "torn"
    before = Bench(Memory(path))
    await before.run("a", 1)
    await before.run("b", 2)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        torn.write_bytes(whole[:cut])
        memory = Memory(torn)
        # Whatever was begun is remembered by its end, and nothing is left as if it still ran.
        assert all(each.word for each in memory.attempts.values())
        memory.close()


async def test_what_is_receipted_is_forgotten_in_the_end_and_nothing_else(tmp_path: Path):
    memory = Memory(tmp_path / "journal")
    memory.end("kept", 0, DONE, {})
    for number in range(1_500):
        memory.end(str(number), number, DONE, {})
        memory.receipted(str(number), number)
    assert len(memory.attempts) == 1_000
    assert [each.cmd_id for each in memory.unreceipted()] == ["kept"]
    assert memory.highest == 1_499
    memory.close()
    assert Memory(tmp_path / "journal").highest == 1_499
