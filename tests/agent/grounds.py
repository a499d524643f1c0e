"""A host without a network: a real journal, real processes, and an ear that writes down."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from onward.agent.host import Host
from onward.agent.journal import Journal
from onward.agent.running import Limits, Place
from onward.channels.agent.messages import Down, Pieces, Run, Up
from onward.channels.base import Stream
from onward.channels.program import Program

PATIENCE_S = 30.0
Kind = TypeVar("Kind", bound=Up)


class Heard:
    """An ear."""

    def __init__(self) -> None:
        self.all: list[Up] = []
        self._more = asyncio.Event()

    def say(self, message: Up) -> None:
        self.all.append(message)
        self._more.set()

    async def room(self) -> None:
        pass

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [message for message in self.all if isinstance(message, kind)]

    async def until(self, kind: type[Kind], count: int = 1) -> Kind:
        """Wait for the `count`th message of a kind."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.of(kind)) < count:
                self._more.clear()
                await self._more.wait()
        return self.of(kind)[count - 1]

    def output(self, stream: Stream = Stream.STDOUT) -> str:
        return "".join(
            text for said in self.of(Pieces) for where, text in said.pieces if where is stream
        )


class Ground:
    """A host on a folder; `again` is the same after the agent was ended."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.folder = folder
        self.effects_file = folder / "effects"
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        self.journal = Journal(folder / "journal.sqlite")
        self.host = Host(
            self.journal,
            limits=Limits(**{"grace_s": 0.5, "processes": None, **limits}),
            place=Place(temporary, dict(os.environ)),
        )
        self.host.recover()
        self.ear = Heard()
        self.host.voice.connected(self.ear)

    def take(self, message: Down) -> None:
        self.host.take(message, self.ear)

    def again(self) -> Ground:
        self.journal.close()
        return Ground(self.folder)

    def effects(self) -> list[str]:
        """What the programs themselves have written down, in order."""
        if not self.effects_file.exists():
            return []
        return self.effects_file.read_text("utf-8").splitlines()

    def run(self, cmd: str = "c1", epoch: int = 1, **does: Any) -> Run:
        """An attempt that writes down that it starts and finishes."""
        names = [name for name in does if name in {"timeout_s", "exclusive", "type"}]
        said = {name: does.pop(name) for name in names}
        return attempt(self.effects_file, cmd, epoch, said=said, **does)


_PROBE = """
import json, os, sys, time
does = json.loads(sys.argv[1])
def note(what):
    with open(does["effects"], "a") as file:
        file.write(what + " " + os.environ["ONWARD_ATTEMPT"] + "\\n")
note("started")
sys.stdout.write(does["prints"])
sys.stdout.flush()
sys.stderr.write(does["complains"])
time.sleep(does["sleep_s"])
note("finished")
sys.exit(does["exit_code"])
"""


def attempt(
    effects: Path,
    cmd: str,
    epoch: int,
    *,
    said: dict[str, Any] | None = None,
    exit_code: int = 0,
    prints: str = "",
    complains: str = "",
    sleep_s: float = 0.0,
) -> Run:
    """A run of a program that writes its effects down itself."""
    does = {
        "effects": str(effects),
        "exit_code": exit_code,
        "prints": prints,
        "complains": complains,
        "sleep_s": sleep_s,
    }
    argv = (sys.executable, "-ISc", _PROBE, json.dumps(does))
    fields: dict[str, Any] = {"timeout_s": 60.0, "type": "run", **(said or {})}
    return Run(cmd=cmd, epoch=epoch, params={}, program=Program(argv), **fields)


def program(
    *argv: str, cmd: str = "c1", epoch: int = 1, timeout_s: float = 60.0, **more: Any
) -> Run:
    """A run of any program."""
    return Run(cmd, epoch, "run", {}, Program(argv, **more), timeout_s)


async def until(holds: Callable[[], object]) -> None:
    """Wait for something that can only be looked at."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
