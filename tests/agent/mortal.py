"""An agent that dies where it is told to: killed with SIGKILL at a point of its way, by name.

The process reads one line for each life: the point to die at, or `-` to live on. Each life is a
process of its own, forked so that five hundred of them do not load the same modules again.

    python -m tests.agent.mortal SERVER STATE
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from pathlib import Path

import httpx2  # noqa: F401 - loaded once, for all lives

from onward.agent.program import Options, run
from onward.agent.running import Limits
from onward.agent.server import server_at
from onward.service import logs


def live(server: str, state: Path, die_at: str) -> None:
    options = Options(
        server_at(server),
        state,
        limits=Limits(grace_s=0.5, processes=None),
        pause_max_s=0.3,
        environment=dict(os.environ),
    )

    def at(point: str) -> None:
        if point == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    logs.configure()
    asyncio.run(run(options, asyncio.Event(), at=at))


def main(server: str, state: str) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.close(0)
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # no life goes on without this process
            try:
                live(server, Path(state), line.strip())
            finally:
                os._exit(1)
        print(f"lives {pid}", flush=True)
        _, status = os.waitpid(pid, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
