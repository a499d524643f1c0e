"""Somebody who reads a page and does what it says, step by step, in a shell of their own.

A page's steps are its fenced blocks:

    console      what follows `$ ` is typed in; what is shown below has to come, in this order,
                 and `…` or the end of a line stands for anything between
    python       is saved and run, and has to print what the comments behind its prints say
    csv NAME     is saved under this name; so is any other block that has one

`onward up` is started as a service on a free port, which takes the place of the port on the page.
The service before it is asked to leave first.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cli.running import BOUND_S, Up, environment, folder_for_servers, onward_up

_DOCS = Path(__file__).parent.parent / "docs"
_ADDRESS = "http://127.0.0.1:8470"
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ONLY_LOOKS = re.compile(r"curl (?!.* (?:--json|--data-binary|-X)\b)", re.DOTALL).match

# Stands before the real one in the path: the shell works out the words and the settings of a
# service, and the reader starts it.
_STUB = """\
#!{python}
import json, os, sys
if sys.argv[1:2] != ["up"]:
    os.execv(sys.executable, [sys.executable, "-m", "onward", *sys.argv[1:]])
settings = {{name: value for name, value in os.environ.items() if name.startswith("ONWARD_")}}
with open({asked!r}, "w") as file:
    json.dump({{"options": sys.argv[2:], "settings": settings}}, file)
"""


class Step(NamedTuple):
    """Something to do, and what is to be seen then."""

    kind: str
    text: str
    shown: str = ""


def page(name: str) -> str:
    """The text of a page."""
    return (_DOCS / name).read_text("utf-8")


def table(text: str, *header: str) -> list[list[str]]:
    """The rows of the table that begins with these columns, cell by cell, without backticks."""
    lines = text.splitlines()
    beginning = f"| {' | '.join(header)} |"
    (at,) = [number for number, line in enumerate(lines) if line.startswith(beginning)]
    rows = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return rows


def steps(text: str) -> Iterator[Step]:
    """What a page asks its reader to do."""
    for kind, name, content in _BLOCK.findall(text):
        if kind == "console":
            yield from _commands(content)
        elif kind == "python":
            yield Step("python", content, "\n".join(re.findall(r"print\(.*# (.+)", content)))
        elif name:
            yield Step(name, content)


def _commands(content: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = next(n for n in range(1, len(lines) + 1) if _whole("\n".join(lines[:n])))
        yield Step("console", "\n".join(lines[:length]), "\n".join(lines[length:]))


def _whole(command: str) -> bool:
    """Whether no quotation is open, and no line follows."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return True


def missing(shown: str, said: str) -> str | None:
    """What of a page did not come, at least not in its place."""
    position = 0
    for piece in filter(str.strip, re.split(r"…|\n", shown)):
        at = said.find(piece, position)
        if at < 0:
            return piece
        position = at + len(piece)
    return None


@contextmanager
def reading(replaced: Mapping[str, str] | None = None) -> Iterator[Reader]:
    """Give somebody a home and a shell; both are gone in the end, and what they have started.

    `replaced` is what stands on the page for something of this machine's own.
    """
    with folder_for_servers() as home, ExitStack() as started:
        bin_dir, asked = home / "bin", home / "asked.json"
        bin_dir.mkdir()
        stub = bin_dir / "onward"
        stub.write_text(_STUB.format(python=sys.executable, asked=str(asked)))
        stub.chmod(0o755)
        # Nothing that a page calls may go on for ever.
        (home / ".curlrc").write_text(f"max-time = {BOUND_S:.0f}\n")
        path = f"{bin_dir}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        settings = {
            "HOME": str(home),
            "PATH": path,
            "no_proxy": "*",
            "ONWARD_REQUIRE_DURABLE": "false",
        }
        with subprocess.Popen(
            ["sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            env=environment(home, **settings),
            start_new_session=True,
        ) as shell:
            try:
                yield Reader(home, shell, asked=asked, started=started, replaced=replaced or {})
            finally:
                # The whole group: also what the page has left in the background.
                os.killpg(shell.pid, signal.SIGTERM)


class Reader:
    """Does what a page says, in a shell, with the service that was started last."""

    def __init__(
        self,
        home: Path,
        shell: subprocess.Popen[str],
        *,
        asked: Path,
        started: ExitStack,
        replaced: Mapping[str, str],
    ) -> None:
        self._home = home
        self._shell = shell
        self._services = started
        self._asked = asked  # where the stub leaves what service is to be started
        self._replaced = replaced
        self._up: Up | None = None

    def follow(self, text: str) -> int:
        """Do everything that a page says, and see what it shows; returns how many steps."""
        asked = list(steps(self._here(text)))
        for step in asked:
            if step.kind == "console":
                self._type_in(step)
            elif step.kind == "python":
                self._save("example.py", step.text)
                assert self.run("python example.py").strip() == step.shown
            else:
                self._save(step.kind, step.text)
        return len(asked)

    def run(self, command: str) -> str:
        """Type in a command, and return what comes back."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        mark = uuid.uuid4().hex
        self._shell.stdin.write(f"{command}\necho; echo {mark}\n")
        self._shell.stdin.flush()
        said: list[str] = []
        for line in self._shell.stdout:
            if line.strip() == mark:
                return "".join(said)
            said.append(line)
        raise AssertionError(f"the shell has ended: {''.join(said)}")

    def _here(self, text: str) -> str:
        for name, value in self._replaced.items():
            assert name in text
            text = text.replace(name, shlex.quote(value))
        return text

    def _save(self, name: str, text: str) -> None:
        (self._home / name).write_text(text, encoding="utf-8")

    def _type_in(self, step: Step) -> None:
        command = step.text.replace(_ADDRESS, self._up.address if self._up else _ADDRESS)
        said = self.run(command)
        if self._asked.exists():
            said = self._started().said
        shown = step.shown.replace(_ADDRESS, self._up.address if self._up else _ADDRESS)
        # Whoever only looks may look again, until what is under way is where the page has it.
        deadline = time.monotonic() + BOUND_S
        while (left := missing(shown, said)) and _ONLY_LOOKS(command):
            assert time.monotonic() < deadline, f"{command}\nshows no {left}\nbut\n{said}"
            time.sleep(0.05)
            said = self.run(command)
        assert left is None, f"{command}\nshows no {left}\nbut\n{said}"

    def _started(self) -> Up:
        """Start the service that the shell has asked for, once the one before it has left."""
        asked = json.loads(self._asked.read_text("utf-8"))
        self._asked.unlink()
        if self._up is not None:
            self._up.stop()
            assert self._up.process.returncode == 0, self._up.log.read_text("utf-8")
        options, settings = asked["options"], asked["settings"]
        self._up = self._services.enter_context(onward_up(self._home, *options, **settings))
        # It listens elsewhere than the one before it, if that is what they have spoken to.
        self.run(f"export ONWARD=${{ONWARD:+{self._up.address}}}")
        return self._up
