"""Keeps one program: starts it under its limits, and ends all that it has started when it ends.

It is a process of its own, between the agent and the program, so that the program does not outlive
an agent that is killed. It is run as a file, with nothing but the standard library.

1. It reads an order, JSON behind its length, and makes the process of the program, which waits.
   Its id and the time of its start are told, so that the agent writes them down before anything
   runs.
2. `g` lets the program begin. `t` asks it to end, and kills it after the grace; `k` kills it at
   once, and so does the end of the control pipe, which comes when the agent is gone.
3. The end of the program, for whatever reason, is the end of everything that it has started, also
   of what has left its process group: orphans are handed to this process, which reads from /proc
   whom it descends to.
4. It tells how the program ended when nothing of it is left.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

LENGTH_DIGITS = 10  # of the order, before it
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CONTROL = 0
_NOT_FOUND, _NOT_RUN, _NEVER_BEGUN = 127, 126, 125  # as shells exit
_LAST_S = 5.0  # for how long killed processes are waited for
_STATE, _PPID, _START = 0, 1, 19  # in /proc/…/stat, behind the name
_LINUX = sys.platform == "linux"


def started_at(pid: int) -> int:
    """When a process was started, in ticks since boot: with its id, that names it; 0 if gone."""
    fields = _stat(pid)
    return int(fields[_START]) if fields else 0


def alive(pid: int, start: int) -> bool:
    """Whether this very process is there, and not only its entry in the table."""
    fields = _stat(pid)
    return bool(fields) and int(fields[_START]) == start and fields[_STATE] != "Z"


def descendants(root: int) -> list[int]:
    """All processes that come from this one, itself not among them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is needed
        if name.isdigit() and (fields := _stat(int(name))):
            children.setdefault(int(fields[_PPID]), []).append(int(name))
    found = [*children.get(root, ())]
    for pid in found:
        found += children.get(pid, ())
    return found


def _stat(pid: int) -> list[str]:
    try:
        told = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    # The name is in parentheses, and may have some of its own.
    return told[told.rindex(")") + 2 :].split()


class Keeper:
    """The program, from its order to its end."""

    def __init__(self, order: dict[str, Any], tell: int) -> None:
        self._order = order
        self._tell = tell
        self._ended: int | None = None  # how the program did, as wait(2) says
        self._why = ""  # we ended it
        self._deadline = float("inf")
        self._gate = -1
        self._failed = -1
        self._pid = 0

    def run(self) -> None:
        """Start it, wait for its end, and tell how it ended."""
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._make()
        self.tell({"pid": self._pid, "start": started_at(self._pid)})
        while self._ended is None:
            left_s = self._deadline - time.monotonic()
            ready, _, _ = select.select([_CONTROL, wake], [], [], max(0.0, min(left_s, 3600.0)))
            if wake in ready:
                os.read(wake, 4096)
            if _CONTROL in ready:
                self._obey(os.read(_CONTROL, 1))
            elif left_s <= 0:
                self._overdue()
            self._reap()
        self._end_all()
        self.tell(self._outcome())

    def tell(self, said: dict[str, Any]) -> None:
        """Say something to the agent, if it is still there."""
        with suppress(OSError):
            os.write(self._tell, json.dumps(said).encode() + b"\n")

    def _make(self) -> None:
        gate, self._gate = os.pipe()
        self._failed, failing = os.pipe()
        given = _given(self._order["stdin"])
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._gate)
            _become(self._order, given=given, gate=gate, failing=failing)
        for each in (gate, failing, given, 1, 2):
            os.close(each)  # the agent hears the end of the output when the program has ended

    def _obey(self, letter: bytes) -> None:
        if letter == b"g":
            self._deadline = time.monotonic() + self._order["timeout_s"]
            os.write(self._gate, b"g")
        elif letter == b"t":
            self._stop("stopped")
        else:
            self._why = self._why or "stopped"
            self._kill()
            self._deadline = time.monotonic() + 1.0
            time.sleep(0.01)  # A pipe that has ended is always ready: without this, we would spin.

    def _overdue(self) -> None:
        if self._why:
            self._kill()
            self._deadline = time.monotonic() + 1.0  # until it is dead, and whatever it has started
        else:
            self._stop("timed_out")

    def _stop(self, why: str) -> None:
        if self._why:
            return
        self._why = why
        self._deadline = time.monotonic() + self._order["grace_s"]
        self._signal(signal.SIGTERM)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not _LINUX:
            with suppress(OSError):
                os.killpg(self._pid, number)
            return
        for pid in descendants(os.getpid()):
            with suppress(OSError):
                os.kill(pid, number)

    def _reap(self) -> bool:
        """Take note of whoever has ended; false if nobody is left."""
        while True:
            try:
                pid, ended = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._ended = ended

    def _end_all(self) -> None:
        """Kill what the program has left behind, again until it has stopped multiplying."""
        deadline = time.monotonic() + _LAST_S
        while self._reap() and time.monotonic() < deadline:
            self._kill()
            time.sleep(0.005)

    def _outcome(self) -> dict[str, Any]:
        assert self._ended is not None  # noqa: S101 - it has been waited for
        code = os.waitstatus_to_exitcode(self._ended)
        failed = os.read(self._failed, 4096).decode("utf-8", "replace")
        return {"code": code, "why": self._why, "failed": failed}


def _given(stdin: str | None) -> int:
    """What the program reads: a file without a name, so that nobody has to feed it."""
    if stdin is None:
        return os.open(os.devnull, os.O_RDONLY)
    read, write = os.pipe()
    if hasattr(os, "memfd_create"):
        os.close(read)
        os.close(write)
        read = write = os.memfd_create("stdin")
    written = stdin.encode("utf-8", "surrogateescape")
    while written:
        written = written[os.write(write, written) :]
    os.lseek(read, 0, os.SEEK_SET)
    return read


def _become(order: dict[str, Any], *, given: int, gate: int, failing: int) -> None:
    """Be the program, once the gate opens; never returns."""
    code = _NEVER_BEGUN
    try:
        os.setsid()
        os.dup2(given, 0)
        # Without the agent's word, it is as if there had been no order.
        if os.read(gate, 1) == b"g":
            code = _NOT_RUN
            _limit(order)
            os.umask(0o077)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            if order["cwd"] is not None:
                os.chdir(os.fsencode(order["cwd"]))
            _drop(order["drop_to"])
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # which a change of user takes away
            env = {os.fsencode(name): os.fsencode(each) for name, each in order["env"].items()}
            argv = [*map(os.fsencode, order["argv"])]
            os.execvpe(argv[0], argv, env)  # noqa: S606 - that is what all of this is for
    except BaseException as error:  # noqa: BLE001 - this process must end here, whatever happened
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else code
        os.write(failing, _told(error).encode("utf-8", "replace")[:4000])
    finally:
        os._exit(code)


def _told(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = error.filename
        name = os.fsdecode(where) if isinstance(where, bytes | str) else ""
        return f"{name}: {error.strerror}" if name else error.strerror
    return str(error) or type(error).__name__


def _limit(order: dict[str, Any]) -> None:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: order["files"],
        resource.RLIMIT_AS: order["memory_bytes"],
        resource.RLIMIT_NPROC: order["processes"] and order["processes"] + _tasks_of_user(order),
    }
    for which, most in wanted.items():
        if most is not None:
            _, hard = resource.getrlimit(which)
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (least, least))


def _tasks_of_user(order: dict[str, Any]) -> int:
    """How many threads the user has already: the limit counts them all, also other commands'."""
    user = order["drop_to"][0] if order["drop_to"] else os.getuid()
    count = 0
    for each in Path("/proc").glob("[0-9]*") if _LINUX else ():
        with suppress(OSError):
            if each.stat().st_uid == user:
                count += len(os.listdir(each / "task"))  # noqa: PTH208 - they are only counted
    return count


def _drop(to: list[Any] | None) -> None:
    if to is not None:
        user, group, name = to
        os.initgroups(name, group)
        os.setgid(group)
        os.setuid(user)


def _prctl(what: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(what, value, 0, 0, 0)


def _read_order() -> dict[str, Any]:
    # The length comes first, because not a byte more than the order must be read.
    order: dict[str, Any] = json.loads(_exactly(int(_exactly(LENGTH_DIGITS))))
    return order


def _exactly(count: int) -> bytes:
    read = b""
    while len(read) < count:
        part = os.read(_CONTROL, count - len(read))
        if not part:
            sys.exit()  # The agent is gone, and has asked for nothing.
        read += part
    return read


if __name__ == "__main__":
    telling = os.dup(int(sys.argv[1]))  # which the program does not inherit
    os.close(int(sys.argv[1]))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    Keeper(_read_order(), telling).run()
