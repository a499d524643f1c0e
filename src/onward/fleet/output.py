"""What a host prints while it runs a command: cut into lines, capped, and made harmless.

A channel hands over text as it comes, in pieces that need not end where a line does. What is kept
is lines, numbered in the order in which they were complete, whatever their stream. The reader's
terminal or page must survive them: control characters, those that change the direction of the text
and halves of surrogate pairs are written out as escapes. What nobody is to see is taken out first,
whatever pieces it came in and wherever a line is cut.

Nobody is asked to wait: what exceeds a cap is left out, and a line of Onward's own says so.

What was printed has a digest, made on the way, so that nobody has to read the lines of ten thousand
hosts to say which of them printed the same. It is that of the whole, also of what is not kept. The
streams of a host come over pipes of their own, and which of two is faster is chance: equal streams
have equal digests, however their lines were mixed.
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

_DIGEST_BYTES: Final = 16

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
        *("_begun", "_cut", "_epoch", "_execution_id", "_full", "_hidden", "_lines", "_number"),
        *("_printed", "_room", "_veils"),
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
        self._printed: dict[Stream, _Printed] = {}
        self._hidden = hidden
        self._veils: dict[Stream, Veil] = {}

    def __call__(self, stream: Stream, text: str) -> None:
        """Take the next piece of a stream."""
        if self._hidden is not None:
            text = self._veil(stream, self._hidden).take(text)
        self._add(stream, text)

    def _veil(self, stream: Stream, hidden: Hidden) -> Veil:
        if stream not in self._veils:
            self._veils[stream] = Veil(hidden)
        return self._veils[stream]

    def _add(self, stream: Stream, text: str) -> None:
        if not text:
            return
        if stream not in self._printed:
            self._printed[stream] = _Printed(stream)
        self._printed[stream].add(text)
        if self._full:
            return
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
        """What tells all that was printed so far from anything else; `None` if that is nothing."""
        printed = [self._printed[stream].digest() for stream in Stream if stream in self._printed]
        if len(printed) < 2:  # noqa: PLR2004 - one needs no other digest around it
            return printed[0].hex() if printed else None
        return blake2b(b"".join(printed), digest_size=_DIGEST_BYTES).hexdigest()

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


class _Printed:
    """The digest of all that a stream has carried, whatever pieces it came in.

    How a line ends is no difference, nor whether the last one has ended.
    """

    __slots__ = ("_digest", "_ended", "_held")

    def __init__(self, stream: Stream) -> None:
        self._digest = blake2b(f"{stream.value}\0".encode(), digest_size=_DIGEST_BYTES)
        self._held = ""  # what may be the first half of the end of a line
        self._ended = True

    def add(self, text: str) -> None:
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        if text:
            self._ended = text.endswith("\n")
            self._digest.update(text.replace("\r\n", "\n").encode("utf-8", "surrogatepass"))

    def digest(self) -> bytes:
        whole = self._digest.copy()
        whole.update(self._held.encode() + (b"" if self._ended and not self._held else b"\n"))
        return whole.digest()


def harmless(text: str) -> str:
    r"""Write out what could garble a terminal or a page, such as ``\x1b`` or ``\u202e``."""
    return text if text.isprintable() else _HARMFUL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
