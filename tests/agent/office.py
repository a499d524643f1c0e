"""A server that can be killed: a process that gives one command after the other to one agent.

What it decides and what it hears is on its disk, a file of JSON lines, before it acts on it: the
epoch before the command is sent, the result before it is receipted. Started again, it goes on from
there. An attempt that the agent has not seen is sent again as it was. Of one that it has seen, the
result has to come by itself if the epoch is even; if it is odd, it is asked for by a repeat.
One that nobody knows the end of, or that was refused, is followed by another attempt, until the
command has succeeded.

    python -m tests.agent.office PORT KEY DISK EFFECTS DIE_AT
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from onward.channels.agent.messages import Ready, Receipt, Refused, Result, Run, Up
from onward.channels.agent.wire import FRAME_MAX, FrameRefused, ServerSession
from onward.channels.program import Program
from tests.agent.desk import greet

POINTS = ("decided", "sent", "heard", "kept", "receipted")

# Written by the program itself, in one append each.
_PROGRAM = (
    'echo "started $ONWARD_ATTEMPT" >> "$0"; sleep 0.02; echo "finished $ONWARD_ATTEMPT" >> "$0"'
)


class Office:
    """One agent's commands: the present one, its attempt, and what is known of it."""

    def __init__(self, disk: Path, effects: Path, die_at: str) -> None:
        self._effects = effects
        self._die_at = die_at
        self._file = disk.open("a+", encoding="utf-8")
        self._file.seek(0)
        self._command = 0
        self._epoch = 0
        self._open = False  # an attempt was decided on, and its result is not known
        self._socket: ServerConnection | None = None
        self._session: ServerSession | None = None
        self.enough = asyncio.Event()
        for line in self._file:
            self._learn(json.loads(line))

    async def meet(self, socket: ServerConnection, key: bytes) -> None:
        try:
            _, session = await greet(socket, key)
            self._socket, self._session = socket, session
            async for frame in socket:
                assert isinstance(frame, bytes)
                await self._hear(session.open(frame, time.time()))
        except FrameRefused as refused:
            await socket.close(refused.code, str(refused))
        except ConnectionClosed:
            pass

    async def _hear(self, message: Up) -> None:
        match message:
            case Result():
                self._at("heard")
                self._keep({"result": message._asdict()})
                self._at("kept")
                await self._tell(Receipt(message.cmd, message.epoch))
                self._at("receipted")
                await self._go_on()
            case Refused():
                self._keep({"refused": message._asdict()})
                await self._go_on()
            case Ready():
                await self._go_on(again=message.seen < self._epoch or self._epoch % 2 == 1)

    async def _go_on(self, *, again: bool = False) -> None:
        if not self._open:
            if self.enough.is_set():
                sys.stdout.write("done\n")
                sys.stdout.flush()
                return
            self._keep({"decided": self._epoch + 1})
            self._at("decided")
        elif not again:
            return  # What was heard is about a former attempt.
        await self._tell(
            Run(f"c{self._command}", self._epoch, "run", {},
                Program(("sh", "-c", _PROGRAM, str(self._effects))), 30.0)
        )  # fmt: skip
        self._at("sent")

    def _keep(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._learn(line)

    def _learn(self, line: dict[str, Any]) -> None:
        if "decided" in line:
            self._epoch, self._open = line["decided"], True
            return
        said = line.get("result") or line["refused"]
        if (said["cmd"], said["epoch"]) == (f"c{self._command}", self._epoch):
            self._open = False
            self._command += bool(said.get("succeeded"))

    async def _tell(self, message: Run | Receipt) -> None:
        assert self._session is not None
        assert self._socket is not None
        await self._socket.send(self._session.seal(message, time.time()))

    def _at(self, point: str) -> None:
        if point == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def finish(self) -> None:
        """Begin no further command; the agent is asked to speak once more."""
        self.enough.set()
        if not self._open:
            await self._go_on()


async def _serve(port: str, key: str, disk: str, effects: str, die_at: str) -> None:
    office = Office(Path(disk), Path(effects), die_at)
    secret = bytes.fromhex(key)
    loop = asyncio.get_running_loop()
    tasks = set()
    loop.add_signal_handler(signal.SIGUSR1, lambda: tasks.add(loop.create_task(office.finish())))
    async with serve(
        lambda socket: office.meet(socket, secret),
        "127.0.0.1",
        int(port),
        max_size=FRAME_MAX,
        compression=None,
        reuse_address=True,
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await loop.create_future()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
