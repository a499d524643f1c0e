"""A load of HTTP requests, sent by a process of its own over many connections at once.

Each connection waits for an answer before it sends its next request. The process does no more than
it must, because it shares the machine with what it measures: it reads requests that were written
down beforehand, and of an answer only the status and the length.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, cast

import uvloop

from onward.bench.calling import HEAD_END, HOST, STATUS, length_of
from onward.errors import InvariantBroken

_BETWEEN: Final = b"\0"  # requests in a file; neither a head nor JSON has it


class Loaded(NamedTuple):
    """What a load was like, from the first request to the last answer."""

    seconds: float
    statuses: dict[str, int]  # how many answers had each


async def load(port: int, shares: Sequence[Sequence[bytes]]) -> Loaded:
    """Send each share of requests over a connection of its own."""
    with TemporaryDirectory() as folder:
        _write_down(folder, shares)
        command = (sys.executable, "-m", __name__, str(port), folder)
        program = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        told, _ = await program.communicate()
    if program.returncode:
        raise InvariantBroken("the load could not be sent")
    return Loaded(**json.loads(told))


def _write_down(folder: str, shares: Sequence[Sequence[bytes]]) -> None:
    for number, share in enumerate(shares):
        Path(folder, str(number)).write_bytes(_BETWEEN.join(share))


def _read(folder: str) -> list[list[bytes]]:
    return [file.read_bytes().split(_BETWEEN) for file in Path(folder).iterdir()]


class _Connection(asyncio.Protocol):
    """Sends its share, the next request whenever an answer is whole."""

    def __init__(self, share: Sequence[bytes], statuses: Counter[str]) -> None:
        self._left = iter(share)
        self._statuses = statuses
        self._got = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what to write to."""
        self._transport = cast("asyncio.Transport", transport)  # as uvloop's is in all but name

    def send_next(self) -> None:
        """Send the next request, if there is one."""
        wanted = next(self._left, None)
        if wanted is None:
            self.ended.set_result(None)
        else:
            self._transport.write(wanted)

    def data_received(self, data: bytes) -> None:
        """Take an answer, or a part of one."""
        got = self._got + data if self._got else data
        head_end = got.find(HEAD_END)
        if head_end < 0 or len(got) < head_end + len(HEAD_END) + length_of(got[:head_end]):
            self._got = got
            return
        self._got = b""
        self._statuses[got[STATUS].decode()] += 1
        self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say so, if there was more to send."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server has hung up"))


async def _send(port: str, folder: str) -> None:
    loop, statuses = asyncio.get_running_loop(), Counter[str]()
    opened = []
    for share in _read(folder):
        made = partial(_Connection, share, statuses)
        _, connection = await loop.create_connection(made, HOST, int(port))
        opened.append(connection)
    start = time.perf_counter()
    for connection in opened:
        connection.send_next()
    await asyncio.gather(*(connection.ended for connection in opened))
    loaded = Loaded(time.perf_counter() - start, dict(statuses))
    sys.stdout.write(json.dumps(loaded._asdict()))


if __name__ == "__main__":
    uvloop.run(_send(*sys.argv[1:]))
