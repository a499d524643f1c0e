"""One timer for all who wait: each is given up in time, and nobody else is."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from onward.api.patience import Patience
from tests.store.asking import BOUND_S


async def for_ever(patience: Patience) -> NoReturn:
    with patience:
        await asyncio.Event().wait()
    raise AssertionError("for ever has an end")


async def test_who_takes_too_long_is_given_up():
    patience = Patience(0.01)
    async with asyncio.timeout(BOUND_S):
        waiting = [asyncio.create_task(for_ever(patience)) for _ in range(50)]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in found} == {TimeoutError}
        # The next one too, although the timer has rung.
        with pytest.raises(TimeoutError):
            await for_ever(patience)
    assert (patience._waiting, patience._given_up, patience._timer) == ({}, set(), None)


async def test_whoever_is_done_in_time_hears_nothing_of_it():
    patience = Patience(0.01)
    for _ in range(3):
        with patience:
            pass
        # It rings for somebody else, and we wait outside.
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(TimeoutError):
                await asyncio.create_task(for_ever(patience))
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_nobody_is_given_up_before_their_time():
    patience = Patience(0.02)
    loop = asyncio.get_running_loop()

    async def waited_s() -> float:
        began = loop.time()
        with pytest.raises(TimeoutError):
            await for_ever(patience)
        return loop.time() - began

    first = asyncio.create_task(waited_s())
    await asyncio.sleep(0.01)
    second = asyncio.create_task(waited_s())
    async with asyncio.timeout(BOUND_S):
        assert min(await asyncio.gather(first, second)) >= 0.0199


async def test_who_is_cancelled_by_somebody_else_is_cancelled():
    for given_up in (False, True):
        patience = Patience(BOUND_S)
        waiting = asyncio.create_task(for_ever(patience))
        await asyncio.sleep(0)
        if given_up:
            # At the same moment, and whoever asked for it comes first.
            patience._given_up.add(waiting)
            waiting.cancel()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (patience._waiting, patience._given_up) == ({}, set())
        assert patience._timer is not None
        patience._timer.cancel()


async def test_what_goes_wrong_inside_is_told_as_it_is():
    with pytest.raises(ZeroDivisionError), Patience(BOUND_S):
        raise ZeroDivisionError
