"""Asyncssh's own server, which hands every command to the login shell, as sshd does."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import asyncssh


async def main(folder: Path) -> None:
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[str(folder / "host_key")],
        authorized_client_keys=str(folder / "authorized_keys"),
        process_factory=run,
        encoding=None,
    )
    print(server.get_port(), flush=True)
    await server.wait_closed()


async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    child = await asyncio.create_subprocess_exec(
        pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh",
        "-c",
        process.command or "",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "HOME": "/nonexistent"},
    )
    assert child.stdin is not None
    feeding = asyncio.create_task(_feed(process, child.stdin))
    await asyncio.gather(_pass(child.stdout, process.stdout), _pass(child.stderr, process.stderr))
    code = await child.wait()
    feeding.cancel()
    with suppress(OSError):
        if code < 0:
            process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            process.exit(code)


async def _feed(process: asyncssh.SSHServerProcess[bytes], stdin: asyncio.StreamWriter) -> None:
    # Whoever has hung up takes nothing more; that is the end of this session, not of the others.
    with suppress(OSError, asyncssh.Error):
        while data := await process.stdin.read(65_536):
            stdin.write(data)
            await stdin.drain()
    stdin.close()


async def _pass(reader: asyncio.StreamReader | None, writer: asyncssh.SSHWriter[bytes]) -> None:
    assert reader is not None
    while data := await reader.read(65_536):
        with suppress(OSError, asyncssh.Error):
            writer.write(data)
            await writer.drain()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
