"""A platform that calls back late, twice and out of order, all the way through to the reports."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import httpx2
import pytest

from onward.channels.base import Delivery, Target
from onward.core.lifecycles import PLATFORM, PLATFORM_LENIENT, lifecycle_named
from onward.errors import DeliveryUnknown
from onward.fleet.attempt_ids import row_id
from onward.wiring import Onward
from tests.channels.conformance.ground import Ear
from tests.platform.carried import carried
from tests.platform.fake import Manners, Platform, http
from tests.proof_table import Tried


async def hosts(opened: Onward, platform: str, prefix: str, number: int) -> list[Target]:
    rows = await opened.commands.pool.fetch(
        "INSERT INTO hosts (name, channel, address) "
        "SELECT $1 || n, 'platform', $2 || '/dev-' || $1 || n FROM generate_series(1, $3) AS n "
        "RETURNING id, name, address",
        *(prefix, platform, number),
    )
    return [Target(*row) for row in rows]


def delivery(target: Target, n: int, epoch: int = 1, **params: object) -> Delivery:
    return Delivery(str(n), epoch, target, "open", params, timeout_s=30.0)


async def statuses(opened: Onward, cmd_id: str) -> list[str]:
    """Every status that a command has been in, and a check that it never went back."""
    timeline = await opened.commands.timeline(cmd_id)
    found = [str(each["to_status"]) for each in timeline if each["verdict"] == "OK"]
    row = await opened.commands.get(cmd_id)
    assert row is not None
    table = lifecycle_named(row["lifecycle"])
    assert all(table.states[a] < table.states[b] for a, b in pairwise(found)), found
    assert found[-1] == row["status"]
    return found


@pytest.mark.parametrize("early", [False, True])
async def test_every_command_ends_once_whatever_the_platform_does(
    opened: Onward, client: httpx2.AsyncClient, tried: Tried, *, early: bool, proof: bool
):
    number, seed = (1_000 if proof else 60), 7 + early
    base = 100_000 * (1 + early)
    targets = await hosts(opened, "fake", f"storm-{early}-", number)
    platform = Platform(manners=Manners(longest_s=0.4, doubled=0.5, early=early), seed=seed)
    async with carried(opened, client, platform) as channel:
        reports = await asyncio.gather(
            *(
                channel.deliver(delivery(target, base + n, exit_code=n % 3), Ear())
                for n, target in enumerate(targets)
            )
        )
        await platform.quiet()
    assert [report.succeeded for report in reports] == [n % 3 == 0 for n in range(number)]
    assert all(report.error for report in reports if not report.succeeded)
    assert Counter(line.split(" ")[0] for line in platform.effects)["started"] == number
    end = str(PLATFORM_LENIENT.moves["complete"].target)
    for n in range(number):
        assert (await statuses(opened, row_id(str(base + n), 1)))[-1] == end
    left = await opened.commands.pool.fetchval("SELECT count(*) FROM early_callbacks")
    assert left == 0
    how = "before their answers" if early else "after their answers"
    tried(f"commands through a platform that calls back {how}", number, f"0 lost (seed {seed})")


async def test_the_strict_lifecycle_never_jumps_and_never_goes_back(
    opened: Onward, client: httpx2.AsyncClient, *, proof: bool
):
    """What overtook its forerunner is refused, as the table says; nothing else comes of it."""
    number = 300 if proof else 30
    targets = await hosts(opened, "strict", "strictly-", number)
    platform = Platform(manners=Manners(longest_s=0.2, doubled=0.5), seed=11)
    async with carried(opened, client, platform, lifecycle="platform") as channel:
        running = [
            asyncio.create_task(channel.deliver(delivery(target, 400_000 + n), Ear()))
            for n, target in enumerate(targets)
        ]
        async with asyncio.timeout(30):
            while len(platform.tasks) < number:  # noqa: ASYNC110 - it is told by nobody
                await asyncio.sleep(0.01)
        await platform.quiet()
        for each in running:
            each.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
    order = list(PLATFORM.states)
    for n in range(number):
        found = await statuses(opened, row_id(str(400_000 + n), 1))
        sent = order.index("SENT")
        later = [each for each in found if order.index(each) >= sent]
        assert later == order[sent : sent + len(later)], found
    assert not [each for each in ended if isinstance(each, Exception)]


async def test_a_lost_answer_is_asked_for_again_and_makes_no_second_task(
    opened: Onward, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    """The task was made, but nobody heard its name; its callbacks are kept until somebody does."""
    monkeypatch.setattr("onward.fleet.carry._HOLD_S", 0.5)
    (target,) = await hosts(opened, "fake", "deaf-", 1)
    platform = Platform()
    answer = platform._answer

    async def lost_once(request: object) -> bytes:
        told = await answer(request)  # type: ignore[arg-type]  # whatever it was asked
        await platform.quiet()
        return (
            told
            if len(platform.requests) > 1
            else b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"
        )

    monkeypatch.setattr(platform, "_answer", lost_once)
    async with carried(opened, client, platform) as channel:
        running = asyncio.create_task(channel.deliver(delivery(target, 500_000), Ear()))
        async with asyncio.timeout(10):
            while not platform.effects:  # noqa: ASYNC110 - it is told by nobody
                await asyncio.sleep(0.01)
            await platform.quiet()
        platform.cut()
        assert (await running).succeeded
    assert len(platform.tasks) == 1
    assert platform.effects == ["started t-1", "finished t-1"]


async def test_a_later_attempt_hears_what_the_former_did(
    opened: Onward, client: httpx2.AsyncClient
):
    """The first was given up, its task went on: the second is answered with the same task."""
    (target,) = await hosts(opened, "fake", "twice-", 1)
    platform = Platform()
    async with carried(opened, client, platform) as channel:
        first = delivery(target, 600_000, 1, sleep_s=1.0)._replace(timeout_s=0.3)
        with pytest.raises((DeliveryUnknown, TimeoutError)):
            await channel.deliver(first, Ear())
        second = delivery(target, 600_000, 2, sleep_s=1.0)
        assert (await channel.deliver(second, Ear())).succeeded
    assert platform.effects == ["started t-1", "finished t-1"]
    assert len(platform.requests) == 2


async def test_what_a_broken_platform_did_stays_unknown(opened: Onward, client: httpx2.AsyncClient):
    (target,) = await hosts(opened, "fake", "refused-", 1)
    platform = Platform(answers=[http(503, {})])
    async with carried(opened, client, platform) as channel:
        with pytest.raises(DeliveryUnknown):
            await channel.deliver(delivery(target, 700_000)._replace(timeout_s=0.5), Ear())
    assert platform.effects == []


async def test_a_task_that_the_platform_has_given_up_has_not_succeeded(
    opened: Onward, client: httpx2.AsyncClient
):
    targets = await hosts(opened, "fake", "given-up-", 2)
    platform = Platform()
    async with carried(opened, client, platform) as channel:
        for n, (target, word) in enumerate(zip(targets, ("lost", "expired"), strict=True)):
            with pytest.raises((DeliveryUnknown, TimeoutError)):
                await channel.deliver(delivery(target, 800_000 + n, ends=word), Ear())
