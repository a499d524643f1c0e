"""An event loop whose time passes only when nothing else is left to do.

An hour of sleep takes no time, the order of what happens is always the same, and a test that
waits for something that will never come fails at once instead of hanging.
Sockets between the two ends of one process work as usual: what was written can be read at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Selector(selectors.DefaultSelector):
    """Jumps over the wait instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise AssertionError("everybody waits for something that will never come")
        self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that is its own clock."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def now() -> float:
    """The time of the loop that runs."""
    return asyncio.get_running_loop().time()


def run_in_virtual_time(scenario: Coroutine[Any, Any, Result]) -> Result:
    """Run a scenario to its end, in no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(scenario)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of an async function, with a loop of its own."""

    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        run_in_virtual_time(test(*args, **kwargs))

    return run
