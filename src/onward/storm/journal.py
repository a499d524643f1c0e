"""What a sender has been told, in a file that outlives it.

A record is written after the answer came and before anything else is done with it, so a killed
sender knows too little at most: it says again what it was told already, and that is harmless.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

# Every record has this many bytes, so the size of the file tells how many there are, and half of
# one at the end is recognised.
_RECORD: Final = 32


class Confirmation(NamedTuple):
    """The answer that a sender was given in one of its lives."""

    number: int
    life: int
    verdict: str


def count(path: Path) -> int:
    """Return how many answers have been written."""
    try:
        return path.stat().st_size // _RECORD
    except FileNotFoundError:
        return 0


def read(path: Path) -> list[Confirmation]:
    """Return what has been written, without half a record at the end."""
    text = path.read_bytes() if path.exists() else b""
    whole = text[: len(text) // _RECORD * _RECORD].decode("ascii")
    records = (line.split() for line in whole.splitlines())
    return [Confirmation(int(number), int(life), verdict) for number, life, verdict in records]


class Journal:
    """Appends to the file; one `write` a call, which a kill does not take back."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self._file, count(path) * _RECORD)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def confirm(self, confirmations: Iterable[Confirmation]) -> None:
        """Write down answers."""
        os.write(self._file, b"".join(_encoded(*found) for found in confirmations))


def _encoded(number: int, life: int, verdict: str) -> bytes:
    return f"{number:>10} {life:>3} {verdict:<{_RECORD - 16}}\n".encode("ascii")
