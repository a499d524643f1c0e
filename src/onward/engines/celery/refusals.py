"""How many messages were refused, counted by whoever refuses and told by whoever has a database.

Most are refused at the gate, in the main process of a worker, which is connected to the broker
alone; its other processes have PostgreSQL. A byte in a pipe between them is one refusal: whoever
takes it out writes it down. There is no lock in it that a process which is killed could keep.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_ALL: Final = 1 << 20  # more than a pipe holds


class Refusals:
    """Refusals that nobody has written down yet; made before the processes that share it."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        for end in (self._out, self._in):
            os.set_blocking(end, False)

    def add(self, number: int = 1) -> None:
        """Count refusals; tens of thousands that nobody writes down are enough to know."""
        with suppress(BlockingIOError):
            os.write(self._in, bytes(number))

    def take(self) -> int:
        """Return how many there were since somebody last asked."""
        try:
            return len(os.read(self._out, _ALL))
        except BlockingIOError:
            return 0


REFUSALS: Final = Refusals()
