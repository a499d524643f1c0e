"""The workers of a peer as processes of their own, and the rate at which they end jobs.

A worker says that it is ready and waits for its word, so that all begin together on a queue that is
full. It notes when each job ended, and leaves the times in a file when it goes. The clock is the
system's monotonic one, which all processes share.
"""

from __future__ import annotations

import asyncio
import os
import sys
from array import array
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from onward.errors import InvariantBroken

PATIENCE_S: Final = 300.0
_READY: Final = b"ready\n"
_EDGE: Final = 10  # one part in so many, at either end, is no steady state
_COMPLAINT_MAX: Final = 2_000


class Setup(NamedTuple):
    """One of the ways in which its pages say to start a peer."""

    shown: str
    processes: int
    arguments: tuple[str, ...]  # of each of its workers


@asynccontextmanager
async def workers(module: str, *arguments: str, count: int) -> AsyncIterator[list[Process]]:
    """Start workers that are ready; none outlives its use, whatever happens."""
    command = [sys.executable, "-m", module, *arguments]
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(_started(command)) for _ in range(count)]
        await asyncio.gather(*(_until_ready(worker) for worker in started))
        yield started


@asynccontextmanager
async def _started(command: Sequence[str]) -> AsyncIterator[Process]:
    worker = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        yield worker
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()


async def _until_ready(worker: Process) -> None:
    assert worker.stdout is not None  # noqa: S101 - it is a pipe
    assert worker.stderr is not None  # noqa: S101 - as above
    # Whatever else it has to say first, such as a banner, is passed over.
    async for line in worker.stdout:
        if line == _READY:
            return
    complaint = (await worker.stderr.read()).decode()
    raise InvariantBroken(f"a worker did not start: {complaint[-_COMPLAINT_MAX:]}")


async def until_left(started: Sequence[Process], word: bytes | None = None) -> None:
    """Give workers their word, if they wait for one, and wait until they have gone in order."""
    told = await asyncio.gather(*(worker.communicate(word) for worker in started))
    for worker, (_, complaint) in zip(started, told, strict=True):
        if worker.returncode:
            raise InvariantBroken(f"a worker failed: {complaint.decode()[-_COMPLAINT_MAX:]}")


def say_ready() -> None:
    """Say, in a worker, that it is ready; past `sys.stdout`, which some libraries redirect."""
    os.write(1, _READY)


def wait_for_word() -> None:
    """Say, in a worker, that it is ready, and wait for the word to begin."""
    say_ready()
    sys.stdin.buffer.readline()


def leave_times(folder: str, times: array[float]) -> None:
    """Leave behind, at the end of a worker, when its jobs ended."""
    Path(folder, str(os.getpid())).write_bytes(times.tobytes())


def steady_rate(folder: str, jobs: int) -> float:
    """Jobs a second between the first and the last tenth, from what the workers left behind."""
    times = array("d")
    for left in Path(folder).iterdir():
        times.frombytes(left.read_bytes())
    if len(times) != jobs:
        raise InvariantBroken(f"{len(times):,} jobs were run instead of {jobs:,}")
    ended, edge = sorted(times), jobs // _EDGE
    first, last = edge, jobs - 1 - edge
    return (last - first) / (ended[last] - ended[first])
