"""One Celery program: a worker with its processes, or Beat; `onward worker` and `beat` run them.

`celery -A onward.engines.celery worker` does the same without what is added here: logs in the form
of the other programs, and somebody who notices that a worker is alive and silent. Celery's workers
have been known to take no more messages after their broker came back. Whoever sees messages wait
while none arrives asks the program to leave; the one who started it starts another.

When its standard input ends, whoever started it is gone, however that came about, and it leaves:
nobody would replace it if it hung, and beside the next one there would be two.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from celery import signals

from onward.engines.celery import app
from onward.engines.celery.process import CeleryBroker
from onward.service import logs
from onward.service.garbage import seldom_collected

_LOOK_S: Final = 2.0
_SILENT_S: Final = 60.0  # longer than a message may wait for room in a process
_HURRY_S: Final = 30.0
_STANDARD_INPUT: Final = 0

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.celery")


class Watch:
    """Sees to it that a worker takes messages while there are any; `waiting` says how many are."""

    def __init__(
        self,
        waiting: Callable[[], int | None],
        *,
        silent_s: float = _SILENT_S,
        look_s: float = _LOOK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waiting = waiting
        self._silent_s = silent_s
        self._look_s = look_s
        self._clock = clock
        self._heard_at = clock()
        self._waiting_since: float | None = None

    def hear(self, **_: object) -> None:
        """Take note that a message has arrived."""
        self._heard_at = self._clock()

    def begin(self, **_: object) -> None:
        """Watch from now on."""
        self.hear()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def silent(self) -> bool:
        """Look, and say whether messages have waited for too long while none arrived."""
        now = self._clock()
        if not self._waiting():
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        quiet_since = max(self._heard_at, self._waiting_since or now)
        return now - quiet_since > self._silent_s

    def _watch(self) -> None:
        while not self.silent():
            time.sleep(self._look_s)
        _leave("messages wait, and none arrives")


def work(arguments: Sequence[str], watch: Watch | None = None) -> None:
    """Run a worker until it is told to leave."""
    watch = watch or Watch(CeleryBroker(app).waiting)
    signals.setup_logging.connect(_log, weak=False)
    signals.worker_process_init.connect(_collect_seldom, weak=False)
    signals.worker_ready.connect(watch.begin, weak=False)
    signals.task_received.connect(watch.hear, weak=False)
    app.worker_main(
        [
            *("--quiet", "worker", "--pool=prefork"),
            # What they are for is done by PostgreSQL here.
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            f"--hostname=onward-{os.getpid()}@%h",
            *arguments,
        ]
    )


def beat(arguments: Sequence[str]) -> None:
    """Run Beat until it is told to leave."""
    signals.setup_logging.connect(_log, weak=False)
    app.start(["--quiet", "beat", *arguments])


def _leave_when_alone() -> None:
    """Wait until whoever started this program is gone, then leave."""
    # Not by way of `sys.stdin`, whose lock this thread would hold when the program ends.
    while os.read(_STANDARD_INPUT, 1):
        pass
    _leave("whoever started it is gone")


def _leave(reason: str) -> None:
    """Ask this program to leave, and see to it that it does."""
    log.error("program_leaves", reason=reason)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_HURRY_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _log(**_: object) -> None:
    logs.configure()


def _collect_seldom(**_: object) -> None:
    # For as long as the process lives.
    seldom_collected().__enter__()


if __name__ == "__main__":
    _log()  # before Celery does: whoever started it may be gone by then
    threading.Thread(target=_leave_when_alone, name="alone", daemon=True).start()
    {"worker": work, "beat": beat}[sys.argv[1]](sys.argv[2:])
