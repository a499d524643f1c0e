"""One reader for all who listen: what is kept is whole, and who is behind it reads alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from onward.fleet import follow
from onward.fleet.follow import Feed, Listener
from onward.store.changes import Change, Position, horizon
from onward.store.database import Pool
from tests.store.asking import BOUND_S
from tests.store.test_changes import settled, tell

AT = datetime(2026, 11, 18, tzinfo=UTC)


def change(tx: int, seq: int) -> Change:
    return Change(tx, 1, seq, AT, 1, None, None, None, f"{tx}.{seq}", None)


def kept_by(feed: Feed, start: Position, readings: Sequence[Sequence[Change]]) -> None:
    """Let a feed keep what a reader would have read from `start` on."""
    feed._start = start
    for reading in readings:
        feed._keep(reading)
        feed._reached = reading[-1].position


@pytest.mark.parametrize("kept", [1, 2, 7, 50])
async def test_from_any_position_a_feed_gives_all_that_follows_or_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, kept: int
):
    monkeypatch.setattr(follow, "_TOLD", 3)
    whole = [change(tx, seq) for tx in range(10, 40) for seq in range(tx % 4)]
    start = Position(10, 0, 0, 0)
    feed = Feed(pool, kept=kept)
    given = 0
    for end in range(2, len(whole), 2):
        if end == 2:
            kept_by(feed, start, [whole[:2]])
        else:
            feed._keep(whole[end - 2 : end])
            feed._reached = whole[end - 1].position
        for read, position in enumerate([start, *(each.position for each in whole[:end])]):
            found = feed.after(position)
            if found is None:
                continue
            given += 1
            told: list[Change] = []
            while found is not None and found[0]:
                told += found[0]
                assert found[1] == told[-1].position
                found = feed.after(found[1])
            assert told == whole[read:end]
        assert len(feed._tail) <= 2 * kept
    assert given > len(whole) / 2


async def test_who_is_further_than_the_feed_hears_nothing_twice(pool: Pool):
    feed = Feed(pool)
    kept_by(feed, Position(10, 0, 0, 0), [[change(11, 1), change(12, 1)]])
    ahead = Position(20, 0, 0, 0)
    assert feed.after(ahead) == ([], ahead)
    feed._keep([change(15, 1), change(20, 1)])
    found = feed.after(ahead)
    assert found is not None
    assert [each.event for each in found[0]] == ["20.1"]


async def test_with_nothing_to_tell_the_position_moves_on_with_the_feed(pool: Pool):
    feed = Feed(pool)
    kept_by(feed, Position(10, 0, 0, 0), [[change(11, 1)]])
    feed._reached = Position(30, 0, 0, 5)
    assert feed.after(change(11, 1).position) == ([], Position(30, 0, 0, 5))


async def test_what_comes_while_somebody_reads_alone_is_not_waited_for(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
):
    """The feed tells something new between the listener's look and their wait."""
    feed = Feed(pool)
    start = await settled(pool)
    listener = Listener(feed, start)
    read = Listener._read

    async def slowly(self: Listener) -> Sequence[Change]:
        found = await read(self)
        later = self.position._replace(kind=1, seq=1)
        kept_by(feed, start, [[Change(*later[:3], AT, 1, None, None, None, "new", None)]])
        return found

    monkeypatch.setattr(Listener, "_read", slowly)
    async with asyncio.timeout(BOUND_S):
        found = await listener.next(wait_s=10 * BOUND_S)
    assert [each.event for each in found] == ["new"]


async def test_listeners_who_come_and_go_hear_everything_from_their_position(pool: Pool):
    start = await settled(pool)
    feed = Feed(pool, poll_s=0.001, kept=3)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(feed.listen(start))
        for number in range(20):
            await tell(pool, "job", f"{number}")
            if number % 5 == 0:
                async with feed.listen(start) as other:
                    assert await heard(other, number + 1) == [f"{n}" for n in range(number + 1)]
        assert await heard(first, 20) == [f"{n}" for n in range(20)]
    assert (feed.listeners, feed._polling) == (0, None)


async def heard(listener: Listener, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(BOUND_S):
        while len(found) < count:
            found += [each.event for each in await listener.next(wait_s=1.0)]
    return found


async def test_a_closed_feed_lets_everybody_go_at_once(pool: Pool):
    feed = Feed(pool)
    async with feed.listen(await horizon(pool)) as listener:
        waiting = asyncio.create_task(listener.next(wait_s=10 * BOUND_S))
        await pool.fetchval("SELECT 1")
        feed.close()
        async with asyncio.timeout(BOUND_S):
            assert list(await waiting) == []
            assert list(await listener.next(wait_s=10 * BOUND_S)) == []
