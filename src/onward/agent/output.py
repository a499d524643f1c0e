"""What a program writes: passed on as it comes, and kept for a result that has to be said again.

Both have an end. A program that writes more than is passed on is told of in its own output, and is
not held up by it.
"""

from __future__ import annotations

import asyncio
import codecs
from typing import Final

from onward.channels.base import Stream

Piece = tuple[Stream, str]

KEPT_MAX: Final = 65_536  # characters that the journal keeps of an attempt
_UNSAID_MAX: Final = 262_144  # characters; a program that is faster than the line has to wait
_decoder = codecs.getincrementaldecoder("utf-8")


class Output:
    """The output of one attempt, in the order in which it came."""

    def __init__(self, most: int) -> None:
        self._room = most
        self._most = most
        self._decoders = {stream: _decoder("backslashreplace") for stream in Stream}
        self._dropped = False
        self._kept_chars = 0
        self._pending: list[Piece] = []
        self._passed = 0  # characters that have been taken
        self.pending_chars = 0
        self.kept: list[Piece] = []
        self._taken = asyncio.Event()

    def add(self, stream: Stream, written: bytes, *, last: bool = False) -> None:
        """Take what the program has written; `last` if it will write no more there."""
        text = self._decoders[stream].decode(written, last)
        if len(text) > self._room:
            text = text[: self._room]
            self._dropped = True
        self._room -= len(text)
        self._take(stream, text)

    def end(self) -> None:
        """Take note that the program has ended: say so if there was more than is passed on."""
        for stream in Stream:
            self.add(stream, b"", last=True)
        if self._dropped:
            self._take(
                Stream.STDERR,
                f"\n[onward: more than {self._most:,} characters; the rest is dropped]\n",
            )

    def take(self) -> tuple[int, list[Piece]]:
        """What has not been passed on yet, and how many characters came before it."""
        at, pieces = self._passed, self._pending
        self._passed += self.pending_chars
        self._pending, self.pending_chars = [], 0
        self._taken.set()
        return at, pieces

    async def room(self) -> None:
        """Wait until not too much of it is waiting to be taken."""
        while self.pending_chars > _UNSAID_MAX:
            self._taken.clear()
            await self._taken.wait()

    def rewind(self) -> None:
        """Begin again, for somebody who has not heard it; only if nothing of it is gone."""
        if self._passed + self.pending_chars == self._kept_chars:
            self._pending, self.pending_chars = [*self.kept], self._kept_chars
            self._passed = 0

    def _take(self, stream: Stream, text: str) -> None:
        if not text:
            return
        self._pending.append((stream, text))
        self.pending_chars += len(text)
        kept = text[: KEPT_MAX - self._kept_chars]
        if kept:
            self.kept.append((stream, kept))
            self._kept_chars += len(kept)
