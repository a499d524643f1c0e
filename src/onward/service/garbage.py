"""How often a process of ours looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for garbage in circles less often.

    What a run or a request leaves behind is freed by its reference counts; looking through all that
    is alive for circles, hundreds of times a second, took half of a busy worker's time.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
