"""What every channel promises: one suite, run by each over a ground of its own.

`test_<channel>.py` imports these tests by name and defines the fixture `ground`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from onward.channels.base import Delivery, Report
from onward.errors import ChannelError, DeliveryUnknown, HostBusy, HostRefused, NotDelivered
from tests.channels.conformance.ground import Does, Ear, Ground, counted, named, until

ODD = (
    "",
    " ",
    "-rf",
    "a b",
    "$HOME `id` $(id) ; rm -rf /nowhere & | > < * ? [a] {b,c} ~ # !",
    "'single' \"double\" \\back\\slash\\",
    "line\nline\r\n\ttab",
    "\x01\x07\x1b[31m\x7f",
    "naïve Ω 指令 команда 🛰 e\u0301 \u202e \u2028 \ufeff",
    "\U0010ffff",
    "x" * 5_000,
)
ALL_BYTES = bytes(range(256))


async def test_a_command_is_run_once_and_reported(ground: Ground):
    delivery = ground.delivery(Does())
    report = await ground.channel.deliver(delivery, Ear())
    assert report.succeeded
    assert not report.repeated
    assert ground.effects() == [f"started {named(delivery)}", f"finished {named(delivery)}"]


async def test_a_failure_on_the_host_is_a_report_and_no_error(ground: Ground):
    report = await ground.channel.deliver(ground.delivery(Does(exit_code=3)), Ear())
    assert not report.succeeded
    assert report.error
    assert report.exit_code in {3, None}


async def test_what_is_refused_does_not_run(ground: Ground):
    with pytest.raises(HostRefused) as refusal:
        await ground.channel.deliver(ground.delivery(Does(refused=True)), Ear())
    assert str(refusal.value)
    assert ground.effects() == []


async def test_where_nobody_is_nothing_was_delivered(ground: Ground):
    await ground.away()
    with pytest.raises(NotDelivered):
        await ground.channel.deliver(ground.delivery(Does(), timeout_s=2), Ear())
    assert ground.effects() == []
    await ground.back()
    assert (await ground.channel.deliver(ground.delivery(Does()), Ear())).succeeded


async def test_a_way_that_is_cut_leaves_it_unknown_or_recovers(ground: Ground):
    delivery = ground.delivery(Does(sleep_s=2.0))
    running = asyncio.create_task(ground.channel.deliver(delivery, Ear()))
    await until(lambda: f"started {named(delivery)}" in ground.effects())
    await ground.cut()
    if ground.nature.recovers:
        await ground.back()
        assert (await running).succeeded
    else:
        with pytest.raises(DeliveryUnknown):
            await running
        await ground.back()
    assert counted(ground.effects()) == {named(delivery): 1}


async def test_a_repeat_is_answered_from_memory(ground: Ground):
    delivery = ground.delivery(Does())
    await ground.channel.deliver(delivery, Ear())
    if not ground.nature.remembers:
        # Nobody there to remember: whoever sends again runs it again, and says so beforehand.
        await ground.channel.deliver(delivery, Ear())
        assert counted(ground.effects()) == {named(delivery): 2}
        return
    again = await ground.channel.deliver(delivery, Ear())
    later = await ground.channel.deliver(
        ground.delivery(Does(), command_id=delivery.command_id), Ear()
    )
    assert (again.succeeded, later.succeeded) == (True, True)
    assert len(counted(ground.effects())) == 1
    assert set(counted(ground.effects()).values()) == {1}


async def test_an_attempt_that_was_displaced_is_refused(ground: Ground):
    old = ground.delivery(Does())
    new = ground.delivery(Does())
    await ground.channel.deliver(new, Ear())
    if not ground.nature.remembers:
        return
    with pytest.raises(NotDelivered):
        await ground.channel.deliver(old, Ear())
    assert counted(ground.effects()) == {named(new): 1}


async def test_a_slow_host_is_waited_for(ground: Ground):
    delivery = ground.delivery(Does(sleep_s=1.5))
    assert (await ground.channel.deliver(delivery, Ear())).succeeded
    assert ground.effects()[-1] == f"finished {named(delivery)}"


async def test_what_takes_longer_than_it_may_is_ended(ground: Ground):
    delivery = ground.delivery(Does(sleep_s=30), timeout_s=1)
    if ground.nature.limits:
        report = await ground.channel.deliver(delivery, Ear())
        assert (report.succeeded, report.exit_code) == (False, 124)
    else:
        with pytest.raises((DeliveryUnknown, TimeoutError)):
            await ground.channel.deliver(delivery, Ear())
    assert f"finished {named(delivery)}" not in ground.effects()
    assert (await ground.channel.deliver(ground.delivery(Does()), Ear())).succeeded


async def test_a_second_answer_changes_nothing(ground: Ground):
    first = ground.delivery(Does(answers=3))
    assert (await ground.channel.deliver(first, Ear())).succeeded
    second = ground.delivery(Does(exit_code=4))
    assert not (await ground.channel.deliver(second, Ear())).succeeded
    assert counted(ground.effects()) == {named(first): 1, named(second): 1}


async def test_an_answer_that_nobody_waits_for_disturbs_nobody(ground: Ground):
    given_up = ground.delivery(Does(sleep_s=1.0), exclusive=False)
    running = asyncio.create_task(ground.channel.deliver(given_up, Ear()))
    await until(lambda: f"started {named(given_up)}" in ground.effects())
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    following = ground.delivery(Does(exit_code=5, sleep_s=1.5), exclusive=False)
    report = await _through(ground, following)
    assert not report.succeeded
    assert counted(ground.effects())[named(following)] == 1


async def test_a_run_is_stopped_on_request(ground: Ground):
    if not ground.nature.cancels:
        assert not await ground.channel.cancel(ground.delivery(Does()))
        return
    delivery = ground.delivery(Does(sleep_s=30))
    running = asyncio.create_task(ground.channel.deliver(delivery, Ear()))
    await until(lambda: f"started {named(delivery)}" in ground.effects())
    assert await ground.channel.cancel(delivery)
    with suppress(ChannelError):
        assert not (await asyncio.wait_for(running, 10)).succeeded
    assert f"finished {named(delivery)}" not in ground.effects()
    assert (await ground.channel.deliver(ground.delivery(Does()), Ear())).succeeded


async def test_what_has_finished_cannot_be_stopped(ground: Ground):
    delivery = ground.delivery(Does())
    assert (await ground.channel.deliver(delivery, Ear())).succeeded
    assert not await ground.channel.cancel(delivery)


async def test_output_comes_back_whatever_bytes_it_has(ground: Ground):
    if not ground.nature.talks:
        return
    ear = Ear()
    await ground.channel.deliver(ground.delivery(Does(prints=ALL_BYTES)), ear)
    assert ear.stdout == ALL_BYTES.decode(errors="backslashreplace")


async def test_huge_output_comes_back_whole_or_ends_in_a_word(ground: Ground):
    if not ground.nature.talks:
        return
    ear = Ear()
    line = "0123456789 指令\n".encode()
    prints = line * (min(ground.nature.whole_output_max, 4 * 1024 * 1024) // len(line))
    assert (await ground.channel.deliver(ground.delivery(Does(prints=prints)), ear)).succeeded
    assert ear.stdout == prints.decode()


async def test_arguments_arrive_byte_for_byte(ground: Ground):
    delivery = ground.delivery(Does(echoes=ODD))
    assert (await ground.channel.deliver(delivery, Ear())).succeeded
    echoed = next(line for line in ground.effects() if line.startswith("echoed "))
    arrived = [bytes.fromhex(each) for each in echoed.removeprefix("echoed ").split(",")]
    assert arrived == [each.encode() for each in ODD]


async def test_many_at_once_get_each_its_own_answer(ground: Ground):
    wanted = [ground.delivery(Does(exit_code=n % 2), exclusive=False) for n in range(20)]
    reports = await asyncio.gather(*(_through(ground, each) for each in wanted))
    assert [report.succeeded for report in reports] == [n % 2 == 0 for n in range(20)]
    assert counted(ground.effects()) == {named(each): 1 for each in wanted}


async def _through(ground: Ground, delivery: Delivery) -> Report:
    """Deliver as an engine does: what a younger attempt has overtaken comes again, younger."""
    while True:
        try:
            return await ground.channel.deliver(delivery, Ear())
        except HostBusy:
            delivery = delivery._replace(epoch=ground.delivery(Does()).epoch)
