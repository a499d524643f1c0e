"""The life of a server, whichever it is: how it is started, watched and stopped, and its log."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Protocol

from onward.embedded.home import Home, ticks
from onward.errors import ServerUnreachable

if sys.platform != "win32":
    import fcntl

START_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
LOG_MAX_BYTES = 16 * 1024 * 1024
_logger = logging.getLogger(__name__)


class Answer(Enum):
    """What a server says at its socket."""

    SILENT = "nobody listens"
    BUSY = "it is starting, recovering or stopping"
    READY = "it serves"


class Server(Protocol):
    """What PostgreSQL and Valkey have in common."""

    @property
    def home(self) -> Home:
        """The data directory that it serves."""

    @property
    def title(self) -> str:
        """What people call it."""

    @property
    def name(self) -> str:
        """What its lock and its log are called."""

    def answer(self) -> Answer:
        """Ask at its socket whether it serves."""

    def prepare(self, turn: int) -> list[str]:
        """Clear what a dead server left, make what a new one needs, and return its command."""

    def ask_to_stop(self, turn: int) -> bool:
        """Return whether it has been told, which is before it has gone."""


def ensure_running(server: Server, turn: int) -> None:
    """Return once the server serves; start it if it does not live."""
    if alive(server) and _await_ready(server):
        return
    log = _log(server)
    if log.exists() and log.stat().st_size > LOG_MAX_BYTES:
        log.replace(log.with_suffix(".log.old"))
    life = server.home.open(f"{server.name}.lock")
    try:
        fcntl.flock(life, fcntl.LOCK_EX | fcntl.LOCK_NB)
        command = server.prepare(turn)
        before = log.stat().st_size if log.exists() else 0
        # The shell goes at once and leaves the server to init, so that nobody has to reap it.
        run(server, ["/bin/sh", "-c", '"$@" &', "sh", *command], inherit=life)
    finally:
        os.close(life)  # The lock itself lives on in the server.
    if not _await_ready(server):
        reason = _complaint(log, before)
        raise ServerUnreachable(f"{server.title} could not start ({reason}); its log is {log}.")


def _await_ready(server: Server) -> bool:
    """Return True once the server serves, False once its last process has gone."""
    for _ in ticks(START_LIMIT_S):
        if not alive(server):
            return False
        if server.answer() is Answer.READY:
            return True
    raise TimeoutError(
        f"{server.title} runs but did not serve within {START_LIMIT_S:.0f} s; "
        f"try again if it is recovering, its log is {_log(server)}."
    )


def stop(server: Server, turn: int) -> None:
    """Stop the server, if it runs, and wait until its last process has gone.

    A slow shutdown is writing its checkpoint. It is left to finish by itself, because killing it
    would only trade that for a recovery; the next opener waits until its lock is free.
    """
    told = False
    for _ in ticks(STOP_LIMIT_S):
        if not alive(server):
            return
        # While it does not listen it cannot be told, and a pid file may be that of an older one.
        if not told and server.answer() is not Answer.SILENT:
            told = server.ask_to_stop(turn)
    _logger.warning("%s has not stopped yet; its log is %s", server.title, _log(server))


def alive(server: Server) -> bool:
    """Return whether any process of the server runs; to be asked only in one's turn."""
    fd = server.home.open(f"{server.name}.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def run(server: Server, argv: list[str], *, inherit: int | None = None, text: str = "") -> int:
    """Run a program to its end as the servers' user, its output into the log; return its code.

    It gets a bare environment, so that a server does not depend on who happened to start it,
    and a session of its own, so that Ctrl-C in the terminal does not reach it.
    """
    uid, gid = server.home.account or (None, None)
    output = server.home.open(f"{server.name}.log")
    try:
        process = subprocess.Popen(  # noqa: S603 - programs of the wheels, no shell in between.
            argv,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd="/",
            env={"LC_ALL": "C", "PATH": os.defpath},
            pass_fds=() if inherit is None else (inherit,),
            start_new_session=True,
            umask=0o077,
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
        )
    finally:
        os.close(output)
    with process:
        try:
            process.communicate(text.encode(), timeout=START_LIMIT_S)
        except BaseException:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode


def must_run(server: Server, argv: list[str], turn: int, text: str = "") -> None:
    """Run a tool of the server, and raise what it complained of if it fails."""
    log = _log(server)
    before = log.stat().st_size if log.exists() else 0
    if run(server, argv, inherit=turn, text=text) != 0:
        reason = _complaint(log, before)
        tool = Path(argv[0]).name
        raise ServerUnreachable(f"{tool} of {server.title} failed ({reason}); its log is {log}.")


def _log(server: Server) -> Path:
    return server.home.path / f"{server.name}.log"


def _complaint(log: Path, offset: int) -> str:
    """Return what the log says after `offset` about what went wrong."""
    text = log.read_bytes()[offset:].decode(errors="replace").strip()
    loud = re.findall(r"\b(?:PANIC|FATAL|ERROR|error): +(.+)", text)
    return (loud[-1] if loud else text.rpartition("\n")[2] or "it said nothing").rstrip(".")
