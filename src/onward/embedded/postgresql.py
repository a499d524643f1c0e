"""PostgreSQL: how its cluster is made and tuned, and how it is asked, told and reached."""

from __future__ import annotations

import logging
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from onward.embedded.home import Home
from onward.embedded.running import Answer, must_run, run
from onward.errors import ServerNotDurable

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostgreSQL:
    """The PostgreSQL of a data directory; one that is not durable is a throw-away."""

    home: Home
    durable: bool = True
    title: str = "PostgreSQL"
    name: str = "postgresql"

    def url(self, database: str = "onward") -> str:
        """Where a client finds the database."""
        # The port is spelled out, or else PGPORT in the environment would change it.
        return f"postgresql://postgres@/{database}?host={quote(str(self.home.run_dir))}&port=5432"

    def answer(self) -> Answer:
        """Ask with a tool, which tells a recovery from a refusal."""
        code = run(self, [self._tool("pg_isready"), "-q", "-t", "3", "-d", self.url("postgres")])
        return {0: Answer.READY, 1: Answer.BUSY}.get(code, Answer.SILENT)

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
        return run(self, tell, inherit=turn) == 0

    def ensure_database(self, turn: int) -> None:
        """Create the database if it is absent, and refuse a throw-away server that we joined."""
        if self.durable and "\nfsync = off" in (self._data() / "onward.conf").read_text("utf-8"):
            raise ServerNotDurable(
                f"The PostgreSQL that runs in {self.home.path} is a throw-away and may forget "
                "commits; try again when the program that started it has ended."
            )
        query = "SELECT 'CREATE DATABASE onward' WHERE NOT EXISTS (SELECT FROM pg_database WHERE"
        psql = [self._tool("psql"), "-qX", "-v", "ON_ERROR_STOP=1", self.url("postgres")]
        must_run(self, psql, turn, f"{query} datname = 'onward') \\gexec\n")

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
        must_run(self, initdb if self.durable else [*initdb, "--no-sync"], turn)
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


def _memory_bytes() -> int:
    """Return the memory of the machine, or of our container where that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        return min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return physical
