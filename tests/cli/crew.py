"""People at a command line: each with a key of their own, before one service that they share."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from onward import cli
from tests.cli.running import BOUND_S, Up, environment

ROLES = {"ann": "operator", "bob": "approver", "vic": "viewer", "tom": "trader"}


class Ended(NamedTuple):
    """What a command said, and how it left."""

    code: int
    said: str
    told: str  # on standard error

    @property
    def json(self) -> Any:
        return json.loads(self.said)


@dataclass(frozen=True, slots=True)
class Crew:
    """A service, and the keys of those who use it."""

    up: Up
    folder: Path
    keys: dict[str, str] = field(default_factory=dict, repr=False)

    def environment(self, who: str) -> dict[str, str]:
        """What the command line of somebody finds."""
        found = environment(self.folder)
        for name in ("NO_COLOR", "CLICOLOR_FORCE"):
            found.pop(name, None)
        return {
            **found,
            "ONWARD_URL": self.up.address,
            "ONWARD_KEY": self.keys[who],
            "ONWARD_CONFIG": str(self.folder / "config.toml"),
            "TERM": "xterm",
            "COLUMNS": "100",
        }

    def run(
        self,
        *words: str,
        who: str = "root",
        given: str = "",
        encoding: str = "utf-8",
        **changes: str,
    ) -> Ended:
        """Run a command in this process, without a terminal."""
        said, told = _stream(encoding), _stream(encoding)
        surroundings = {**self.environment(who), **changes}
        with (
            mock.patch.dict(os.environ, surroundings, clear=True),
            mock.patch.object(sys, "stdin", io.StringIO(given)),
            redirect_stdout(said),
            redirect_stderr(told),
            pytest.raises(SystemExit) as left,
        ):
            cli.main(words)
        return Ended(int(left.value.code or 0), _read(said), _read(told))

    def ok(self, *words: str, who: str = "root", **changes: str) -> Ended:
        """Run a command that has to work."""
        ended = self.run(*words, who=who, **changes)
        assert ended.code == 0, ended
        return ended

    def job(self, *words: str, who: str = "ann") -> int:
        """Submit a job, and return its number."""
        ended = self.run("run", "--no-wait", "--yes", "--quiet", *words, who=who)
        assert ended.code in {0, 9}, ended
        return int(ended.said)


def _stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)


def _read(stream: io.TextIOWrapper) -> str:
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode(stream.encoding)


class Seat:
    """Somebody before a real terminal, who reads and types."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self.seen = ""

    def until(self, pattern: str) -> str:
        """Read until something is there, and return everything that was read."""
        deadline = time.monotonic() + BOUND_S
        while not re.search(pattern, self.seen):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} never came: {self.seen!r}"
            if not self._read(left):
                break
        assert re.search(pattern, self.seen), f"{pattern!r} never came: {self.seen!r}"
        return self.seen

    def type(self, text: str) -> None:
        """Type something, and press return."""
        os.write(self._terminal, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._terminal, b"\x03")

    def give_up(self) -> int:
        """Press Ctrl-C until it has left: a key that is pressed as a prompt appears may be lost."""
        for _ in range(int(BOUND_S / 5)):
            self.interrupt()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
                break
        return self.left()

    def left(self) -> int:
        """Read to the end, and return how it left."""
        while self._read(BOUND_S):
            pass
        return self.process.wait(BOUND_S)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._terminal], [], [], wait_s)[0]:
            return False
        with suppress(OSError):  # the terminal is gone with its program
            if part := os.read(self._terminal, 65_536):
                self.seen += part.decode("utf-8", "replace")
                return True
        return False


@contextmanager
def seated(
    words: Sequence[str], surroundings: Mapping[str, str], *, stdout: int | None = None
) -> Iterator[Seat]:
    """Start a command on a terminal of its own; its output may go elsewhere."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "onward", *words],
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        env=dict(surroundings),
        # A session of its own, whose terminal this is: so that Ctrl-C reaches it.
        preexec_fn=_take_terminal,  # noqa: PLW1509 - it calls the kernel, and nothing that locks
    )
    os.close(theirs)
    try:
        yield Seat(process, ours)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(BOUND_S)
        os.close(ours)


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
