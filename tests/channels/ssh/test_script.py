"""Any shell that reads our line runs the program with exactly these arguments, or does not run it.

Here the shells are asked directly, with no network between: hundreds of programs in a second.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onward.channels.program import Program
from onward.channels.ssh import script
from onward.errors import HostRefused
from tests.proof_table import Tried

SHOW = "import os, sys; print(*(os.fsencode(each).hex() or '-' for each in sys.argv[1:]))"
SHELLS = [each for each in ("dash", "bash", "busybox", "mksh", "ksh", "zsh") if shutil.which(each)]
# Whatever the shell of a login is, it has to understand one command, always the same.
LOGINS = [each for each in (*SHELLS, "fish", "tcsh", "csh") if shutil.which(each)]

# Bytes that are no UTF-8 come as lone surrogates, as Python's own file names do.
BYTES = st.binary().map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | BYTES
ANY = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40
)


def run(shell: str, send: bytes, cwd: str = "/") -> subprocess.CompletedProcess[bytes]:
    own = f"/bin/{shell}" if shell != "busybox" else f"{shutil.which(shell)} sh"
    command = script.COMMAND.replace("/bin/sh", own)
    return subprocess.run(
        ["sh", "-c", command], input=send, check=False, capture_output=True, cwd=cwd
    )


def after_begun(said: bytes) -> bytes:
    found = script.BEGUN.match(said)
    assert found is not None, said
    return said[found.end() :]


@pytest.mark.parametrize("shell", SHELLS)
def test_arguments_arrive_byte_for_byte(shell: str, tried: Tried, *, proof: bool):
    @settings(ANY, max_examples=1_000 if proof else 40)
    @given(st.lists(TEXTS, min_size=1, max_size=8))
    def arrive(arguments: list[str]) -> None:
        program = Program((sys.executable, "-S", "-E", "-c", SHOW, *arguments))
        said = run(shell, script.lines_for(program))
        arrived = after_begun(said.stdout).decode().split()
        assert arrived == [os.fsencode(each).hex() or "-" for each in arguments], said.stderr
        tried(f"programs with any arguments, through {shell}", 1, "all arrived byte for byte")

    arrive()


@pytest.mark.parametrize("shell", SHELLS)
def test_variables_arrive_byte_for_byte(shell: str):
    @ANY
    @given(TEXTS, TEXTS)
    def arrive(value: str, secret: str) -> None:
        show = "import os; print(os.environb[b'A'].hex(), os.environb[b'ONWARD_B'].hex(), sep=',')"
        program = Program(
            (sys.executable, "-S", "-E", "-c", show), env={"A": value}, secrets={"ONWARD_B": secret}
        )
        arrived = after_begun(run(shell, script.lines_for(program)).stdout).decode().strip()
        assert arrived == f"{os.fsencode(value).hex()},{os.fsencode(secret).hex()}"

    arrive()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_line_that_did_not_arrive_whole_is_not_run(shell: str, tmp_path: Path):
    mark = tmp_path / "mark"
    whole = script.lines_for(Program(("touch", str(mark)), env={"A": "a\nb"}))
    for length in range(len(whole)):
        assert run(shell, whole[:length]).stdout == b""
    assert not mark.exists()
    run(shell, whole)
    assert mark.exists()


@pytest.mark.parametrize("login", LOGINS)
def test_every_login_shell_understands_the_command(login: str):
    asked = [shutil.which(login) or login, *(["sh"] if login == "busybox" else [])]
    said = subprocess.run(
        [*asked, "-c", script.COMMAND],
        input=script.lines_for(Program(("echo", "it's", "!$HOME\\"))),
        check=False,
        capture_output=True,
    )
    assert after_begun(said.stdout) == b"it's !$HOME\\\n"


def test_what_follows_the_line_is_the_input_of_the_program():
    said = run("dash", script.lines_for(Program(("cat",))) + b"its own\ninput")
    assert after_begun(said.stdout) == b"its own\ninput"


@pytest.mark.parametrize("folder", ["-", "-P", "a b", "sub", "it's\n"])
def test_a_directory_of_any_name_is_entered(tmp_path: Path, folder: str):
    (tmp_path / folder).mkdir()
    said = run("dash", script.lines_for(Program(("pwd",), cwd=folder)), str(tmp_path))
    assert after_begun(said.stdout).decode() == f"{tmp_path / folder}\n"


@pytest.mark.parametrize("cwd", ["/nowhere", ""])
def test_a_program_whose_directory_is_not_there_does_not_begin(cwd: str, tmp_path: Path):
    said = run("dash", script.lines_for(Program(("touch", str(tmp_path / "x")), cwd=cwd or "no")))
    assert said.stdout == b""
    assert said.returncode != 0
    assert not (tmp_path / "x").exists()


UNTELLABLE = [
    Program(("-c", "id")),
    Program(("a", "\ud800")),
    Program(("a",), env={"A": "\ud800"}),
    Program(("a",), stdin="\ud800"),
]


@pytest.mark.parametrize("program", UNTELLABLE)
def test_what_no_shell_can_be_told_is_refused(program: Program):
    with pytest.raises(HostRefused):
        script.lines_for(program)


def test_the_command_has_nothing_that_a_shell_could_take_for_its_own():
    """No backslash, no exclamation mark, no line break: csh and fish read those otherwise."""
    assert not set(script.COMMAND) & set("\\!\n`~*?[]{}#^%")


# Stopping

STUBBORN = """\
trap '' TERM
sh -c 'trap "" TERM; while :; do sleep 1; done' & echo $!
setsid sh -c 'trap "" TERM; while :; do sleep 1; done' & echo $!
echo $$
while :; do sleep 1; done
"""


def started(text: str, lines: int) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        ["sh", "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    return process, [int(process.stdout.readline()) for _ in range(lines)]


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_stops_a_program_with_its_children_and_nobody_else(shell: str):
    bystander, _ = started("echo 0; exec sleep 60", 1)
    process, pids = started(STUBBORN, 3)
    with bystander, process:
        begun = script.Begun(process.pid, process.pid)
        try:
            stopped = run(shell, script.lines_to_stop(begun, user=None, grace_s=0.3))
            assert stopped.returncode == 0, stopped
            assert [pid for pid in pids if not ended(pid)] == []
            assert bystander.poll() is None
        finally:
            bystander.kill()
            process.kill()


@pytest.mark.parametrize("shell", SHELLS)
def test_what_has_ended_is_stopped(shell: str):
    process, _ = started("echo 0", 1)
    process.communicate()
    begun = script.Begun(process.pid, process.pid)
    assert run(shell, script.lines_to_stop(begun, user=None, grace_s=5)).returncode == 0
