"""What signals ask of a process: to leave, then to hurry, then to be gone.

The first SIGTERM or SIGINT sets `asked`: whoever works finishes what has begun. The second cancels
every task, so that nobody waits for anything but the servers that have to be stopped. The third
ends the process where it stands.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Final

import structlog
import uvloop

from onward.errors import InvariantBroken
from onward.service.garbage import seldom_collected

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.service")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_INTERRUPTED: Final = 130


def run(work: Callable[[asyncio.Event], Coroutine[object, object, None]]) -> None:
    """Run `work` on a loop of its own until it ends; it is handed the event that asks it to leave.

    Raises KeyboardInterrupt if it was hurried, and the one error that ended it if it was not.
    """
    with seldom_collected(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_told(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except Exception as failed:
            first = _first(failed)
            if isinstance(first, InvariantBroken):
                # Told in one line, a bug of ours would not be found.
                log.critical("bug", exc_info=first)
            raise first from failed


def _first(failed: Exception) -> Exception:
    """Return what went wrong first, out of all that it has brought down with it."""
    while isinstance(failed, ExceptionGroup):
        failed = failed.exceptions[0]
    return failed


async def _told(work: Callable[[asyncio.Event], Coroutine[object, object, None]]) -> None:
    asked = asyncio.Event()
    orders = _Orders(asked)
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, orders.take, number)
    await work(asked)


class _Orders:
    """Counts the signals."""

    def __init__(self, asked: asyncio.Event) -> None:
        self._asked = asked
        self._taken = 0

    def take(self, number: int) -> None:
        self._taken += 1
        name = signal.Signals(number).name
        if self._taken == 1:
            log.info("leaving", signal=name)
            self._asked.set()
        elif self._taken == 2:  # noqa: PLR2004 - the second one
            log.warning("hurrying", signal=name)
            for task in asyncio.all_tasks():
                task.cancel()
        else:
            os._exit(_INTERRUPTED)
