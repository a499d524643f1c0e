"""What a host prints while it runs a command: cut into lines, capped, and made harmless.

A channel hands over text as it comes, in pieces that need not end where a line does. What is kept
is lines, numbered in the order in which they were complete, whatever their stream. The reader's
terminal or page must survive them: control characters, those that change the direction of the text
and halves of surrogate pairs are written out as escapes. What nobody is to see is taken out first,
whatever pieces it came in and wherever a line is cut.

Nobody is asked to wait: what exceeds a cap is left out, and a line of Onward's own says so.

What was kept has a digest, made on the way, so that nobody has to read the lines of ten thousand
hosts to say which of them printed the same. The streams of a host come over pipes of their own, and
which of two is faster is chance: equal streams have equal digests, however their lines were mixed.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final, NamedTuple

from onward.channels.base import Stream
from onward.fleet.masking import Hidden, Veil

LINE_MAX: Final = 4_096  # characters of one line
OUTPUT_MAX: Final = 1024 * 1024  # characters of all attempts of one execution
LEAST_MAX: Final = 4_096  # characters that an attempt may always print
LINES_MAX: Final = 20_000  # lines of one attempt

OURS: Final = "onward"  # the stream of what Onward itself has to say

_HARMFUL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Line(NamedTuple):
    """One line of output, as it is stored."""

    execution_id: int
    epoch: int
    line: int  # from 1, within the attempt
    stream: str
    text: str


class Output:
    """The output of one attempt. Call `take` as often as you like for what is complete so far."""

    __slots__ = (
        *("_begun", "_cut", "_digests", "_epoch", "_execution_id", "_full", "_hidden", "_lines"),
        *("_number", "_room", "_veils"),
    )

    def __init__(
        self, execution_id: int, epoch: int, attempt: int, *, hidden: Hidden | None = None
    ) -> None:
        self._execution_id = execution_id
        self._epoch = epoch
        # Each attempt may print half as much as the one before it, so that all of them together
        # stay within the cap of the execution, however often it is retried.
        self._room = max(OUTPUT_MAX >> attempt, LEAST_MAX)
        self._number = 0
        self._lines: list[Line] = []
        self._begun: dict[Stream, str] = {}  # lines that have not ended yet
        self._cut: dict[Stream, int] = {}  # how much of such a line was left out already
        self._full = False
        self._digests: dict[str, blake2b] = {}  # by stream
        self._hidden = hidden
        self._veils: dict[Stream, Veil] = {}

    def __call__(self, stream: Stream, text: str) -> None:
        """Take the next piece of a stream."""
        if self._full:
            return
        if self._hidden is not None:
            text = self._veil(stream, self._hidden).take(text)
        self._add(stream, text)

    def _veil(self, stream: Stream, hidden: Hidden) -> Veil:
        if stream not in self._veils:
            self._veils[stream] = Veil(hidden)
        return self._veils[stream]

    def _add(self, stream: Stream, text: str) -> None:
        *ended, begun = (self._begun.pop(stream, "") + text).split("\n")
        for line in ended:
            self._end(stream, line.removesuffix("\r"))
        if begun:
            # A line without an end must not pile up in memory.
            if len(begun) > LINE_MAX:
                self._cut[stream] = self._cut.get(stream, 0) + len(begun) - LINE_MAX
                begun = begun[:LINE_MAX]
            self._begun[stream] = begun

    def take(self) -> list[Line]:
        """Return the lines that are complete and have not been taken yet."""
        taken, self._lines = self._lines, []
        return taken

    def close(self) -> list[Line]:
        """Return the rest, also of lines that were never ended."""
        for stream, veil in self._veils.items():
            self._add(stream, veil.take("", last=True))
        self._veils.clear()
        for stream, begun in list(self._begun.items()):
            self._end(stream, begun)
        self._begun.clear()
        return self.take()

    @property
    def digest(self) -> str | None:
        """What tells the lines that were complete so far from others; `None` if there are none."""
        digests = self._digests
        if not digests:
            return None
        if len(digests) == 1:
            return next(iter(digests.values())).hexdigest()
        return _digest(b"".join(digests[name].digest() for name in sorted(digests))).hexdigest()

    @property
    def waiting(self) -> bool:
        """Whether there are complete lines to take."""
        return bool(self._lines)

    def _end(self, stream: Stream, text: str) -> None:
        if self._full:
            return
        left_out = self._cut.pop(stream, 0) + max(len(text) - LINE_MAX, 0)
        kept = harmless(text[:LINE_MAX])
        self._room -= len(kept) + 1
        if self._room < 0 or self._number >= LINES_MAX:
            self._full = True
            self._keep(OURS, "truncated: the attempt printed more than is kept")
            return
        self._keep(stream.value, kept)
        if left_out:
            self._keep(OURS, f"truncated: {left_out} more characters of the line above")

    def _keep(self, stream: str, text: str) -> None:
        self._number += 1
        self._lines.append(Line(self._execution_id, self._epoch, self._number, stream, text))
        told = f"{stream}\0{text}\n".encode()
        if (begun := self._digests.get(stream)) is None:
            self._digests[stream] = _digest(told)
        else:
            begun.update(told)


def _digest(begun: bytes) -> blake2b:
    return blake2b(begun, digest_size=16)


def harmless(text: str) -> str:
    r"""Write out what could garble a terminal or a page, such as ``\x1b`` or ``\u202e``."""
    return text if text.isprintable() else _HARMFUL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
