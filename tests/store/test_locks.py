"""Locks shed contention: always freed, never in the way of anybody when their server is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from onward.errors import InvalidInput
from onward.store import locks as store
from onward.store.locks import Lease, Locks
from tests.mortal_valkey import MortalValkey, mortal_valkey
from tests.proof_table import Tried
from tests.steps import cancelled_at

BOUND_S = 30.0
KEY = "onward:lock:job:1"


@pytest.fixture(scope="module")
def shared_valkey() -> Iterator[MortalValkey]:
    with mortal_valkey() as found:
        yield found


@pytest.fixture
def valkey(shared_valkey: MortalValkey) -> Iterator[MortalValkey]:
    """A server that is alive and empty, whatever the test before has done to it."""
    shared_valkey.empty()
    yield shared_valkey
    shared_valkey.go_on()
    shared_valkey.strike_down()
    shared_valkey.raise_up()


@pytest.fixture(autouse=True)
def quickly_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wants to wait for a second until a server is tried again."""
    monkeypatch.setattr(store, "_REST_S", 0.02)


@asynccontextmanager
async def opened(url: str | None, **options: Any) -> AsyncIterator[Locks]:
    """The locks of a process."""
    found = Locks(url, **options)
    try:
        yield found
    finally:
        await found.close()


async def until(seen: Callable[[], Awaitable[object]]) -> None:
    """Return when something is so; not never."""
    async with asyncio.timeout(BOUND_S):
        while True:
            if await seen():
                return
            await asyncio.sleep(0.005)


async def taken(locks: Locks, name: str = "job:1") -> Lease:
    lease = await locks.take(name)
    assert lease is not None
    return lease


async def kept(locks: Locks) -> bool:
    """Whether the server is asked again."""
    lease = await taken(locks, "whether it is back")
    await locks.free(lease)
    return lease.kept


# Who holds what


async def test_of_two_processes_one_holds_a_lock_until_it_is_freed(valkey: MortalValkey):
    async with opened(valkey.url) as one, opened(valkey.url) as two:
        lease = await taken(one)
        assert await two.take("job:1") is None
        assert await two.take("job:2") is not None
        await one.free(lease)
        assert await two.take("job:1") is not None


async def test_a_lock_is_a_key_with_a_token_that_ends_by_itself(valkey: MortalValkey):
    async with opened(valkey.url) as locks:
        one, two = await taken(locks), await taken(locks, "job:2")
        assert one.token != two.token
        with valkey.client as client:
            assert client.get(KEY) == one.token.encode()
            assert 0 < client.pttl(KEY) <= 5_000


@pytest.mark.parametrize("server", [True, False])
async def test_within_a_process_a_holder_is_known_without_asking(
    valkey: MortalValkey, *, server: bool
):
    async with opened(valkey.url if server else None) as locks:
        lease = await taken(locks)
        before = valkey.said("evalsha")
        assert await locks.take("job:1") is None
        assert valkey.said("evalsha") == before
        await locks.free(lease)
        assert await locks.take("job:1") is not None


async def test_a_lock_that_has_ended_is_not_freed_by_who_had_it(valkey: MortalValkey):
    async with opened(valkey.url, ttl_s=0.02) as slow, opened(valkey.url) as quick:
        first = await taken(slow)
        await until(lambda: _gone(valkey))
        second = await taken(quick)
        await slow.free(first)
        with valkey.client as client:
            assert client.get(KEY) == second.token.encode()
        assert await slow.take("job:1") is None


async def test_a_lock_that_has_ended_holds_nobody_back_in_its_own_process_either():
    async with opened(None, ttl_s=0.02) as locks:
        first = await taken(locks)
        await until(lambda: locks.take("job:1"))
        await locks.free(first)
        assert await locks.take("job:1") is None  # it is the second one's


async def test_whoever_asks_at_the_same_moment_goes_with_one_message(
    valkey: MortalValkey, tried: Tried
):
    async with opened(valkey.url) as locks:
        await kept(locks)
        before = valkey.said("evalsha")
        leases = await asyncio.gather(*(taken(locks, f"job:{n}") for n in range(200)))
        await asyncio.gather(*(locks.free(lease) for lease in leases))
        assert valkey.said("evalsha") == before + 2
        assert valkey.holds() == set()
    tried("locks taken and freed with two messages", 200, "all granted, none left")


async def test_of_many_in_many_processes_one_is_granted(valkey: MortalValkey):
    """However busy the machine is: whoever does not wait for the server goes on without it."""
    async with (
        opened(valkey.url, patience_s=30.0) as one,
        opened(valkey.url, patience_s=30.0) as two,
        opened(valkey.url, patience_s=30.0) as three,
    ):
        asked = [each.take("job:1") for each in (one, two, three) for _ in range(20)]
        granted = [lease for lease in await asyncio.gather(*asked) if lease]
        assert len(granted) == 1


# Freed, whatever happens


async def test_a_lock_is_freed_after_success_and_after_an_error(valkey: MortalValkey):
    async with opened(valkey.url) as locks:
        async with locks.holding("job:1") as granted:
            assert granted
            assert valkey.holds() == {KEY}
            async with locks.holding("job:1") as again:
                assert not again
            assert valkey.holds() == {KEY}
        assert valkey.holds() == set()
        with pytest.raises(ZeroDivisionError):
            async with locks.holding("job:1"):
                raise ZeroDivisionError
        assert valkey.holds() == set()


async def test_whoever_is_cancelled_wherever_they_wait_leaves_nothing(
    valkey: MortalValkey, tried: Tried
):
    async def work() -> None:
        async with locks.holding("job:1") as granted:
            assert granted
            await asyncio.sleep(0)

    step = 0
    async with opened(valkey.url) as locks:
        while await cancelled_at(step, work()):
            step += 1
            # Their process may take it at once; others when the word of it has been sent.
            lease = await taken(locks)
            assert lease.kept
            await locks.free(lease)
            assert valkey.holds() == set()
    assert step >= 3
    tried("places to be cancelled in while a lock is held", step, "no lock left")


async def test_whoever_is_cancelled_after_any_number_of_turns_leaves_nothing(
    valkey: MortalValkey, tried: Tried
):
    """Also while the message is on its way: it may have been heard, and its answer is lost."""
    async with opened(valkey.url) as locks:
        for turns in range(60):
            task = asyncio.create_task(locks.take("job:1"))
            for _ in range(turns % 20):
                await asyncio.sleep(0)
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(ended, Lease):
                await locks.free(ended)
            await locks.free(await taken(locks))
            assert valkey.holds() == set()
    tried("locks asked for and given up at any moment", 60, "no lock left")


async def test_a_lock_that_was_heard_of_and_given_up_is_freed(valkey: MortalValkey):
    """The server gets the wish while it is stopped, and goes on when nobody waits any more."""
    async with opened(valkey.url, patience_s=BOUND_S) as locks:
        await kept(locks)
        valkey.stop()
        task = asyncio.create_task(locks.take("job:1"))
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        valkey.go_on()
        await locks.close()
        assert valkey.holds() == set()


async def test_a_release_goes_through_though_nobody_waits_for_it(valkey: MortalValkey):
    async with opened(valkey.url, patience_s=BOUND_S) as locks:
        lease = await taken(locks)
        valkey.stop()
        task = asyncio.create_task(locks.free(lease))
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        valkey.go_on()
        await locks.close()
        assert valkey.holds() == set()


async def test_after_closing_locks_are_the_processs_own(valkey: MortalValkey):
    async with opened(valkey.url) as locks:
        held = await taken(locks)
        await locks.close()
        assert valkey.holds() == {KEY}
        await locks.free(held)
        lease = await taken(locks)
        assert not lease.kept
        assert await locks.take("job:1") is None


# The server is away


async def test_a_server_that_was_never_there_is_in_nobodys_way():
    with structlog.testing.capture_logs() as said:
        async with opened("redis://:a-secret@127.0.0.1:1/0") as locks:
            for _ in range(20):
                lease = await taken(locks)
                assert await locks.take("job:1") is None
                await locks.free(lease)
    assert [line["event"] for line in said] == ["locks go on without their server"]
    assert "a-secret" not in str(said)
    assert "job:1" not in str(said)


async def test_a_server_that_is_killed_is_used_again_when_it_is_back(valkey: MortalValkey):
    with structlog.testing.capture_logs() as said:
        async with opened(valkey.url) as locks, opened(valkey.url) as other:
            held = await taken(locks)
            valkey.strike_down()
            for _ in range(20):
                lease = await taken(locks, "job:2")
                assert not lease.kept
                await locks.free(lease)
            await locks.free(held)
            valkey.raise_up()
            await until(lambda: kept(locks))
            lease = await taken(locks)
            assert await other.take("job:1") is None
            await locks.free(lease)
            assert valkey.holds() == set()
    assert [line["event"] for line in said] == [
        "locks go on without their server",
        "locks have their server again",
    ]


async def test_a_server_that_was_started_anew_is_asked_at_once(valkey: MortalValkey):
    """Neither the connection nor the script is there any more; nobody has to notice."""
    with structlog.testing.capture_logs() as said:
        async with opened(valkey.url, patience_s=BOUND_S) as locks:
            assert await kept(locks)
            valkey.strike_down()
            valkey.raise_up()
            assert (await taken(locks)).kept
            assert valkey.holds() == {KEY}
    assert said == []


async def test_a_server_that_says_nothing_is_waited_for_once(valkey: MortalValkey):
    """What it has heard meanwhile is freed when it speaks again, whoever wanted it."""
    with structlog.testing.capture_logs() as said:
        async with opened(valkey.url, patience_s=0.05) as locks, opened(valkey.url) as other:
            held = await taken(locks, "job:0")
            valkey.stop()
            unheard = await taken(locks)
            assert not unheard.kept
            for n in range(2, 100):
                # They are granted while it is silent: nobody waits for it any more.
                assert not (await taken(locks, f"job:{n}")).kept
            await locks.free(held)
            valkey.go_on()
            await until(lambda: kept(locks))
            assert valkey.holds() == set()
            assert await other.take("job:1") is not None
    assert [line["event"] for line in said] == [
        "locks go on without their server",
        "locks have their server again",
    ]


async def test_a_server_that_was_emptied_lets_the_next_one_in(valkey: MortalValkey):
    async with opened(valkey.url) as one, opened(valkey.url) as two:
        first = await taken(one)
        valkey.empty()
        second = await taken(two)
        await one.free(first)
        with valkey.client as client:
            assert client.get(KEY) == second.token.encode()


async def test_a_server_that_is_full_is_in_nobodys_way_and_is_said_once(valkey: MortalValkey):
    with structlog.testing.capture_logs() as said:
        async with opened(valkey.url) as locks:
            held = await taken(locks)
            with valkey.client as client:
                client.config_set("maxmemory", 1)
            assert not await kept(locks)
            await locks.free(held)
            # It is asked again and again, and it is one and the same outage.
            asked = valkey.said("evalsha")
            await until(lambda: _asked(valkey, asked + 3))
            assert len(said) == 1
            with valkey.client as client:
                client.config_set("maxmemory", 0)
            await until(lambda: kept(locks))
            assert valkey.holds() == set()
    assert said[1]["event"] == "locks have their server again"


async def test_very_many_locks_of_a_server_that_was_away_are_freed(
    valkey: MortalValkey, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store, "_MESSAGE_MAX", 7)
    async with opened(valkey.url, patience_s=0.05) as locks:
        leases = [await taken(locks, f"job:{n}") for n in range(50)]
        valkey.stop()
        await asyncio.gather(*(locks.free(lease) for lease in leases))
        valkey.go_on()
        await until(lambda: kept(locks))
        assert valkey.holds() == set()


def test_an_address_that_is_none_is_refused_by_name():
    with pytest.raises(InvalidInput, match="ONWARD_REDIS_URL"):
        Locks("nonsense")


async def _gone(valkey: MortalValkey) -> bool:
    return KEY not in valkey.holds()


async def _asked(valkey: MortalValkey, times: int) -> bool:
    return valkey.said("evalsha") >= times
