"""What is at the other end: a terminal or a pipe, its width, its colours, its letters, somebody."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TextIO

import typer

from onward.cli import statuses
from onward.cli.exits import Exit, Leaving, Usage
from onward.cli.tree import Given

_RESET: Final = "\x1b[0m"
_STYLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bold": "\x1b[1m",
        "dim": "\x1b[2m",
        "red": "\x1b[31m",
        "green": "\x1b[32m",
        "yellow": "\x1b[33m",
        "cyan": "\x1b[36m",
    }
)
_MOODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict(statuses.colours()),
        **dict.fromkeys(("FINISHED", "APPROVED", "OK"), "green"),
        "TURNED_DOWN": "red",
        **dict.fromkeys(("WAITING_FOR_APPROVAL", "WAIT_APPROVAL", "PAUSED", "DISABLED"), "yellow"),
        **dict.fromkeys(("UNDER_WAY", "CANCELLING"), "cyan"),
        "STOPPED": "dim",
    }
)
# What could move the cursor, colour the screen, or show text in another order than it has.
_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)
_ASCII: Final = str.maketrans({"…": "...", "→": "->"})


@dataclass(frozen=True, slots=True)
class Terminal:
    """A stream, and what whoever reads it can see."""

    stream: TextIO
    colours: bool
    unicode: bool
    width: int | None  # none where lines may be as long as they are

    def style(self, text: str, style: str | None) -> str:
        """Give text a style, if styles can be seen."""
        return f"{_STYLES[style]}{text}{_RESET}" if style and self.colours and text else text

    def mood(self, word: str) -> str:
        """Give a status its colour."""
        return self.style(word, _MOODS.get(word.strip()))

    def print(self, text: str = "") -> None:
        """Print lines of ours; what others said went through `plain` before."""
        print(text if self.unicode else text.translate(_ASCII), file=self.stream)

    @property
    def live(self) -> bool:
        """Whether something that moves can be shown."""
        return self.width is not None and os.environ.get("TERM", "") not in {"dumb", ""}


def reader(given: Given) -> Terminal:
    """Whoever reads the data, on standard output."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # as a write to it would
    return _terminal(sys.stdout, given)


def watcher(given: Given) -> Terminal:
    """Whoever watches how it gets on, on standard error."""
    return _terminal(sys.stderr, given)


def plain(text: object) -> str:
    """Write out whatever a terminal could obey, so that nobody's words can garble it."""
    return _UNSEEN.sub(_written_out, str(text))


def wide(text: str) -> int:
    """How many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(letter) for letter in text)


def cut(text: str, width: int) -> str:
    """Cut a text so that it takes no more than so many cells."""
    if wide(text) <= width:
        return text
    kept, taken = [], 1
    for letter in text:
        taken += _cells(letter)
        if taken > width:
            break
        kept.append(letter)
    return f"{''.join(kept)}…"


def asked(given: Given, question: str, *, flag: str) -> None:
    """Ask whether to go on, and leave if not; where nobody can be asked, say which flag would do.

    The question and the answer are on standard error: data alone is on standard output.
    """
    if not somebody(given):
        raise Usage(f"Nobody is there to be asked: look at what is shown, then say {flag}.")
    if not _answered(lambda: typer.confirm(question, err=True)):
        raise Leaving(Exit.STOPPED, "Nothing was done.")


def asked_to_type(given: Given, question: str, *, word: str, flag: str) -> None:
    """Ask for a word that nobody types by accident."""
    if not somebody(given):
        raise Usage(f"Nobody is there to be asked: look at what is shown, then say {flag}.")
    typed = _answered(lambda: typer.prompt(question, err=True, default="", show_default=False))
    if str(typed).strip() != word:
        raise Leaving(Exit.STOPPED, "Nothing was done.")


def _answered(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except typer.Abort:
        raise Leaving(Exit.INTERRUPTED, "Nothing was done.") from None


def somebody(given: Given) -> bool:
    """Say whether there is somebody who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not given.no_input


def _terminal(stream: TextIO, given: Given) -> Terminal:
    there = stream.isatty()
    speaks = (stream.encoding or "ascii").lower().replace("-", "").startswith("utf")
    if not speaks and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return Terminal(
        stream,
        colours=_colours(given.color, there=there),
        unicode=speaks,
        width=shutil.get_terminal_size((100, 24)).columns if there else None,
    )


def _colours(wanted: str, *, there: bool) -> bool:
    if wanted != "auto":
        return wanted == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    return there and os.environ.get("TERM", "") not in {"dumb", ""}


def _written_out(found: re.Match[str]) -> str:
    named = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
    code = ord(found[0])
    return named.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")  # noqa: PLR2004 - a byte


def _cells(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1
