"""The service in its parts, each in processes of its own that may be killed at any moment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests.cli.running import BOUND_S, environment, until

KEY = "chaos-" * 8
WORKERS = ("worker-1", "worker-2", "worker-3")
COMMANDS = dict.fromkeys(WORKERS, ("worker", "--processes", "1")) | {"beat": ("beat",)}


@dataclass(slots=True)
class Parts:
    """An API, three workers of one process each, and Beat."""

    folder: Path
    settings: dict[str, str]
    port: int
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a part that is not there; what it says goes to the end of its log."""
        command = COMMANDS.get(name, ("api", "--port", str(self.port)))
        with self.log(name).open("ab") as log:
            self.started[name] = subprocess.Popen(
                [sys.executable, "-m", "onward", *command],
                stdout=log,
                stderr=log,
                env=environment(self.folder, **self.settings),
            )

    def log(self, name: str) -> Path:
        """Where a part's log is, over all its lives."""
        return self.folder / f"{name}.log"

    def kill(self, name: str) -> None:
        """End a part where it stands; what it has started has to notice by itself."""
        self.started[name].kill()
        self.started[name].wait()

    def leave(self, *names: str) -> None:
        """Ask parts to leave, and see that they do so in good order."""
        for name in names:
            self.started[name].terminate()
        codes = {name: self.started[name].wait(BOUND_S) for name in names}
        # Who has only just been started cannot hear the signal yet, and has nothing to finish.
        wrong = {name: code for name, code in codes.items() if code not in {0, -signal.SIGTERM}}
        assert not wrong, wrong

    def keep(self) -> None:
        """Start again what gave up by itself, as whoever runs a service does.

        A part that finds no PostgreSQL when it is started says so and leaves.
        """
        for name, process in self.started.items():
            if process.poll() is not None:
                self.start(name)

    def tell(self) -> None:
        """Print how each part came to where it is."""
        for name in self.started:
            print(f"--- {name}", *self.log(name).read_text("utf-8").splitlines()[-20:], sep="\n")

    def program(self, name: str) -> int | None:
        """The Celery program that a part keeps running, unless that is just being started."""
        return next(iter(_children(self.started[name].pid)), None)

    def process(self, name: str) -> int | None:
        """The process of a worker in which its runs are, unless that is just being started."""
        program = self.program(name)
        return program and next(iter(_children(program)), None)

    def ready(self) -> bool:
        """Whether the API says that work gets done."""
        with suppress(httpx2.TransportError):
            return httpx2.get(
                f"http://127.0.0.1:{self.port}/health/ready", timeout=BOUND_S
            ).is_success
        return False

    def client(self) -> httpx2.Client:
        """Call the API as an admin."""
        return httpx2.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=BOUND_S,
        )


def end(pid: int | None) -> None:
    """Kill a process, if it is still there."""
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[Parts]:
    """Start everything at once, and wait until it works; nothing is left in the end."""
    parts = Parts(folder, {**settings, "ONWARD_ADMIN_KEY": KEY}, _free_port())
    with ExitStack() as stack:
        stack.callback(_end_all, parts)
        for name in ("api", "beat", *WORKERS):
            parts.start(name)
        until(parts.ready)
        try:
            yield parts
        except BaseException:
            parts.tell()
            raise


def _end_all(parts: Parts) -> None:
    """End whatever is left, from the leaves up: whoever is kept running is not started again."""
    for process in parts.started.values():
        if process.poll() is None:
            family = [process.pid, *_children(process.pid)]
            family += [pid for child in family[1:] for pid in _children(child)]
            process.send_signal(signal.SIGSTOP)
            for pid in reversed(family):
                end(pid)
            process.wait()


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for tasks in listed for child in tasks.read_text("ascii").split()]
    return []


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
