"""A channel that is made of a wire: what it leaves in the table, and what it brings back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from onward.channels.base import Delivery, Heard, Letter, Listener, Report, Stream, Target
from onward.commands import create_command
from onward.core.lifecycles import NODE, PLATFORM, PLATFORM_LENIENT
from onward.errors import (
    DeliveryUnknown,
    HostBusy,
    HostRefused,
    InvalidInput,
    NotDelivered,
)
from onward.fleet.attempt_ids import letter_id, row_id, row_id_of
from onward.fleet.carry import CANCELLED, INTERRUPTED, Carriage, Carrier
from onward.store.commands import Commands
from onward.store.database import Pool
from onward.wiring import Onward
from tests.channels.conformance.ground import Ear, until

_numbers = count(1_000)


class Paper:
    """A wire that keeps what is sent; a test says what comes of it."""

    def __init__(self) -> None:
        self.sent: list[Letter] = []
        self.asked_to_stop: list[Letter] = []
        self.trouble: Exception | None = None
        self.name: str | None = None
        self.heard: Listener | None = None
        self.at_once: Callable[[Letter], Heard | None] = lambda _: None

    async def send(self, letter: Letter) -> str | None:
        if self.trouble is not None:
            raise self.trouble
        self.sent.append(letter)
        if (word := self.at_once(letter)) is not None:
            await self.says(word)
        return self.name

    async def cancel(self, letter: Letter) -> bool:
        self.asked_to_stop.append(letter)
        return True

    async def listen(self, heard: Listener) -> None:
        self.heard = heard
        await asyncio.Event().wait()

    async def says(self, *words: Heard) -> None:
        assert self.heard is not None
        await self.heard(words)


@asynccontextmanager
async def carrying(
    opened: Onward, lifecycle: str = NODE.name, channel: str = "mqtt"
) -> AsyncIterator[tuple[Carrier, Paper]]:
    wire = Paper()
    commands = Commands(opened.commands.pool, batch_max=100, group_wait_s=0)
    carrier = Carrier(commands, opened.settings, Carriage(wire, channel, lambda _: lifecycle))
    running = asyncio.create_task(carrier.run())
    await until(lambda: wire.heard is not None)
    try:
        yield carrier, wire
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await commands.close()


async def made(pool: Pool, channel: str = "mqtt", name: str = "n1") -> Target:
    host_id = await pool.fetchval(
        "INSERT INTO hosts (name, channel) VALUES ($1, $2) "
        "ON CONFLICT (name) DO UPDATE SET channel = $2 RETURNING id",
        name,
        channel,
    )
    return Target(host_id, name, "")


def delivery(target: Target, *, command_id: int | None = None, timeout_s: float = 20) -> Delivery:
    number = next(_numbers)
    params: dict[str, object] = {"relay": 3}
    return Delivery(str(command_id or number), number, target, "set_relay", params, timeout_s)


def word(letter: Letter, event: str, **data: object) -> Heard:
    return Heard(letter.cmd_id, event, letter.epoch, data)


async def statuses(pool: Pool, cmd_id: str) -> list[str]:
    rows = await pool.fetch(
        "SELECT to_status FROM timeline WHERE cmd_id = $1 AND verdict = 'OK' ORDER BY seq", cmd_id
    )
    return [row["to_status"] for row in rows]


async def test_an_attempt_is_sent_acknowledged_done_and_reported(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wanted = delivery(await made(pool))
        running = asyncio.create_task(carrier.deliver(wanted, ear := Ear()))
        await until(lambda: wire.sent)
        (letter,) = wire.sent
        await until_sent(pool, wanted)
        await wire.says(word(letter, "ack"))
        await wire.says(word(letter, "done", result={"output": "relay 3 is on\n"}, result_code="0"))
        assert await running == Report(succeeded=True, exit_code=0)
    assert ear.heard == {Stream.STDOUT: "relay 3 is on\n"}
    assert letter.command_type == "set_relay"
    assert letter.params == {"relay": 3}
    events = ("send", "ack", "done")
    expected = [NODE.initial, *(NODE.moves[event].target for event in events)]
    assert await statuses(pool, row_id(wanted.command_id, wanted.epoch)) == expected


@pytest.mark.parametrize(
    ("event", "data", "outcome"),
    [
        ("no_effect", {}, Report(succeeded=True)),
        (
            "fail",
            {"error_message": "the coil is open", "result_code": "7"},
            Report(succeeded=False, exit_code=7, error="the coil is open"),
        ),
        ("invalid", {"error_message": "there is no relay 3"}, HostRefused),
        ("busy", {}, HostBusy),
    ],
)
async def test_each_word_of_a_node_has_its_outcome(
    opened: Onward, pool: Pool, event: str, data: dict[str, object], outcome: object
):
    async with carrying(opened) as (carrier, wire):
        wire.at_once = lambda letter: word(letter, event, **data)
        running = carrier.deliver(delivery(await made(pool)), Ear())
        if isinstance(outcome, Report):
            assert await running == outcome
            return
        with pytest.raises(outcome) as refusal:  # type: ignore[call-overload]
            await running
        assert type(refusal.value) is outcome


async def test_what_could_not_be_sent_is_sent_again_until_it_is(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.trouble = NotDelivered("no broker")
        wanted = delivery(await made(pool))
        running = asyncio.create_task(carrier.deliver(wanted, Ear()))
        cmd_id = row_id(wanted.command_id, wanted.epoch)
        await until_status(pool, cmd_id, NODE.moves["send_fail"].target)
        wire.trouble, wire.at_once = None, lambda letter: word(letter, "done")
        await pool.execute("UPDATE sendings SET send_at = now()")
        assert (await running).succeeded


async def test_what_never_got_away_was_not_delivered(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.trouble = NotDelivered("no broker")
        wanted = delivery(await made(pool), timeout_s=0.5)
        with pytest.raises(NotDelivered):
            await carrier.deliver(wanted, Ear())
        assert await pool.fetchval("SELECT count(*) FROM sendings") == 0


async def test_what_may_have_got_away_is_unknown(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.trouble = DeliveryUnknown("the connection broke")
        with pytest.raises(DeliveryUnknown):
            await carrier.deliver(delivery(await made(pool), timeout_s=0.5), Ear())


async def test_what_was_sent_and_not_answered_is_unknown(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, _):
        with pytest.raises(DeliveryUnknown):
            await carrier.deliver(delivery(await made(pool), timeout_s=0.5), Ear())


async def test_what_has_begun_and_not_ended_has_timed_out(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.at_once = lambda letter: word(letter, "ack")
        with pytest.raises(TimeoutError):
            await carrier.deliver(delivery(await made(pool), timeout_s=0.5), Ear())


async def test_an_answer_that_comes_too_late_is_kept(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wanted = delivery(await made(pool), timeout_s=0.5)
        with pytest.raises(DeliveryUnknown):
            await carrier.deliver(wanted, Ear())
        await pool.execute("UPDATE commands SET deadline_at = now()")
        await opened.commands.expire_due()
        await wire.says(word(wire.sent[0], "done", result={"relay": "on"}))
        row = await opened.commands.get(row_id(wanted.command_id, wanted.epoch))
    assert row is not None
    assert row["status"] == NODE.moves["timeout"].target
    assert row["late_result"] is not None


async def test_what_the_wire_refuses_is_refused_at_once(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.trouble = HostRefused("n1 has no key: make one")
        with pytest.raises(HostRefused, match="has no key"):
            await carrier.deliver(delivery(await made(pool)), Ear())
        assert await pool.fetchval("SELECT count(*) FROM sendings") == 0


async def test_an_answer_heard_by_another_process_ends_the_wait(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire), carrying(opened) as (_, other):
        running = asyncio.create_task(carrier.deliver(delivery(await made(pool)), Ear()))
        await until(lambda: wire.sent)
        await other.says(word(wire.sent[0], "done"))
        assert (await running).succeeded


async def test_a_second_answer_and_a_former_attempt_change_nothing(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.at_once = lambda letter: word(letter, "done")
        target = await made(pool)
        first = delivery(target)
        assert (await carrier.deliver(first, Ear())).succeeded
        wire.at_once = lambda letter: word(letter, "fail")
        second = delivery(target, command_id=int(first.command_id))
        assert not (await carrier.deliver(second, Ear())).succeeded
        assert len({letter.cmd_id for letter in wire.sent}) == 1
        await wire.says(word(wire.sent[0], "fail"), word(wire.sent[1], "done"))
        ends = [
            (await statuses(pool, row_id(each.command_id, each.epoch)))[-1]
            for each in (first, second)
        ]
    assert ends == [NODE.moves["done"].target, NODE.moves["fail"].target]


async def test_the_same_attempt_twice_is_sent_once(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wanted = delivery(await made(pool))
        both = [asyncio.create_task(carrier.deliver(wanted, Ear())) for _ in range(2)]
        await until(lambda: wire.sent)
        await wire.says(word(wire.sent[0], "done"))
        assert [report.succeeded for report in await asyncio.gather(*both)] == [True, True]
        assert len(wire.sent) == 1


async def test_a_node_is_asked_to_stop_and_says_that_it_has(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wanted = delivery(await made(pool))
        running = asyncio.create_task(carrier.deliver(wanted, Ear()))
        await until(lambda: wire.sent)
        await until_sent(pool, wanted)
        stopping = asyncio.create_task(carrier.cancel(wanted))
        await until(lambda: wire.asked_to_stop)
        await wire.says(word(wire.sent[0], "fail", result_code=CANCELLED))
        assert await stopping
        assert not (await running).succeeded
        assert not await carrier.cancel(wanted)


async def test_what_never_got_away_is_stopped_without_asking(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.trouble = NotDelivered("no broker")
        wanted = delivery(await made(pool), timeout_s=3)
        running = asyncio.create_task(carrier.deliver(wanted, Ear()))
        await until_status(
            pool, row_id(wanted.command_id, wanted.epoch), NODE.moves["send_fail"].target
        )
        await until_certain(pool)
        assert await carrier.cancel(wanted)
        assert not wire.asked_to_stop
        with pytest.raises(NotDelivered):
            await running


async def test_a_command_that_somebody_made_travels_the_same_way(opened: Onward, pool: Pool):
    await made(pool)
    async with carrying(opened) as (_, wire):
        cmd_id = await created()
        await until(lambda: wire.sent)
        (letter,) = wire.sent
        assert (letter.cmd_id, letter.command_type) == (cmd_id, "set_relay")
        await wire.says(word(letter, "done"))
        row = await opened.commands.get(cmd_id)
    assert row is not None
    assert row["status"] == NODE.moves["done"].target


@pytest.mark.usefixtures("opened")
async def test_what_is_for_no_host_of_ours_is_nobodys_to_send(pool: Pool):
    await made(pool, name="another")
    await created()
    assert await pool.fetchval("SELECT count(*) FROM sendings") == 0


async def test_a_platform_names_its_task_and_calls_back(opened: Onward, pool: Pool):
    async with carrying(opened, PLATFORM.name, "platform") as (carrier, wire):
        wire.name = "task-64"
        wanted = delivery(await made(pool, "platform"))
        running = asyncio.create_task(carrier.deliver(wanted, Ear()))
        cmd_id = row_id(wanted.command_id, wanted.epoch)
        await until_status(pool, cmd_id, PLATFORM.moves["save"].target)
        row = await opened.commands.get(cmd_id)
        assert row is not None
        assert row["task_id"] == "task-64"
        for event in ("send", "deliver", "complete"):
            await wire.says(word(wire.sent[0], event))
        assert (await running).succeeded


async def test_after_a_failure_a_platform_is_asked_for_another_task(opened: Onward, pool: Pool):
    async with carrying(opened, PLATFORM_LENIENT.name, "platform") as (carrier, wire):
        first = delivery(await made(pool, "platform"))
        again = [first._replace(epoch=next(_numbers)) for _ in range(2)]
        wire.name = "task-1"
        with pytest.raises(DeliveryUnknown):
            await carrier.deliver(first._replace(timeout_s=0.5), Ear())
        wire.name = "task-2"
        wire.at_once = lambda letter: word(letter, "complete", error_code="FAILED")
        assert not (await carrier.deliver(again[0], Ear())).succeeded
        wire.name = "task-3"
        wire.at_once = lambda letter: word(letter, "complete")
        assert (await carrier.deliver(again[1], Ear())).succeeded
    keys = [letter.key for letter in wire.sent]
    assert keys == ["", "", f"{wire.sent[0].cmd_id}-{again[0].epoch}"]


async def test_a_node_that_was_interrupted_may_have_done_it(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.at_once = lambda letter: word(letter, "fail", error_code=INTERRUPTED)
        with pytest.raises(DeliveryUnknown):
            await carrier.deliver(delivery(await made(pool)), Ear())


async def test_details_that_cannot_be_kept_do_not_lose_the_word(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.at_once = lambda letter: word(letter, "done", result="\0" * 3)
        assert (await carrier.deliver(delivery(await made(pool)), Ear())).succeeded


async def test_nonsense_on_the_wire_is_passed_over(opened: Onward, pool: Pool):
    async with carrying(opened) as (carrier, wire):
        wire.at_once = lambda letter: word(letter, "done")
        await wire.says(
            Heard("nonsense", "done", 1, {}),
            Heard(letter_id(row_id("5", 7)), "done", None, {}),
            Heard(letter_id(row_id("5", 7)), "done", -4, {}),
            Heard(letter_id(row_id("5", 7)), "done", 7, {}),
            Heard(letter_id(row_id("5", 7)), "no such word", 7, {}),
        )
        assert (await carrier.deliver(delivery(await made(pool)), Ear())).succeeded


@pytest.mark.parametrize("execution", [0, 1, 4_711, 2**60 - 1])
@pytest.mark.parametrize("epoch", [0, 1, 2**62 - 1])
def test_the_ids_of_an_attempt_lead_to_each_other(execution: int, epoch: int):
    row = row_id(str(execution), epoch)
    known = letter_id(row)
    assert row_id_of(Heard(known, "done", epoch, {})) == row
    assert known == letter_id(row_id(str(execution), 12))


def test_an_execution_that_is_no_number_has_no_such_id():
    with pytest.raises(InvalidInput):
        row_id(str(2**60), 1)


async def created() -> str:
    answer = await create_command(type="set_relay", node="n1", params={"relay": 3})
    assert answer.record is not None
    return answer.record.cmd_id


async def until_status(pool: Pool, cmd_id: str, wanted: object) -> None:
    query = "SELECT status FROM commands WHERE cmd_id = $1"
    async with asyncio.timeout(15):
        while await pool.fetchval(query, cmd_id) != wanted:  # noqa: ASYNC110 - it is in the table
            await asyncio.sleep(0.02)


async def until_sent(pool: Pool, wanted: Delivery) -> None:
    await until_status(pool, row_id(wanted.command_id, wanted.epoch), NODE.moves["send"].target)


async def until_certain(pool: Pool) -> None:
    async with asyncio.timeout(15):
        while await pool.fetchval("SELECT bool_or(doubt) FROM sendings"):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
