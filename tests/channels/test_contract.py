"""What a channel to simulated hosts promises, whichever way it takes to them."""

from __future__ import annotations

import asyncio
import json
from itertools import cycle, pairwise

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from onward.channels.base import Channel, Report, Stream
from onward.channels.simulated import Network, check_journal
from onward.errors import DeliveryUnknown, HostRefused, NotDelivered
from tests.channels.virtual_time import in_virtual_time, now, run_in_virtual_time
from tests.channels.worlds import WAYS, Heard, Way, delivery, outcome, quiet, world

ODD = "\x00\r\n\x1b[31m\u2028\x85 \U0001f6f0 \ud800 \u202e\ufeff \\ \" '"


# Delivered.


@in_virtual_time
async def test_a_command_is_run_once_and_reported(way: Way):
    async with world(way) as here:
        report = await here.calm.deliver(delivery(), quiet)
        assert report == Report(succeeded=True, exit_code=0)
        assert here.story() == ["a/1 started", "a/1 finished"]


@in_virtual_time
async def test_an_exit_code_is_a_report_and_no_error(way: Way):
    async with world(way) as here:
        report = await here.calm.deliver(delivery(exit_code=3), quiet)
        assert report == Report(succeeded=False, exit_code=3, error="exit code 3")


@in_virtual_time
async def test_a_slow_host_is_waited_for(way: Way):
    async with world(way) as here:
        began = now()
        assert await outcome(here.calm, delivery(sleep_s=3_000, timeout_s=3_600)) == "done"
        assert now() - began == pytest.approx(3_000)


@in_virtual_time
async def test_the_host_ends_what_takes_longer_than_it_may(way: Way):
    async with world(way) as here:
        began = now()
        report = await here.calm.deliver(delivery(sleep_s=3_600, timeout_s=10), quiet)
        assert (report.succeeded, report.exit_code) == (False, 124)
        assert now() - began == pytest.approx(10)
        assert here.story() == ["a/1 started", "a/1 stopped"]


@pytest.mark.parametrize("sleep_s", [0, 3])
def test_output_comes_in_order_from_both_streams(way: Way, sleep_s: int):
    async def scenario():
        async with world(way) as here:
            heard = Heard()
            await here.calm.deliver(delivery(lines=5, sleep_s=sleep_s), heard)
            streams = cycle([Stream.STDOUT, Stream.STDERR])
            assert heard.lines == [
                (stream, f"line {number} of 5\n")
                for number, stream in zip(range(1, 6), streams, strict=False)
            ]
            assert all(isinstance(stream, Stream) for stream, _ in heard.lines)

    run_in_virtual_time(scenario())


@in_virtual_time
async def test_output_comes_while_the_command_still_runs(way: Way):
    async with world(way) as here:
        times: list[float] = []
        began = now()
        await here.calm.deliver(
            delivery(lines=4, sleep_s=8), lambda _stream, _line: times.append(now() - began)
        )
        assert times == pytest.approx([0, 2, 4, 6])


@pytest.mark.parametrize("text", [ODD, "x" * 1_000_000, "\U0001f6f0" * 100_000, ""])
def test_a_line_arrives_as_it_was_written(way: Way, text: str):
    async def scenario():
        async with world(way) as here:
            heard = Heard()
            await here.calm.deliver(delivery(lines=2, text=text), heard)
            assert heard.lines == [(Stream.STDOUT, f"{text}\n"), (Stream.STDERR, f"{text}\n")]

    run_in_virtual_time(scenario())


_any_text = st.text(st.characters(codec=None), max_size=20)
_any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_any_text, inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@effort(max_examples=40, deadline=None)
@given(params=st.dictionaries(_any_text, _any_json, max_size=5), command_id=_any_text)
def test_parameters_and_ids_arrive_as_they_were_sent(
    way: Way, params: dict[str, object], command_id: str
):
    async def scenario():
        async with world(way) as here:
            heard = Heard()
            sent = delivery(command_id, command_type="echo")._replace(params=params)
            await here.calm.deliver(sent, heard)
            assert json.loads(heard.lines[0][1]) == params
            assert here.fleet.journal.effects[0].command_id == command_id
            assert check_journal(here.fleet.journal.lines()) == []

    run_in_virtual_time(scenario())


@in_virtual_time
async def test_a_listener_that_fails_is_told_so_and_the_host_runs_on(way: Way):
    def broken(_stream: Stream, _line: str) -> None:
        raise ZeroDivisionError

    async with world(way) as here:
        with pytest.raises(ZeroDivisionError):
            await here.calm.deliver(delivery(lines=3, sleep_s=3), broken)
        assert await outcome(here.calm, delivery()) == "repeated done"
        assert here.story() == ["a/1 started", "a/1 finished"]


# Refused.


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (delivery(command_type="dance"), "knows no command 'dance'"),
        (delivery(sleep_s=-1), "sleep_s"),
        (delivery(sleep_s=float("nan")), "sleep_s"),
        (delivery(sleep_s="long"), "sleep_s"),
        (delivery(sleep_s=10**400), "sleep_s"),
        (delivery(exit_code=True), "exit_code"),
        (delivery(exit_code=256), "exit_code"),
        (delivery(lines=10_001), "lines"),
        (delivery(fail_times=0.5), "fail_times"),
        (delivery(text=1), "text"),
    ],
)
def test_what_a_host_does_not_understand_it_refuses(way: Way, refused, reason):
    async def scenario():
        async with world(way) as here:
            with pytest.raises(HostRefused, match=reason):
                await here.calm.deliver(refused, quiet)
            assert here.story() == ["a/1 refused"]

    run_in_virtual_time(scenario())


@in_virtual_time
async def test_a_fleet_that_knows_every_command_refuses_none(way: Way):
    async with world(way, command_types=None) as here:
        assert await outcome(here.calm, delivery(command_type="dance")) == "done"


@in_virtual_time
async def test_a_host_with_an_exclusive_run_is_busy_for_all_others(way: Way):
    async with world(way) as here:
        running = asyncio.create_task(outcome(here.calm, delivery("a", 1, sleep_s=5)))
        await here.until("a/1 started")
        with pytest.raises(HostRefused, match="busy with a"):
            await here.calm.deliver(delivery("b", 2), quiet)
        with pytest.raises(HostRefused, match="busy with a"):
            await here.calm.deliver(delivery("c", 3, exclusive=False), quiet)
        assert await running == "done"
        assert await outcome(here.calm, delivery("b", 4)) == "done"


@in_virtual_time
async def test_a_refusal_holds_for_every_copy_of_the_attempt(way: Way):
    """The caller was told that it will not run, so a copy that finds the host free must not."""
    async with world(way) as here:
        running = asyncio.create_task(outcome(here.calm, delivery("a", 1, sleep_s=5)))
        await here.until("a/1 started")
        assert await outcome(here.calm, delivery("b", 2)) == "HostBusy"
        await running
        assert await outcome(here.calm, delivery("b", 2)) == "HostBusy"
        assert here.story() == ["a/1 started", "b/2 refused", "a/1 finished"]


@in_virtual_time
async def test_shared_commands_run_together_and_keep_exclusive_ones_out(way: Way):
    async with world(way) as here:
        began = now()
        together = [
            asyncio.create_task(
                outcome(here.calm, delivery(f"s{epoch}", epoch, exclusive=False, sleep_s=5))
            )
            for epoch in (1, 2, 3)
        ]
        await here.until("s1/1 started", "s2/2 started", "s3/3 started")
        assert await outcome(here.calm, delivery("a", 4)) == "HostBusy"
        assert await asyncio.gather(*together) == ["done"] * 3
        assert now() - began == pytest.approx(5)
        assert check_journal(here.fleet.journal.lines()) == []


@in_virtual_time
async def test_an_epoch_lower_than_one_seen_is_refused(way: Way):
    async with world(way) as here:
        assert await outcome(here.calm, delivery("a", 5)) == "done"
        with pytest.raises(HostRefused, match="epoch 4 is over: the host has seen 5"):
            await here.calm.deliver(delivery("b", 4), quiet)
        assert await outcome(here.calm, delivery("b", 4, host_id=2)) == "done"


@in_virtual_time
async def test_an_epoch_that_was_only_refused_has_been_seen(way: Way):
    async with world(way) as here:
        assert await outcome(here.calm, delivery("a", 5, command_type="dance")) == "HostRefused"
        assert await outcome(here.calm, delivery("b", 4)) == "HostBusy"


# Repeated.


@in_virtual_time
async def test_a_repeat_joins_the_run(way: Way):
    async with world(way) as here:
        attempt = delivery(sleep_s=4, lines=4)
        heard = Heard()
        first = asyncio.create_task(here.calm.deliver(attempt, quiet))
        await here.until("a/1 started")
        await asyncio.sleep(1.5)
        again = await here.calm.deliver(attempt, heard)
        assert again == Report(succeeded=True, exit_code=0, repeated=True)
        assert await first == Report(succeeded=True, exit_code=0)
        assert [line for _, line in heard.lines] == ["line 3 of 4\n", "line 4 of 4\n"]
        assert here.story() == ["a/1 started", "a/1 finished"]


@pytest.mark.parametrize("exit_code", [0, 7])
def test_a_repeat_is_answered_from_the_journal(way: Way, exit_code: int):
    async def scenario():
        async with world(way, remembers=False) as here:
            first = await here.calm.deliver(delivery(exit_code=exit_code), quiet)
            await here.calm.deliver(delivery("b", 2), quiet)
            again = await here.calm.deliver(delivery(exit_code=exit_code), quiet)
            assert (first.repeated, again.repeated) == (False, True)
            assert first.exit_code == again.exit_code == exit_code
            assert here.story()[:2] == ["a/1 started", "a/1 finished"]
            assert here.story().count("a/1 started") == 1

    run_in_virtual_time(scenario())


@in_virtual_time
async def test_a_newer_attempt_displaces_the_one_that_runs(way: Way):
    async with world(way) as here:
        old = asyncio.create_task(here.calm.deliver(delivery("a", 1, sleep_s=5), quiet))
        await here.until("a/1 started")
        assert await outcome(here.calm, delivery("a", 2, sleep_s=5)) == "done"
        assert (await old).error == "displaced by epoch 2"
        assert here.story() == ["a/1 started", "a/1 stopped", "a/2 started", "a/2 finished"]
        assert await outcome(here.calm, delivery("a", 1, sleep_s=5)) == "HostBusy"


@in_virtual_time
async def test_a_newer_attempt_at_what_has_succeeded_is_answered_from_memory(way: Way):
    async with world(way) as here:
        assert await outcome(here.calm, delivery("a", 1)) == "done"
        assert await outcome(here.calm, delivery("a", 2)) == "repeated done"
        assert await outcome(here.calm, delivery("b", 1)) == "HostBusy"
        assert here.story()[:3] == ["a/1 started", "a/1 finished", "a/2 answered"]


@in_virtual_time
async def test_a_forgetful_host_runs_it_again(way: Way):
    async with world(way, remembers=False) as here:
        assert await outcome(here.calm, delivery("a", 1)) == "done"
        assert await outcome(here.calm, delivery("a", 2)) == "done"


@in_virtual_time
async def test_a_newer_attempt_at_what_has_failed_runs(way: Way):
    async with world(way) as here:
        ends = [
            await outcome(here.calm, delivery(epoch=epoch, fail_times=2)) for epoch in range(1, 5)
        ]
        assert ends == ["failed", "failed", "done", "repeated done"]
        assert await outcome(here.calm, delivery(host_id=2, fail_times=2)) == "failed"


# Stopped.


@in_virtual_time
async def test_a_cancel_stops_the_run_and_confirms(way: Way):
    async with world(way) as here:
        attempt = delivery(sleep_s=3_600, timeout_s=7_200)
        running = asyncio.create_task(here.calm.deliver(attempt, quiet))
        await here.until("a/1 started")
        began = now()
        assert await here.calm.cancel(attempt) is True
        assert (await running).error == "stopped on request"
        assert now() == began
        assert await here.calm.cancel(attempt) is True
        assert here.story() == ["a/1 started", "a/1 stopped"]
        assert await outcome(here.calm, delivery("b", 2)) == "done"


@in_virtual_time
async def test_a_cancel_that_comes_too_late_says_so(way: Way):
    async with world(way) as here:
        await here.calm.deliver(delivery(), quiet)
        assert await here.calm.cancel(delivery()) is False
        assert await here.calm.cancel(delivery(epoch=2)) is False


@in_virtual_time
async def test_a_cancel_that_overtakes_its_command_keeps_it_from_running(way: Way):
    async with world(way) as here:
        assert await here.calm.cancel(delivery()) is True
        with pytest.raises(HostRefused, match="stopped before it came"):
            await here.calm.deliver(delivery(), quiet)
        assert await outcome(here.calm, delivery(epoch=2)) == "done"


@in_virtual_time
async def test_a_cancel_of_an_old_attempt_leaves_the_new_one_alone(way: Way):
    async with world(way) as here:
        new = asyncio.create_task(outcome(here.calm, delivery(epoch=2, sleep_s=5)))
        await here.until("a/2 started")
        assert await here.calm.cancel(delivery(epoch=1)) is True
        assert await new == "done"


@in_virtual_time
async def test_a_caller_who_gives_up_leaves_the_host_at_work(way: Way):
    async with world(way) as here:
        attempt = delivery(sleep_s=5, lines=5)
        heard = Heard()
        impatient = asyncio.create_task(here.calm.deliver(attempt, heard))
        await here.until("a/1 started")
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        known = len(heard.lines)
        assert await outcome(here.calm, attempt) == "repeated done"
        assert here.story() == ["a/1 started", "a/1 finished"]
        assert len(heard.lines) == known


# The network.


@in_virtual_time
async def test_a_host_that_does_not_exist_is_not_delivered_to(way: Way):
    async with world(way, hosts=range(1, 3)) as here:
        bad = await here.channel(Network.bad())
        for channel in (here.calm, bad):
            with pytest.raises(NotDelivered) as caught:
                await channel.deliver(delivery(host_id=3), quiet)
            assert not isinstance(caught.value, HostRefused)


@in_virtual_time
async def test_a_refused_connection_is_not_delivered(way: Way):
    async with world(way) as here:
        closed = await here.channel(Network(refused=1, duplicated=1))
        with pytest.raises(NotDelivered):
            await closed.deliver(delivery(), quiet)
        with pytest.raises(NotDelivered):
            await closed.cancel(delivery())
        await asyncio.sleep(3_600)
        assert here.story() == []


@in_virtual_time
async def test_a_lost_request_is_silence(way: Way):
    async with world(way) as here:
        deaf = await here.channel(Network(request_lost=1, patience_s=7))
        began = now()
        with pytest.raises(DeliveryUnknown):
            await deaf.deliver(delivery(timeout_s=10), quiet)
        assert now() - began == pytest.approx(17)
        with pytest.raises(DeliveryUnknown):
            await deaf.cancel(delivery())
        assert now() - began == pytest.approx(24)
        assert here.story() == []


@in_virtual_time
async def test_a_lost_answer_is_silence_too_but_the_host_has_run_it(way: Way):
    async with world(way) as here:
        mute = await here.channel(Network(answer_lost=1))
        with pytest.raises(DeliveryUnknown):
            await mute.deliver(delivery(), quiet)
        assert here.story() == ["a/1 started", "a/1 finished"]
        assert await outcome(here.calm, delivery()) == "repeated done"


@in_virtual_time
async def test_a_request_that_hangs_comes_when_nobody_waits_for_it_any_more(way: Way):
    async with world(way) as here:
        stuck = await here.channel(Network(hang=1))
        assert await outcome(stuck, delivery(timeout_s=10)) == "DeliveryUnknown"
        assert here.story() == []
        await asyncio.sleep(15)
        assert here.story() == ["a/1 started", "a/1 finished"]


@in_virtual_time
async def test_a_request_that_a_newer_one_overtook_is_refused(way: Way):
    async with world(way) as here:
        stuck = await here.channel(Network(hang=1))
        assert await outcome(stuck, delivery("a", 1)) == "DeliveryUnknown"
        assert await outcome(here.calm, delivery("a", 2, exit_code=1)) == "failed"
        await asyncio.sleep(3_600)
        assert here.story() == ["a/2 started", "a/2 finished", "a/1 refused"]


@in_virtual_time
async def test_a_doubled_request_runs_once(way: Way):
    async with world(way) as here:
        double = await here.channel(Network(duplicated=1))
        heard = Heard()
        report = await double.deliver(delivery(lines=2, sleep_s=1), heard)
        assert report.succeeded
        await asyncio.sleep(3_600)
        assert len(heard.lines) == 2
        assert here.story() == ["a/1 started", "a/1 finished"]


@in_virtual_time
async def test_a_copy_that_finds_its_command_running_doubles_nothing(way: Way):
    async with world(way) as here:
        double = await here.channel(Network(duplicated=1, copy_delay_s=0.1))
        heard = Heard()
        report = await double.deliver(delivery(lines=5, sleep_s=5), heard)
        assert report == Report(succeeded=True, exit_code=0)
        assert len(heard.lines) == 5
        assert here.story() == ["a/1 started", "a/1 finished"]


@in_virtual_time
async def test_a_late_copy_of_an_old_attempt_is_refused(way: Way):
    """The request itself is lost; its copy comes after the newer attempt has been there."""
    async with world(way) as here:
        double = await here.channel(Network(request_lost=1, duplicated=1, copy_delay_s=10_000))
        assert await outcome(double, delivery("a", 1, timeout_s=1)) == "DeliveryUnknown"
        assert await outcome(here.calm, delivery("a", 2)) == "done"
        await asyncio.sleep(1_000_000)
        assert here.story() == ["a/2 started", "a/2 finished", "a/1 refused"]


@in_virtual_time
async def test_a_copy_alone_is_enough(way: Way):
    async with world(way) as here:
        double = await here.channel(Network(request_lost=1, duplicated=1, copy_delay_s=0.1))
        assert await outcome(double, delivery()) == "done"


@in_virtual_time
async def test_a_request_that_was_sent_arrives_though_its_sender_gave_up(way: Way):
    async with world(way) as here:
        far = await here.channel(Network(latency_s=2))
        impatient = asyncio.create_task(far.deliver(delivery(), quiet))
        await asyncio.sleep(0.001)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        assert here.story() == []
        await asyncio.sleep(3_600)
        assert here.story() == ["a/1 started", "a/1 finished"]


@in_virtual_time
async def test_a_host_that_goes_down_says_nothing_and_comes_back_with_its_memory(way: Way):
    async with world(way) as here:
        frail = await here.channel(Network(crash=1, restart_s=100))
        began = now()
        assert await outcome(frail, delivery("a", 1, sleep_s=5)) == "DeliveryUnknown"
        assert now() - began == pytest.approx(15)
        assert here.story() == ["a/1 started", "a/1 crashed"]
        for channel in (frail, here.calm):
            with pytest.raises(NotDelivered):
                await channel.deliver(delivery("a", 1), quiet)
            with pytest.raises(NotDelivered):
                await channel.cancel(delivery("a", 1))
        await asyncio.sleep(200)
        again = await here.calm.deliver(delivery("a", 1, sleep_s=5), quiet)
        assert (again.succeeded, again.repeated) == (False, True)
        assert "went down" in (again.error or "")
        assert await outcome(here.calm, delivery("a", 2)) == "done"


@in_virtual_time
async def test_a_crash_takes_every_run_of_the_host_along(way: Way):
    async with world(way) as here:
        frail = await here.channel(Network(crash=1))
        began = now()

        async def silence(channel: Channel, command_id: str, epoch: int) -> float:
            shared = delivery(command_id, epoch, exclusive=False, sleep_s=9)
            assert await outcome(channel, shared) == "DeliveryUnknown"
            return now() - began

        beside = asyncio.create_task(silence(here.calm, "s", 1))
        await here.until("s/1 started")
        assert await silence(frail, "t", 2) == pytest.approx(15)
        assert await beside == pytest.approx(15)
        assert sorted(here.story()) == [
            "s/1 crashed",
            "s/1 started",
            "t/2 crashed",
            "t/2 started",
        ]


@in_virtual_time
async def test_a_flapping_host_comes_and_goes(way: Way):
    async with world(way) as here:
        loose = await here.channel(Network(flapping_hosts=1, flap_period_s=20, flap_down_s=5))
        ends = []
        for epoch in range(1, 101):
            ends.append(await outcome(loose, delivery(str(epoch), epoch)))
            await asyncio.sleep(1)
        assert set(ends) == {"done", "NotDelivered"}
        changes = sum(before != after for before, after in pairwise(ends))
        assert 6 <= changes <= 20


@in_virtual_time
async def test_some_hosts_are_slow(way: Way):
    async with world(way) as here:
        uneven = await here.channel(
            Network(latency_s=0.01, slow_hosts=0.2, slow_factor=100, patience_s=60)
        )

        async def took(host_id: int) -> float:
            began = now()
            assert await outcome(uneven, delivery(host_id=host_id)) == "done"
            return now() - began

        times = await asyncio.gather(*map(took, range(1, 201)))
        assert 20 <= sum(time > 0.2 for time in times) <= 60


@in_virtual_time
async def test_who_asks_again_may_have_better_luck(way: Way):
    """Chance belongs to the try: otherwise a cancel that was lost once would be lost for ever."""
    async with world(way) as here:
        lossy = await here.channel(Network(request_lost=0.9, seed=2))
        running = asyncio.create_task(outcome(here.calm, delivery(sleep_s=5_000, timeout_s=9_999)))
        await here.until("a/1 started")
        silences = 0
        for _ in range(50):
            try:
                assert await lossy.cancel(delivery()) is True
                break
            except DeliveryUnknown:
                silences += 1
        assert 0 < silences < 50
        assert await running == "failed"
