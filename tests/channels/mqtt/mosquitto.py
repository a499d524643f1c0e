"""A mosquitto of the test's own, where one is installed."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.running import folder_for_servers

PROGRAM = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
installed = PROGRAM is not None
NEEDED = "not run: needs mosquitto"
needs_mosquitto = pytest.mark.skipif(not installed, reason=NEEDED)


class Mosquitto:
    """A broker that can be stopped, killed and started again at the same port."""

    def __init__(self, folder: Path, passwords: str | None) -> None:
        self.port = _free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        secured = f"password_file {_passwords(folder, passwords)}\n" if passwords else ""
        (folder / "conf").write_text(
            f"listener {self.port} 127.0.0.1\n"
            f"user {getpass.getuser()}\n"
            f"allow_anonymous {'false' if passwords else 'true'}\n{secured}"
            f"persistence true\npersistence_location {folder}/\n"
            "max_inflight_messages 1000\nmax_queued_messages 10000\nlog_dest stderr\n"
        )

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._process = self._started()
        async with asyncio.timeout(20):
            while not await self._answers():
                assert self._process.poll() is None, (self._folder / "log").read_text()
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End it in good order: it keeps its sessions."""
        await self._end(kill=False)

    async def kill(self) -> None:
        """End it at once: it forgets what was not on disk, which is everything of late."""
        await self._end(kill=True)

    def _started(self) -> subprocess.Popen[bytes]:
        assert PROGRAM is not None
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [PROGRAM, "-c", str(self._folder / "conf")], stdout=log, stderr=log
            )

    async def _end(self, *, kill: bool) -> None:
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            await asyncio.to_thread(self._process.wait, 20)
            self._process = None

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


@asynccontextmanager
async def mosquitto(passwords: str | None = None) -> AsyncIterator[Mosquitto]:
    """A broker on loopback; `passwords` as `user:password`, and nobody gets in without."""
    with folder_for_servers() as folder:
        found = Mosquitto(folder, passwords)
        await found.start()
        try:
            yield found
        finally:
            await found.stop()


def _passwords(folder: Path, given: str) -> Path:
    path = folder / "passwords"
    path.write_text(f"{given}\n")
    path.chmod(0o600)
    subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True)
    return path


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
