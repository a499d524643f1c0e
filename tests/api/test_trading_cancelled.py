"""Requests about money that are cancelled wherever they wait: all of it is done, or nothing is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.api.conftest import calling
from tests.api.exchange import CHANGES, Exchange, Trader, exchanging, refused
from tests.proof_table import Tried
from tests.steps import cancelled_at

flavours = pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
every_change = pytest.mark.parametrize("change", CHANGES)


@pytest.fixture(scope="module")
async def exchange(shared_url: str, redis_url: str) -> AsyncIterator[Exchange]:
    """One for all tests: whoever trades has a name of their own."""
    async with exchanging(shared_url, redis_url) as found:
        yield found


@every_change
@flavours
async def test_a_request_that_is_cancelled_leaves_no_lock_and_nothing_half(
    exchange: Exchange, tried: Tried, *, change: str, late: bool
):
    """Without its key, whoever asks again learns from the version whether it was done."""
    path, seen, body = CHANGES[change].path, CHANGES[change].first, CHANGES[change].body()
    step, ends = 0, Counter[bool]()
    going_on = True
    while going_on:
        ann = await (await exchange.trader()).rich()
        going_on = await interrupted(exchange, ann, step, change, late=late)
        step += 1
        assert await free(exchange, ann)
        done = await ann.asked_for()
        ends[bool(done)] += 1
        assert [each.kind for each in done] in ([], [kind_of(change)])
        await exchange.audited()
        answer = await ann.post(path, body, seen=seen)
        if done:
            refused(answer, 412, "stale")
            answer = await ann.post(path, body, seen=answer.headers["etag"])
        assert answer.status_code == 202
    assert min(ends[True], ends[False]) >= 1
    tried(f"places to cancel a request in: {change}", step - 1, "no lock left, nothing half")


@every_change
@flavours
async def test_with_its_key_a_request_that_was_cancelled_can_be_said_again(
    exchange: Exchange, *, change: str, late: bool
):
    """Whoever has no answer need not know whether it was done."""
    path, seen, body = CHANGES[change].path, CHANGES[change].first, CHANGES[change].body()
    step, going_on = 0, True
    while going_on:
        ann = await (await exchange.trader()).rich()
        going_on = await interrupted(exchange, ann, step, change, late=late, key="once")
        step += 1
        assert await free(exchange, ann)
        done = await ann.asked_for()
        async with asyncio.timeout(30):
            while True:
                answer = await ann.post(path, body, seen=seen, key="once")
                # The transaction that was left alone may have its key for a moment longer.
                if answer.status_code != 409:
                    break
        assert answer.status_code == 202
        assert len(await ann.asked_for()) == 1
        if done:
            assert answer.headers["idempotency-replayed"] == "true"
    assert step > 2
    await exchange.audited()


async def interrupted(
    exchange: Exchange, ann: Trader, step: int, change: str, *, late: bool, key: str | None = None
) -> bool:
    """Ask for a change, and cancel it where it waits for the `step`th time; false if it does not.

    If it is `late`, what it waits for has come by then, and it never learns so.
    """
    path, seen, body = CHANGES[change].path, CHANGES[change].first, CHANGES[change].body()
    headers = {"Authorization": ann.client.headers["authorization"], "If-Match": seen}
    if key is not None:
        headers["Idempotency-Key"] = key
    # Who calls is asked anew, which is a place to wait in as well.
    exchange.services.keys.forget()

    async def asked() -> httpx2.Response:
        async with calling(exchange.app, headers) as client:
            return await client.post(path, json=body)

    return await cancelled_at(step, asked(), late=late)


async def free(exchange: Exchange, ann: Trader) -> bool:
    """Say whether nothing of this user's is locked, once what was on its way has been said."""
    locks = exchange.services.locks
    lease = await locks.take(f"behind {ann.name}")
    assert lease is not None
    await locks.free(lease)
    names = (f"account:{ann.name}:EUR", f"orders:{ann.name}:buy", f"orders:{ann.name}:sell")
    return not any([await exchange.is_locked(name) for name in names])


def kind_of(change: str) -> str:
    return change if change in {"deposit", "withdraw"} else "hold"
