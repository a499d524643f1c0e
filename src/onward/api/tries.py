"""How often somebody may fail: whoever guesses is told to wait, and guesses in vain meanwhile.

Only failures are counted, by address, and only failures are refused: whoever has the right word is
let in, also behind a proxy whose address they share with somebody who guesses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from onward.api.problems import Problem

_A_SECOND: Final = 10.0
_AT_ONCE: Final = 300.0
_KNOWN_MAX: Final = 10_000


class Tries:
    """Counts failures by address; they are forgiven at a steady pace."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[float, float]] = {}  # how many, and when that was so

    def wait_s(self, where: str) -> float:
        """Return how long an address has to wait; 0 for nearly everybody."""
        return max(0.0, (self._left(where) - _AT_ONCE) / _A_SECOND)

    def refuse(self, where: str, what: str) -> None:
        """Refuse an address with 429 while it has to wait; `what` it has sent too many of."""
        wait_s = self.wait_s(where)
        if wait_s > 0:
            raise Problem(
                429,
                "too-many-tries",
                f"Too many {what}",
                "They came from the address of this caller: wait a moment.",
                headers={"Retry-After": str(int(wait_s) + 1)},
            )

    def failed(self, where: str) -> None:
        """Count a failure."""
        failures = self._left(where) + 1
        if len(self._failures) >= _KNOWN_MAX:
            self._failures.clear()
        self._failures[where] = (failures, self._clock())

    def _left(self, where: str) -> float:
        failures, at = self._failures.get(where, (0.0, 0.0))
        return max(0.0, failures - (self._clock() - at) * _A_SECOND)
