"""Runs a program through a keeper: prepared, let go when the journal has it, heard to its end.

The program gets an environment of its own: nothing of the agent's but where to find programs and
how to speak. `ONWARD_ATTEMPT` names the attempt, for the program itself and for the agent that
looks for what is left of it after a crash.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pwd
import shlex
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from onward.agent import keeper
from onward.channels.base import Stream
from onward.channels.program import Program
from onward.errors import HostRefused

ATTEMPT: Final = "ONWARD_ATTEMPT"
_PASSED_ON: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ")
_CHUNK: Final = 65_536
_TIMED_OUT: Final = 124  # what timeout(1) exits with
_SIGNALLED: Final = 128
_START_S: Final = 30.0
# Reads variables from standard input, which nobody else can, and leaves the rest to the program.
_BEHIND_SUDO: Final = 'eval "$(dd bs=1 count="$1" 2>/dev/null)"; shift; exec "$@"'

Hear = Callable[[Stream, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use; none is no limit."""

    output_chars: int = 16 * 2**20
    memory_bytes: int | None = None
    processes: int | None = 512
    files: int | None = 1_024
    time_s: float = 86_400.0  # however long the server allows
    grace_s: float = 5.0  # between asking it to end and killing it


class Place(NamedTuple):
    """Where programs run: what they see of the agent, and as whom."""

    temporary: Path  # a folder of each run's own is made below it
    environment: Mapping[str, str] = MappingProxyType({})  # the agent's
    drop_to: str | None = None  # the user that an agent of root's runs programs as

    @property
    def prefix(self) -> str:
        """How the folders begin that are elsewhere, because another user is to find them."""
        mark = hashlib.sha256(os.fsencode(self.temporary)).hexdigest()
        return f"onward-agent-{mark[:12]}-"

    def clear(self) -> None:
        """Remove the folders of runs that are over because the agent was killed."""
        elsewhere = Path(tempfile.gettempdir()).glob(f"{self.prefix}*")
        for folder in (*self.temporary.iterdir(), *elsewhere):
            shutil.rmtree(folder, ignore_errors=True)


class Process(NamedTuple):
    """What tells a process from all others on this machine since it was booted."""

    pid: int
    start: int


class Ended(NamedTuple):
    """How a program ended."""

    exit_code: int | None
    error: str | None


class Running:
    """A program that is there, and runs as soon as it is let go."""

    def __init__(
        self, child: asyncio.subprocess.Process, told: asyncio.StreamReader, folder: Path
    ) -> None:
        self._child = child
        self._told = told
        self._folder = folder
        self.program = Process(0, 0)
        self.keeper = Process(child.pid, keeper.started_at(child.pid))

    async def ready(self, order: Mapping[str, object]) -> None:
        """Wait until the program only waits to be let go."""
        said = json.dumps(order).encode()
        assert self._child.stdin is not None  # noqa: S101 - it is a pipe
        self._child.stdin.write(b"%0*d" % (keeper.LENGTH_DIGITS, len(said)) + said)
        async with asyncio.timeout(_START_S):
            line = await self._told.readline()
        if not line:
            raise OSError("the process that keeps the program has not started")
        found = json.loads(line)
        self.program = Process(found["pid"], found["start"])

    def go(self) -> None:
        """Let the program begin."""
        self._say(b"g")

    def stop(self, *, at_once: bool = False) -> None:
        """Ask the program to end, and see to it that it does."""
        self._say(b"k" if at_once else b"t")

    async def hear(self, heard: Hear) -> None:
        """Pass the output on as it comes, until there is no more."""
        assert self._child.stdout is not None  # noqa: S101 - they are pipes
        assert self._child.stderr is not None  # noqa: S101 - as above
        async with asyncio.TaskGroup() as streams:
            streams.create_task(_pump(Stream.STDOUT, self._child.stdout, heard))
            streams.create_task(_pump(Stream.STDERR, self._child.stderr, heard))

    async def ended(self) -> Ended | None:
        """How it ended, once nothing of it is left; none if the keeper was killed."""
        line = await self._told.readline()
        return _ended(**json.loads(line)) if line else None

    async def close(self) -> None:
        """Let go of what is left of it here: its process, its pipes, its folder."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                await self._child.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def abandon(self) -> None:
        """Have it all killed, and wait until it is."""
        self.stop(at_once=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                await self.ended()
        await self.close()

    def _say(self, letter: bytes) -> None:
        assert self._child.stdin is not None  # noqa: S101 - it is a pipe
        with suppress(OSError, RuntimeError):
            self._child.stdin.write(letter)


async def prepare(
    program: Program, *, attempt: str, timeout_s: float, limits: Limits, place: Place
) -> Running:
    """Have the program wait at its start; OSError or HostRefused say why it cannot."""
    dropped = _user(place.drop_to or (program.user if os.geteuid() == 0 else None))
    folder = _own_folder(place, dropped)
    try:
        order = _order(program, dropped, attempt=attempt, limits=limits, env=_env(place, folder))
        order["timeout_s"] = min(timeout_s, limits.time_s)
        running = await _keeper(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        await running.ready(order)
    except BaseException:
        await running.abandon()
        raise
    return running


async def _keeper(folder: Path) -> Running:
    told, telling = os.pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-ISXutf8", keeper.__file__, str(telling)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            pass_fds=(telling,),
            start_new_session=True,
            env={},
            cwd="/",
        )
    except BaseException:
        os.close(told)
        raise
    finally:
        os.close(telling)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(told, "rb", 0)
    )
    return Running(child, reader, folder)


async def _pump(stream: Stream, reader: asyncio.StreamReader, heard: Hear) -> None:
    while piece := await reader.read(_CHUNK):
        await heard(stream, piece)


def _ended(*, code: int, why: str, failed: str) -> Ended:
    if failed:
        return Ended(code, failed)
    match why:
        case "timed_out":
            return Ended(_TIMED_OUT, "stopped at its time limit")
        case "stopped":
            return Ended(None, "stopped on request")
    if code < 0:
        name = _signal_name(-code)
        return Ended(_SIGNALLED - code, f"killed by {name}")
    return Ended(code, None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _own_folder(place: Place, dropped: pwd.struct_passwd | None) -> Path:
    """A folder that only this run sees; another user gets one outside of the agent's directory."""
    if dropped is None:
        return Path(tempfile.mkdtemp(dir=place.temporary))
    folder = Path(tempfile.mkdtemp(prefix=place.prefix))
    os.chown(folder, dropped.pw_uid, dropped.pw_gid)
    return folder


def _env(place: Place, folder: Path) -> dict[str, str]:
    env = {name: place.environment[name] for name in _PASSED_ON if name in place.environment}
    return {**env, "TMPDIR": str(folder)}


def _order(
    program: Program,
    dropped: pwd.struct_passwd | None,
    *,
    attempt: str,
    limits: Limits,
    env: dict[str, str],
) -> dict[str, object]:
    if dropped is not None:
        env |= {"HOME": dropped.pw_dir, "USER": dropped.pw_name, "LOGNAME": dropped.pw_name}
    program = _for_user(program, dropped)
    env |= {ATTEMPT: attempt, **program.env, **program.secrets}
    _check_bytes(program, env)
    return {
        "argv": program.argv,
        "env": env,
        "cwd": program.cwd or _home(env),
        "stdin": program.stdin,
        "drop_to": dropped and (dropped.pw_uid, dropped.pw_gid, dropped.pw_name),
        "memory_bytes": limits.memory_bytes,
        "processes": limits.processes,
        "files": limits.files,
        "grace_s": limits.grace_s,
    }


def _user(name: str | None) -> pwd.struct_passwd | None:
    if name is None:
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise HostRefused(f"there is no user {name!a:.80} on the host") from None


def _for_user(program: Program, dropped: pwd.struct_passwd | None) -> Program:
    """The program as another user asks for it through sudo, which forgets the environment."""
    mine = dropped.pw_name if dropped else pwd.getpwuid(os.geteuid()).pw_name
    if program.user is None or program.user == mine:
        return program
    variables = {**program.env, **program.secrets}
    lines = [f"export {name}={shlex.quote(each)}\n" for name, each in variables.items()]
    exports = "".join(lines)
    length = str(len(exports.encode("utf-8", "surrogateescape")))
    sudo = ("sudo", "-n", "-u", program.user, "--", "/bin/sh", "-c", _BEHIND_SUDO, "sh", length)
    return program._replace(
        argv=(*sudo, *program.argv), env={}, secrets={}, stdin=exports + (program.stdin or "")
    )


def _home(env: Mapping[str, str]) -> str:
    home = env.get("HOME", "/")
    return home if Path(home).is_dir() else "/"


def _check_bytes(program: Program, env: Mapping[str, str]) -> None:
    """Refuse what no argument and no variable can hold: half of a pair that is no byte either."""
    try:
        for each in (*program.argv, *env, *env.values(), program.cwd or "", program.stdin or ""):
            os.fsencode(each)
    except UnicodeEncodeError:
        raise HostRefused("an argument or a variable holds what no bytes can") from None


def left_over(attempt: str, *processes: Process) -> list[int]:
    """The processes that are left of an attempt of an agent that is gone."""
    found = [each.pid for each in processes if each.pid and keeper.alive(*each)]
    if sys.platform != "linux":
        return found
    mark = os.fsencode(f"{ATTEMPT}={attempt}")
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in each.joinpath("environ").read_bytes().split(b"\0"):
                found.append(int(each.name))
    return found
