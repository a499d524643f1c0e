"""Real PostgreSQL and Valkey out of wheels, for a program that was given no servers of its own.

Programs that open the same data directory share its servers, and the last to leave stops them.
The kernel keeps the books, because a killed program cannot: a lock made with flock goes when its
last holder goes, while a pid in a file may by now belong to somebody else.

1. Who is inside: each opener holds a shared lock on `owners.lock`.
2. Whose turn it is to start or stop: the holder of `start.lock`. The tools that it runs inherit
   that lock, so that an `initdb` or `pg_ctl` which outlives its killed caller still has the turn.
3. Whether a server lives: all its processes inherit a lock on `postgresql.lock` or `valkey.lock`.
   When that lock is free, the pid file and the socket are leftovers, whatever they claim.
4. Whether a server serves: it answers at its socket.

A program that dies without unwinding (SIGKILL, an unhandled SIGTERM) leaves its servers running;
the next to open the directory joins them and, being the last, stops them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from onward.embedded.home import OWN_DATABASE, Home, find_home
from onward.embedded.postgresql import PostgreSQL
from onward.embedded.running import alive, ensure_running, stop
from onward.embedded.valkey import Valkey
from onward.errors import ServerUnreachable

if sys.platform != "win32":
    import fcntl

__all__ = ["Servers", "servers"]


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers answer that were asked for, and where `psql` and `pgbench` are."""

    database_url: str
    redis_url: str | None
    bin_dir: Path


@contextmanager
def servers(
    data_dir: Path, *, postgresql: bool = True, valkey: bool = False, durable: bool = True
) -> Iterator[Servers]:
    """Start or join the servers of `data_dir`; the last to leave stops them.

    Blocks, at worst for minutes, so call it from a thread. `durable=False` is only for throw-away
    test clusters: when the machine crashes, such a PostgreSQL loses commits or all it has.
    Under root the servers run as the directory's owner or, when that is root, as the system user
    `pgserver`; the directories above gain the permission to be passed, which that user needs.
    """
    if sys.platform == "win32":
        raise ServerUnreachable(f"Embedded servers need a POSIX system; {OWN_DATABASE}.")
    with _plainly(data_dir):
        home = find_home(data_dir)
        owners = home.open("owners.lock")
    opener = os.getpid()
    try:
        with _plainly(data_dir), home.turn() as turn:
            # Only somebody on his way out holds this exclusively, and his turn is over.
            fcntl.flock(owners, fcntl.LOCK_SH)
            try:
                started = _start(home, turn, postgresql=postgresql, valkey=valkey, durable=durable)
            except TimeoutError:
                # A long recovery would never end if each who gave up on it started it afresh.
                raise
            except BaseException:
                _stop_if_alone(home, owners, turn)
                raise
        try:
            yield started
        finally:
            # A fork of ours shares our lock: it would find itself alone, and stop the servers
            # under its parent. It only closes its copy, and the lock lasts as long as any copy.
            if os.getpid() == opener:
                with _plainly(data_dir), home.turn() as turn:
                    _stop_if_alone(home, owners, turn)
    finally:
        os.close(owners)


def _start(home: Home, turn: int, *, postgresql: bool, valkey: bool, durable: bool) -> Servers:
    database, cache = PostgreSQL(home, durable=durable), Valkey(home)
    if not (alive(database) or alive(cache)):
        home.renew_run_dir()
    if postgresql:
        ensure_running(database, turn)
        database.ensure_database(turn)
    if valkey:
        ensure_running(cache, turn)
    return Servers(database.url(), cache.url() if valkey else None, home.bin_dir)


def _stop_if_alone(home: Home, owners: int, turn: int) -> None:
    """Stop the servers unless somebody else is inside; the caller's lock as owner is spent.

    flock makes a shared lock exclusive by dropping it first. Nobody slips into that gap, because
    coming in takes a turn, and the turn is ours. When the change is refused the shared lock is
    lost, which is what leaving means; those who refused it will have their turn to stop.
    """
    try:
        fcntl.flock(owners, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    stop(Valkey(home), turn)
    stop(PostgreSQL(home), turn)
    with suppress(OSError):  # It is empty when both have gone, and anything else is not ours.
        home.run_dir.rmdir()
        (home.path / "run").unlink()


@contextmanager
def _plainly(data_dir: Path) -> Iterator[None]:
    """Turn what the system says into one sentence for a person."""
    try:
        yield
    except TimeoutError as error:
        raise ServerUnreachable(str(error)) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        if isinstance(error, OSError):
            reason = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        else:
            reason = f"{Path(error.cmd[0]).name} took over {error.timeout:.0f} s"
        raise ServerUnreachable(
            f"The embedded servers cannot use {data_dir} ({reason}); "
            f"set ONWARD_DATA_DIR to a directory that can be written, or {OWN_DATABASE}."
        ) from error
