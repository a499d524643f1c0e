"""Programs under their limits: what they get, how they end, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onward.agent import keeper
from onward.channels.agent.messages import Refused, Result, Stop
from onward.channels.base import Stream
from tests.agent.grounds import Ground, program, until

ROOT = os.geteuid() == 0

_GREEDY = """
import os
try:
    b"x" * 2**30
except MemoryError:
    print("memory")
try:
    while True:
        os.open("/", 0)
except OSError as error:
    print(error.strerror)
"""
_LOUD = """
import os
os.write(2, bytes(range(256)))
for _ in range(4000):
    os.write(1, b"\\xe2\\x82\\xac" * 1000)
"""

# Leaves its process group, its session and its parent, and says who it is.
_DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(300)
    os._exit(0)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def ended(ground: Ground) -> Result:
    return await ground.ear.until(Result)


def gone(pid: int) -> bool:
    return not keeper.alive(pid, keeper.started_at(pid))


def arguments_holding(words: bytes) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if words in path.read_bytes():
                found.append(path.parent.name)
    return found


async def test_a_program_gets_its_arguments_byte_for_byte(ground: Ground):
    arguments = ["", " ", "-n", "a'b\"c$`\\", "two\nlines", "ünïcødé 漢字 🚀", "\udce9"]
    ground.take(program(sys.executable, "-ISXutf8", "-c", "import sys; print(ascii(sys.argv[1:]))",
                        *arguments))  # fmt: skip
    assert (await ended(ground)).succeeded
    assert ground.ear.output() == f"{arguments!a}\n"


async def test_a_program_gets_its_own_environment_and_none_of_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ONWARD_AGENT_TOKEN", "canary")
    ground = Ground(tmp_path)
    ground.take(program("sh", "-c", 'env; cat; pwd; ls -ld "$TMPDIR"', cwd=str(tmp_path),
                        env={"A": "b"}, secrets={"ONWARD_PIN": "hush"}, stdin="given"))  # fmt: skip
    assert (await ended(ground)).succeeded
    said = ground.ear.output()
    assert "canary" not in said
    for expected in ("A=b", "ONWARD_PIN=hush", "ONWARD_ATTEMPT=c1/1", "given", str(tmp_path)):
        assert expected in said
    assert "drwx------" in said, "a folder of its own"
    assert [*(tmp_path / "tmp").iterdir()] == [], "which is gone with it"


async def test_secrets_are_in_nobodys_arguments(ground: Ground):
    ground.take(program("sh", "-c", "echo up; sleep 30", secrets={"ONWARD_PIN": "canary-4711"}))
    await until(lambda: "up" in ground.ear.output())
    assert not arguments_holding(b"canary-4711")
    assert arguments_holding(b"echo up; sleep 30"), "it was looked for where it would have been"
    ground.take(Stop("c1", 1))
    await ended(ground)


@pytest.mark.parametrize(
    ("argv", "code", "error"),
    [
        (("sh", "-c", "exit 7"), 7, None),
        (("sh", "-c", "kill -KILL $$"), 137, "killed by SIGKILL"),
        (("sh", "-c", "kill -TERM $$"), 143, "killed by SIGTERM"),
        (("/no/such/program",), 127, "/no/such/program: No such file or directory"),
        (("/etc/passwd",), 126, "/etc/passwd: Permission denied"),
    ],
    ids=["code", "killed", "terminated", "missing", "not executable"],
)
async def test_how_a_program_ended_is_told(
    ground: Ground, argv: tuple[str, ...], code: int, error: str | None
):
    ground.take(program(*argv))
    result = await ended(ground)
    assert (result.succeeded, result.exit_code) == (False, code)
    assert error is None or error in str(result.error)


async def test_a_folder_that_is_not_there_is_told(ground: Ground):
    ground.take(program("true", cwd="/no/such/folder"))
    result = await ended(ground)
    assert result.exit_code == 127
    assert "/no/such/folder" in str(result.error)


async def test_a_program_is_ended_at_its_time_limit_whatever_it_does_about_it(ground: Ground):
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    ground.take(program(sys.executable, "-ISc", deaf, timeout_s=0.5))
    result = await ended(ground)
    assert (result.succeeded, result.exit_code) == (False, 124)
    assert result.error == "stopped at its time limit"


async def test_the_agent_has_a_time_limit_of_its_own(tmp_path: Path):
    ground = Ground(tmp_path, time_s=0.3)
    ground.take(program("sleep", "60"))
    assert (await ended(ground)).exit_code == 124


@pytest.mark.parametrize("how", ["ends by itself", "time limit", "stop"])
async def test_nothing_that_a_program_has_started_stays(ground: Ground, how: str):
    seconds = "0.3" if how == "ends by itself" else "60"
    timeout_s = 1.0 if how == "time limit" else 60.0
    ground.take(program(sys.executable, "-ISc", _DAEMON, seconds, timeout_s=timeout_s))
    await until(lambda: ground.ear.output().strip())
    pid = int(ground.ear.output())
    if how == "stop":
        assert not gone(pid)
        ground.take(Stop("c1", 1))
    await ended(ground)
    assert gone(pid)


async def test_what_kept_a_program_is_killed_and_nobody_knows_how_it_ended(ground: Ground):
    ground.take(program(sys.executable, "-ISc", _DAEMON, "60"))
    await until(lambda: ground.ear.output().strip())
    running = ground.host._memory.under_way()[0].running
    assert running is not None
    os.kill(running.keeper.pid, signal.SIGKILL)
    result = await ended(ground)
    assert (result.unknown, result.succeeded) == (True, False)
    assert gone(running.program.pid)
    assert gone(int(ground.ear.output())), "found by the name of the attempt in its environment"


async def test_output_of_any_bytes_and_any_size_arrives_up_to_the_limit(tmp_path: Path):
    ground = Ground(tmp_path, output_chars=3_000_000)
    ground.take(program(sys.executable, "-ISc", _LOUD))
    assert (await ended(ground)).succeeded
    complaint = ground.ear.output(Stream.STDERR)
    assert complaint.startswith(bytes(range(128)).decode() + "\\x80\\x81")
    assert complaint.endswith("[onward: more than 3,000,000 characters; the rest is dropped]\n")
    said = ground.ear.output()
    assert set(said) == {"€"}
    assert 2_999_000 < len(said) < 3_000_000


async def test_only_the_beginning_of_the_output_is_kept_for_later(ground: Ground):
    ground.host.voice.lost(ground.ear)
    ground.take(program("sh", "-c", "yes | head -c 300000"))
    await until(ground.journal.waiting)
    ground = ground.again()
    assert len(ground.ear.output()) == 65_536


async def test_memory_and_files_are_limited(tmp_path: Path):
    ground = Ground(tmp_path, memory_bytes=256 * 2**20, files=64)
    ground.take(program(sys.executable, "-ISc", _GREEDY))
    assert (await ended(ground)).succeeded
    assert ground.ear.output() == "memory\nToo many open files\n"


@pytest.mark.skipif(not ROOT, reason="not run: only root may run programs as somebody else")
async def test_processes_are_limited_and_programs_of_root_run_as_somebody_else(tmp_path: Path):
    ground = Ground(tmp_path, processes=20)
    bomb = 'id -u; echo "$HOME"; i=0; while [ $i -lt 99 ]; do sleep 60 & i=$((i+1)); done; echo all'
    ground.take(program("sh", "-c", bomb, user="nobody"))
    assert not (await ended(ground)).succeeded
    nobody = pwd.getpwnam("nobody")
    assert ground.ear.output() == f"{nobody.pw_uid}\n{nobody.pw_dir}\n"
    assert "fork" in ground.ear.output(Stream.STDERR)


async def test_a_user_that_is_not_there_is_refused(ground: Ground, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ground.take(program("true", user="no-such-user"))
    assert "no user 'no-such-user'" in (await ground.ear.until(Refused)).why


async def test_another_user_is_asked_for_through_sudo_and_secrets_pass_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A sudo that forgets the environment, as the real one does, and writes its arguments down."""
    told = tmp_path / "told"
    sudo = tmp_path / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {told}\nshift 4\nexec env -i PATH="$PATH" "$@"\n'
    )
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sudo.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    ground = Ground(tmp_path)
    script = 'printf "%s|%s|" "$ONWARD_PIN" "$A"; cat'
    given: dict[str, Any] = {
        "env": {"A": "ü'\n"},
        "secrets": {"ONWARD_PIN": "hush"},
        "stdin": "rest",
    }
    ground.take(program("sh", "-c", script, user="root", **given))
    assert (await ended(ground)).succeeded, ground.ear.output(Stream.STDERR)
    assert ground.ear.output() == "hush|ü'\n|rest"
    assert told.read_text().startswith("-n\n-u\nroot\n--\n/bin/sh\n")
    assert "hush" not in told.read_text()


async def test_a_program_that_is_faster_than_the_line_waits_for_it(ground: Ground):
    """Nothing is gathered without end while the other side does not read."""
    held, waits = asyncio.Event(), asyncio.Event()

    async def room() -> None:
        waits.set()
        await held.wait()

    ground.ear.room = room  # type: ignore[method-assign]  # a line that does not move
    ground.take(program("sh", "-c", "yes | head -c 8000000"))
    await waits.wait()
    (attempt,) = ground.host._memory.under_way()
    assert attempt.output is not None
    await until(lambda: attempt.output and attempt.output.pending_chars > 262_144)
    assert attempt.output.pending_chars < 600_000
    held.set()
    assert (await ended(ground)).succeeded
    assert len(ground.ear.output()) == 8_000_000
