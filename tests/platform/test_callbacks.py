"""A platform calls back in its own words, and sometimes before we know what it is talking about."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import httpx2
import pytest

from onward.channels.platform.description import Platform
from onward.channels.platform.file import read
from onward.core.lifecycles import PLATFORM, PLATFORM_LENIENT
from onward.fleet.attempt_ids import row_id
from onward.fleet.carry import CANCELLED
from onward.fleet.commands import new_command_id
from onward.store.commands import Commands, NewCommand
from onward.store.transitions import Event
from onward.wiring import Onward
from tests.platform import fake
from tests.proof_table import Tried

NUMBERS = count(1)
JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}
SENT, DELIVERED, COMPLETED = (
    str(PLATFORM.moves[event].target) for event in ("send", "deliver", "complete")
)


class Device:
    """A host at a platform, and what is said about its tasks."""

    def __init__(self, opened: Onward, client: httpx2.AsyncClient, platform: str = "fake") -> None:
        self.number = next(NUMBERS)
        self.name, self.device_id = f"host-{self.number}", f"dev/{self.number}"
        self.platform, self.opened, self.client = platform, opened, client

    async def made(self) -> Device:
        await self.opened.commands.pool.execute(
            "INSERT INTO hosts (name, channel, address) VALUES ($1, 'platform', $2)",
            self.name,
            f"{self.platform}/{self.device_id}",
        )
        return self

    async def command(
        self, task_id: str | None = None, *, cmd_id: str | None = None, epoch: int | None = None
    ) -> str:
        lifecycle = PLATFORM_LENIENT if self.platform == "fake" else PLATFORM
        new = NewCommand(
            cmd_id=cmd_id or new_command_id(),
            lifecycle=lifecycle.name,
            node=self.name,
            type="open",
            task_id=task_id,
            params="{}",
            timeout_s=60.0,
            source="test",
            epoch=epoch,
        )
        answer = await self.opened.commands.create(new)
        assert answer.record is not None
        return answer.record.cmd_id

    def said(self, task: object, state: object, **more: object) -> dict[str, object]:
        return {"task": {"id": task}, "device": self.device_id, "state": state, **more}

    async def say(
        self, task: object, state: object, *, status_code: int = 200, **more: object
    ) -> Any:
        answer = await self.client.post(
            f"/callbacks/platform/{self.platform}", json=self.said(task, state, **more)
        )
        assert answer.status_code == status_code, answer.text
        return answer.json()

    async def row(self, cmd_id: str) -> dict[str, object]:
        found = await self.opened.commands.get(cmd_id)
        assert found is not None
        return found

    async def events(self, cmd_id: str) -> list[tuple[object, object]]:
        timeline = await self.opened.commands.timeline(cmd_id)
        return [(each["event"], each["verdict"]) for each in timeline[1:]]


@pytest.fixture
async def device(opened: Onward, client: httpx2.AsyncClient) -> Device:
    """A device of its own for each test."""
    return await Device(opened, client).made()


async def kept(opened: Onward, task_id: str) -> int:
    found: int = await opened.commands.pool.fetchval(
        "SELECT count(*) FROM early_callbacks WHERE task_id = $1", task_id
    )
    return found


# Words


async def test_the_platforms_words_move_the_command(device: Device):
    cmd_id = await device.command("a-1")
    for word, status in (("sent", SENT), ("delivered", DELIVERED), ("done", COMPLETED)):
        answer = await device.say("a-1", word)
        assert (answer["verdict"], answer["status"], answer["cmd_id"]) == ("OK", status, cmd_id)
    assert (await device.say("a-1", "sent"))["verdict"] == "TERMINAL"
    row = await device.row(cmd_id)
    assert (row["error_code"], row["result_code"]) == (None, None)


async def test_a_word_may_say_that_it_failed_and_why(device: Device):
    cmd_id = await device.command("a-2")
    await device.say("a-2", "failed", why="no water\x00", result={"level": [0, 1.5, None]})
    row = await device.row(cmd_id)
    assert (row["status"], row["error_code"]) == (COMPLETED, "failed")
    assert (row["error_message"], row["result"]) == ("no water ", {"level": [0, 1.5, None]})


async def test_a_word_may_say_that_it_was_stopped(device: Device):
    cmd_id = await device.command("a-3")
    await device.say("a-3", "stopped")
    row = await device.row(cmd_id)
    assert (row["status"], row["result_code"]) == (COMPLETED, CANCELLED)


async def test_a_word_that_nobody_knows_fits_no_status(device: Device):
    cmd_id = await device.command("a-4")
    odd: tuple[object, ...] = (
        "DONE",
        COMPLETED,
        5,
        True,
        None,
        1.5,
        [],
        {},
        "",
        "x" * 100_000,
        "\x00",
        2**70,
    )
    for word in odd:
        assert (await device.say("a-4", word))["verdict"] == "INVALID_STATE", word
    assert (await device.row(cmd_id))["status"] == PLATFORM.initial
    assert len(await device.events(cmd_id)) == len(odd), "each of them is evidence"


async def test_the_strict_lifecycle_refuses_what_the_lenient_one_takes(
    opened: Onward, client: httpx2.AsyncClient
):
    for platform, verdict in (("fake", "OK"), ("strict", "INVALID_STATE")):
        device = await Device(opened, client, platform).made()
        await device.command("jump")
        await device.say("jump", "sent")
        assert (await device.say("jump", "done"))["verdict"] == verdict


async def test_a_result_that_cannot_be_stored_does_not_stop_its_callback(device: Device):
    for n, odd in enumerate(("x" * 300_000, "\x00", {"a": 2**70})):
        cmd_id = await device.command(f"big-{n}")
        assert (await device.say(f"big-{n}", "done", result=odd))["verdict"] == "OK"
        assert (await device.row(cmd_id))["result"] is None
        detail = (await device.opened.commands.timeline(cmd_id))[-1]["detail"]
        assert isinstance(detail, dict)
        assert detail["result_left_out"]


async def test_the_device_may_be_what_a_command_was_made_for_by_hand(device: Device):
    """Whoever makes tasks themselves has no host for them, and still wants the words."""
    device.name = device.device_id = f"by-hand-{device.number}"
    cmd_id = await device.command("b-1")
    assert (await device.say("b-1", "sent"))["cmd_id"] == cmd_id


async def test_two_platforms_may_call_their_tasks_the_same(
    opened: Onward, client: httpx2.AsyncClient
):
    one = await Device(opened, client).made()
    two = await Device(opened, client, "strict").made()
    first, second = await one.command("same"), await two.command("same")
    assert (await one.say("same", "sent"))["cmd_id"] == first
    assert (await two.say("same", "sent"))["cmd_id"] == second
    two.device_id = one.device_id
    await two.say("same", "sent", status_code=404)


async def test_lines_are_read_in_the_platforms_shape(device: Device):
    cmd_id = await device.command("l-1")
    lines = [
        json.dumps(device.said("l-1", "sent")),
        "[]",
        "{",
        "{}",
        json.dumps(device.said("nobody", "sent") | {"device": "nobody"}),
        json.dumps(device.said("l-2", "sent")),
        json.dumps(device.said("l-1", "done")),
    ]
    answer = await device.client.post(
        "/callbacks/platform/fake", content="\n".join(lines).encode(), headers=LINES
    )
    assert answer.status_code == 200, answer.text
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [each["verdict"] for each in told] == (
        ["OK", None, None, None, "UNKNOWN_COMMAND", None, "OK"]
    )
    assert [each["problem"]["code"] for each in told if "problem" in each] == (
        ["invalid", "json-malformed", "invalid"]
    )
    assert "kept" in told[5]["meaning"]
    assert (await device.row(cmd_id))["status"] == COMPLETED


async def test_bad_input_is_told_in_words(device: Device, tried: Tried):
    client, path = device.client, "/callbacks/platform/fake"
    no_objects: tuple[object, ...] = ([], None, 5, "x", True)
    for odd in no_objects:
        answer = await client.post(path, content=json.dumps(odd), headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    missing: list[dict[str, object]] = [{}, {"task": 5}, {"device": "x"}, {"task": {"id": 1}}]
    for body in missing:
        answer = await client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
        assert answer.json()["errors"][0]["pointer"] in {"/task/id", "/device", "/state"}
    odd_names: tuple[object, ...] = (None, True, 1.5, [], {}, "", "x" * 1_000, "a\x00")
    for name in odd_names:
        answer = await client.post(path, json=device.said(name, "sent"))
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-command")
    for strange in ("nobody", "FAKE", "fake%20", "%00", "%ff", "..", "x" * 1_000):
        answer = await client.post(f"/callbacks/platform/{strange}", json={})
        assert answer.status_code in {400, 404}, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    nobody = await client.post("/callbacks/platform/nobody", json={})
    assert nobody.json()["code"] == "unknown-platform"
    tried("bad callbacks of a platform", 24, "all refused in words")


# What is said before the task has its name


async def test_what_comes_early_is_kept_and_judged_when_the_task_has_its_name(device: Device):
    cmd_id = await device.command()
    for word in ("sent", "delivered", "sent", "failed"):
        told = await device.say("e-1", word, status_code=202, why="no water")
        assert (told["verdict"], told["changed"]) == (None, False)
        assert "kept" in told["meaning"]
    assert await kept(device.opened, "e-1") == 3, "said twice is kept once"
    assert await device.opened.commands.name_task(cmd_id, "e-1")
    row = await device.row(cmd_id)
    assert (row["task_id"], row["status"], row["error_code"]) == ("e-1", COMPLETED, "failed")
    assert row["error_message"] == "no water"
    assert await device.events(cmd_id) == [("send", "OK"), ("deliver", "OK"), ("complete", "OK")]
    assert await kept(device.opened, "e-1") == 0
    assert (await device.say("e-1", "done"))["verdict"] == "TERMINAL"


async def test_what_comes_early_on_the_common_route_is_kept_too(device: Device):
    cmd_id = await device.command()
    body = {"task_id": "e-2", "device_id": device.name, "status": SENT}
    assert (await device.client.post("/callbacks/platform", json=body)).status_code == 202
    odd = {**body, "status": "no such word \x00"}
    assert (await device.client.post("/callbacks/platform", json=odd)).status_code == 202
    await device.opened.commands.name_task(cmd_id, "e-2")
    events = await device.events(cmd_id)
    assert events[0] == ("send", "OK")
    assert events[1][1] == "INVALID_STATE"


async def test_what_is_about_no_host_of_a_platform_is_unknown_and_not_kept(device: Device):
    body = {"task_id": "e-3", "device_id": "no host of ours", "status": SENT}
    assert (await device.client.post("/callbacks/platform", json=body)).status_code == 404
    device.device_id = "nothing"
    await device.say("e-3", "sent", status_code=404)
    assert await kept(device.opened, "e-3") == 0


async def test_what_nobody_asked_for_in_a_day_is_forgotten(device: Device):
    await device.say("old", "sent", status_code=202)
    pool = device.opened.commands.pool
    await pool.execute("UPDATE early_callbacks SET at = at - interval '25 hours'")
    await device.say("new", "sent", status_code=202)
    assert (await kept(device.opened, "old"), await kept(device.opened, "new")) == (0, 1)


async def test_a_name_is_given_once(device: Device):
    commands = device.opened.commands
    first, second = await device.command(), await device.command("taken")
    assert await commands.name_task(first, "n-1")
    assert await commands.name_task(first, "n-1"), "saying so again changes nothing"
    assert not await commands.name_task(first, "n-2")
    assert not await commands.name_task(await device.command(epoch=1), "taken"), "it is older"
    assert not await commands.name_task(new_command_id(), "n-3"), "there is no such command"
    assert (await device.row(first))["task_id"] == "n-1"
    assert (await device.row(second))["task_id"] == "taken"


async def test_a_callback_and_the_name_cross_and_nothing_is_lost(device: Device, *, proof: bool):
    """Whoever comes second finds what the first one left, in whatever order they commit."""
    rounds = 500 if proof else 40
    for n in range(rounds):
        cmd_id, task = await device.command(), f"x-{n}"
        naming = asyncio.create_task(device.opened.commands.name_task(cmd_id, task))
        answers = await asyncio.gather(
            *(
                device.client.post("/callbacks/platform/fake", json=device.said(task, "done"))
                for _ in range(3)
            )
        )
        assert await naming
        assert {answer.status_code for answer in answers} <= {200, 202}
        assert (await device.row(cmd_id))["status"] == COMPLETED, n
        assert await kept(device.opened, task) == 0


# A later attempt


async def test_the_name_passes_on_to_the_next_attempt_with_what_was_said(device: Device):
    """The platform answers a repeat with the task that it has, and says nothing twice."""
    first = await device.command(cmd_id=row_id("4711", 1_000), epoch=1_000)
    second_id = row_id("4711", 1_001)
    commands = device.opened.commands
    await commands.name_task(first, "again")
    await device.say("again", "sent")
    await device.say("again", "delivered")
    second = await device.command(cmd_id=second_id, epoch=1_001)
    assert await commands.name_task(second, "again")
    assert (await device.row(second))["status"] == DELIVERED
    assert (await device.row(first))["task_id"] is None
    assert (await device.say("again", "done"))["cmd_id"] == second
    assert not await commands.name_task(first, "again"), "it does not go back"
    assert [event for event, _ in await device.events(second)] == ["send", "deliver", "complete"]


async def test_what_a_former_attempt_heard_too_late_is_the_answer_to_the_next(device: Device):
    first = await device.command(cmd_id=row_id("4712", 1_000), epoch=1_000)
    await device.opened.commands.name_task(first, "late")
    await device.opened.commands.record(Event(first, "timeout", source="deadline"))
    assert (await device.say("late", "failed", why="dry"))["verdict"] == "TERMINAL"
    second = await device.command(cmd_id=row_id("4712", 1_001), epoch=1_001)
    await device.opened.commands.name_task(second, "late")
    row = await device.row(second)
    assert (row["status"], row["error_message"]) == (COMPLETED, "dry")


@pytest.mark.parametrize("first_in_line", ["the callback", "the name"])
async def test_a_callback_and_the_passing_on_of_the_name_cross_and_nothing_is_lost(
    device: Device, first_in_line: str
):
    """The callback was looked up before the name passed on; both then wait for the same row."""
    execution = str(next(NUMBERS) + 5_000)
    first = await device.command(cmd_id=row_id(execution, 1_000), epoch=1_000)
    second = await device.command(cmd_id=row_id(execution, 1_001), epoch=1_001)
    commands, task = device.opened.commands, f"cross-{execution}"
    await commands.name_task(first, task)
    crossing: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: device.say(task, "done"),
        lambda: commands.name_task(second, task),
    ]
    if first_in_line == "the name":
        crossing.reverse()
    async with commands.pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM commands WHERE cmd_id = $1 FOR UPDATE", first)
        waiting = []
        for each in crossing:
            waiting.append(asyncio.create_task(each()))
            await blocked(commands, len(waiting))
        await transaction.rollback()
    await asyncio.gather(*waiting)
    assert (await device.row(second))["status"] == COMPLETED


async def blocked(commands: Commands, number: int) -> None:
    """Wait until so many wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    async with asyncio.timeout(10):
        while await commands.pool.fetchval(query) < number:  # noqa: ASYNC110 - PostgreSQL tells nobody
            await asyncio.sleep(0.01)


def test_the_fake_platform_is_described_rightly():
    platform = read(fake.described(fake.Platform()))["fake"]
    assert isinstance(platform, Platform)
    assert set(platform.words) >= {"sent", "delivered", "done", "failed", "stopped"}
