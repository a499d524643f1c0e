"""Cancelling a coroutine in each place where it waits, one after the other."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any


async def cancelled_at(step: int, work: Coroutine[Any, Any, object], *, late: bool = False) -> bool:
    """Run `work` in a task of its own and cancel it where it waits for the `step`th time, from 0.

    If it is `late`, what it waits for has come by then, and it is cancelled before it goes on.
    False if it does not wait that often: it has ended, as if nothing had happened.
    """
    waited: list[int] = []
    task = asyncio.create_task(_counting(work, step, waited, late=late))
    await asyncio.wait({task})
    if len(waited) <= step:
        task.result()
        return False
    if not task.cancelled():
        task.exception()
    return True


async def _counting(
    work: Coroutine[Any, Any, object], step: int, waited: list[int], *, late: bool
) -> object:
    return await _counted(work, step, waited, late=late)


@types.coroutine
def _counted(
    work: Coroutine[Any, Any, object], step: int, waited: list[int], *, late: bool
) -> Generator[Any, Any, object]:
    going = work.send
    value: Any = None
    while True:
        try:
            future = going(value)
        except StopIteration as ended:
            return ended.value
        if len(waited) == step:
            task = asyncio.current_task()
            assert task is not None
            if late and future is not None:
                # Told before the task is, which waits for it only from now on.
                future.add_done_callback(lambda _, task=task: task.cancel())
            else:
                # While it runs: the task cancels what it is about to wait for.
                task.cancel()
        waited.append(1)
        try:
            value = yield future
            going = work.send
        except BaseException as error:  # noqa: BLE001 - handed on, whatever it is
            value = error
            going = work.throw
