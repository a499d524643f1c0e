"""A program runs on a real host with what it was given, and is stopped with all its children."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onward.channels.base import Report, Stream
from onward.channels.ssh import SshChannel
from onward.errors import DeliveryUnknown, HostRefused, NotDelivered
from tests.channels.conformance.ground import Ear, until
from tests.channels.ssh.sshd import Server, begun, delivery, needs_sshd, prepared, sshd

pytestmark = needs_sshd

FAKE_SUDO = """\
#!/bin/sh
# As sudo -n: refuses one user, says so when it is only asked, and runs the rest.
echo "$*" >> {log}
only=
while [ $# -gt 0 ]; do case $1 in
  -n) ;; -l) only=1 ;; -u) shift; user=$1 ;; --) shift; break ;; esac; shift; done
if [ "$user" = nobody ]; then echo "sudo: a password is required" >&2; exit 1; fi
[ -n "$only" ] && exit 0
SUDO_USER=$user; export SUDO_USER
"$@"
"""


async def said(
    channel: SshChannel, server: Server, *argv: str, **params: Any
) -> tuple[Report, Ear]:
    ear = Ear()
    return await channel.deliver(delivery(server.address, *argv, **params), ear), ear


def script(text: str) -> dict[str, Any]:
    """What a job says that wants a shell."""
    return {"shell": text}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


# What a program is given


async def test_a_program_gets_variables_a_directory_and_input(
    channel: SshChannel, server: Server, tmp_path: Path
):
    script = 'cat; echo "$A|$PWD"; echo oops >&2'
    given = {"env": {"A": "it's\n指令"}, "cwd": str(tmp_path), "stdin": "in\nput "}
    report, ear = await said(channel, server, "sh", "-c", script, **given)
    assert report == Report(succeeded=True, exit_code=0)
    assert ear.stdout == f"in\nput it's\n指令|{tmp_path}\n"
    assert ear.heard[Stream.STDERR] == "oops\n"


async def test_a_program_without_input_sees_its_end_at_once(channel: SshChannel, server: Server):
    report, ear = await said(channel, server, "cat")
    assert report.succeeded
    assert ear.stdout == ""


async def test_a_script_is_run_by_a_shell_that_was_asked_for_by_name(
    channel: SshChannel, server: Server
):
    _, ear = await said(channel, server, **script("for i in 1 2 3; do echo $i; done | tail -1"))
    assert ear.stdout == "3\n"


async def test_a_megabyte_of_input_and_long_arguments_arrive(channel: SshChannel, server: Server):
    text = "0123456789abcde\n" * 65_536
    arguments = ["x" * 100_000] * 10
    script = "cat | wc -c; echo $*| wc -c"
    report, ear = await said(channel, server, "sh", "-c", script, "sh", *arguments, stdin=text)
    assert report.succeeded
    assert ear.stdout.split() == ["1048576", "1000010"]


@pytest.mark.parametrize("code", [1, 126, 127, 255])
async def test_an_exit_code_is_reported(channel: SshChannel, server: Server, code: int):
    report, _ = await said(channel, server, "sh", "-c", f"exit {code}")
    assert report == Report(succeeded=False, exit_code=code, error=f"exit code {code}")


async def test_a_program_that_is_not_there_is_told_as_a_shell_does(
    channel: SshChannel, server: Server
):
    report, ear = await said(channel, server, "no-such-program")
    assert report.exit_code == 127
    assert "no-such-program" in ear.heard[Stream.STDERR]


async def test_a_signal_that_ended_a_program_is_named(channel: SshChannel, server: Server):
    report, _ = await said(channel, server, "sh", "-c", "kill -KILL $$")
    assert report == Report(succeeded=False, exit_code=137, error="killed by SIGKILL")


async def test_the_chatter_of_a_login_is_no_output(tmp_path: Path):
    folder = prepared(tmp_path)
    (folder / "home" / ".bashrc").write_text("echo welcome; printf 'no line'; echo moan >&2\n")
    (folder / "home" / ".profile").write_text("echo welcome\n")
    with sshd(folder) as server:
        async with SshChannel(server.way()) as channel:
            report, ear = await said(channel, server, "echo", "hello")
    assert report.succeeded
    assert ear.stdout == "hello\n"


async def test_an_account_without_a_shell_has_refused_it(tmp_path: Path):
    folder = prepared(tmp_path)
    with sshd(folder, 'ForceCommand sh -c "echo This account is closed; exit 1"') as server:
        async with SshChannel(server.way()) as channel:
            with pytest.raises(HostRefused, match="This account is closed"):
                await said(channel, server, "true")


# Output


async def test_output_comes_while_the_program_runs(channel: SshChannel, server: Server):
    ear = Ear()
    asked = delivery(server.address, "sh", "-c", "echo first; exec sleep 60")
    running = asyncio.create_task(channel.deliver(asked, ear))
    await until(lambda: ear.stdout == "first\n")
    assert not running.done()
    assert await channel.cancel(asked)
    assert (await running).exit_code == 143


async def test_a_character_that_is_cut_in_two_on_the_way_is_whole(
    channel: SshChannel, server: Server
):
    script = r"printf '\346\214'; sleep 0.3; printf '\207\377\300'"
    _, ear = await said(channel, server, "sh", "-c", script)
    assert ear.stdout == "指\\xff\\xc0"


async def test_tens_of_megabytes_come_back_whole(channel: SshChannel, server: Server):
    count = 0

    def hear(_stream: Stream, text: str) -> None:
        nonlocal count
        count += len(text)

    asked = delivery(server.address, "head", "-c", "30000000", "/dev/zero")
    assert (await channel.deliver(asked, hear)).succeeded
    assert count == 30_000_000


async def test_a_child_that_keeps_the_output_open_is_not_waited_for(
    channel: SshChannel, server: Server
):
    report, ear = await said(channel, server, "sh", "-c", "sleep 60 & echo $!")
    assert report.succeeded
    os.kill(int(ear.stdout), signal.SIGKILL)


async def test_a_listener_that_fails_is_its_own_problem(channel: SshChannel, server: Server):
    def fail(_stream: Stream, _text: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await channel.deliver(delivery(server.address, "echo", "x"), fail)
    assert (await said(channel, server, "true"))[0].succeeded


# Secrets


async def test_a_secret_is_in_the_environment_of_the_program_and_in_no_argument(
    channel: SshChannel, server: Server, tmp_path: Path
):
    secret = "canary-7261-of-the-test"  # noqa: S105 - of the test
    here, go = tmp_path / "here", tmp_path / "go"
    os.mkfifo(go)
    script = f'echo "$ONWARD_WORD" | wc -c; touch {here}; read x < {go} || true'
    ear = Ear()
    asked = delivery(server.address, "sh", "-c", script, masked=["word"], word=secret)
    running = asyncio.create_task(channel.deliver(asked, ear))
    await until(here.exists)
    assert shown(secret) == []
    go.write_text("")
    assert (await running).succeeded
    assert ear.stdout == f"{len(secret) + 1}\n"
    assert secret not in server.log
    assert secret not in repr(asked.target)


async def test_no_error_shows_a_secret(channel: SshChannel, server: Server):
    asked = delivery(server.address, "true", cwd="/nowhere", word="canary-7262", masked=["word"])
    with pytest.raises(HostRefused) as refusal:
        await channel.deliver(asked, Ear())
    assert "/nowhere" in str(refusal.value)
    assert "canary" not in str(refusal.value)


def shown(secret: str) -> list[Path]:
    """Whose arguments hold it, of all programs of the machine."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if secret in text_of(path)]


def text_of(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""


# Another user


@pytest.fixture
def fake_sudo(tmp_path: Path) -> Path:
    """The log of a sudo that refuses `nobody`, and only pretends for the others."""
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text(FAKE_SUDO.format(log=tmp_path / "sudo.log"))
    sudo.chmod(0o755)
    return tmp_path / "sudo.log"


async def test_another_user_is_reached_through_sudo_without_a_prompt(
    tmp_path_factory: pytest.TempPathFactory, fake_sudo: Path
):
    folder = prepared(tmp_path_factory.mktemp("sudo"))
    path = f"{fake_sudo.parent / 'bin'}:{os.environ['PATH']}"
    with sshd(folder, f"SetEnv HOME={folder / 'home'} PATH={path}") as server:
        async with SshChannel(server.way()) as channel:
            await _through_sudo(channel, server, fake_sudo)


async def _through_sudo(channel: SshChannel, server: Server, log: Path) -> None:
    report, ear = await said(channel, server, "sh", "-c", "echo $SUDO_USER", user="deploy")
    assert report.succeeded
    assert ear.stdout == "deploy\n"
    assert text_of(log).splitlines() == [
        "-n -l -u deploy -- sh -c echo $SUDO_USER",
        "-n -u deploy -- sh -c echo $SUDO_USER",
    ]
    with pytest.raises(HostRefused, match="a password is required"):
        await said(channel, server, "true", user="nobody")
    log.unlink()  # noqa: ASYNC240 - of the test
    asked = delivery(
        *(server.address, "sh", "-c", 'cat; echo "$SUDO_USER $A $ONWARD_S $PWD"'),
        user="deploy",
        env={"A": "b c"},
        cwd="/",
        stdin="in ",
        s="canary-7263",
        masked=["s"],
    )
    ear = Ear()
    assert (await channel.deliver(asked, ear)).succeeded
    assert ear.stdout == "in deploy b c canary-7263 /\n"
    assert "canary" not in text_of(log)
    with pytest.raises(HostRefused, match="a password is required"):
        await said(channel, server, "true", user="nobody", cwd="/")
    stuck = delivery(server.address, "sleep", "60", user="deploy", timeout_s=1)
    report = await channel.deliver(stuck, Ear())
    assert report.exit_code == 124


@pytest.mark.skipif(shutil.which("sudo") is None, reason="not run: needs sudo")
@pytest.mark.skipif(os.getuid() != 0, reason="not run: needs root, whom sudo asks for nothing")
async def test_real_sudo_runs_a_program_as_somebody_else(channel: SshChannel, server: Server):
    report, ear = await said(channel, server, "id", "-un", user="nobody")
    assert report.succeeded
    assert ear.stdout == "nobody\n"
    _, ear = await said(
        channel, server, "sh", "-c", "id -un; echo $A", user="nobody", env={"A": "b"}
    )
    assert ear.stdout == "nobody\nb\n"
    stuck = delivery(server.address, "sleep", "60", user="nobody", timeout_s=1)
    assert (await channel.deliver(stuck, Ear())).exit_code == 124


# Stopping

STUBBORN = """\
trap '' TERM
sh -c 'trap "" TERM; while :; do sleep 1; done' & echo $!
setsid sh -c 'trap "" TERM; while :; do sleep 1; done' & echo $!
echo $$
while :; do sleep 1; done
"""


async def test_children_that_ignore_it_are_stopped_when_the_time_is_over(
    channel: SshChannel, server: Server
):
    report, ear = await said(channel, server, **script(STUBBORN), timeout_s=1)
    assert report == Report(succeeded=False, exit_code=124, error="stopped after 1 s")
    pids = [int(each) for each in ear.stdout.split()]
    assert len(pids) == 3
    assert [pid for pid in pids if alive(pid)] == []


async def test_what_ends_when_it_is_asked_to_is_not_killed(channel: SshChannel, server: Server):
    farewell = "trap 'echo farewell; exit 7' TERM; echo here; while :; do sleep 0.1; done"
    ear = Ear()
    asked = delivery(server.address, **script(farewell))
    running = asyncio.create_task(channel.deliver(asked, ear))
    await until(lambda: ear.stdout == "here\n")
    assert await channel.cancel(asked)
    assert (await running).exit_code == 7
    assert ear.stdout == "here\nfarewell\n"


async def test_a_caller_that_gives_up_leaves_nothing_running(channel: SshChannel, server: Server):
    ear = Ear()
    running = asyncio.create_task(
        channel.deliver(delivery(server.address, **script(STUBBORN)), ear)
    )
    await until(lambda: len(ear.stdout.split()) == 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pids = [int(each) for each in ear.stdout.split()]
    await until(lambda: not any(map(alive, pids)))


async def test_others_on_the_same_host_are_not_stopped(channel: SshChannel, server: Server):
    stays = delivery(server.address, "sleep", "60")
    staying = asyncio.create_task(channel.deliver(stays, Ear()))
    report, _ = await said(channel, server, "sleep", "60", timeout_s=0.5)
    assert report.exit_code == 124
    assert not staying.done()
    assert await channel.cancel(stays)
    await staying


async def test_what_waits_for_its_turn_is_cancelled_before_it_is_sent(
    server: Server, tmp_path: Path
):
    async with SshChannel(server.way(sessions=1)) as channel:
        first = delivery(server.address, "sleep", "60")
        running = asyncio.create_task(channel.deliver(first, Ear()))
        await until(lambda: begun(channel) == 1)
        second = delivery(server.address, "touch", str(tmp_path / "mark"))
        waiting = asyncio.create_task(channel.deliver(second, Ear()))
        await until(lambda: len(channel._attempts) == 2)
        assert await channel.cancel(second)
        assert await channel.cancel(first)
        assert not (await running).succeeded
        with pytest.raises(NotDelivered, match="cancelled before it was sent"):
            await waiting
    assert not (tmp_path / "mark").exists()


async def test_nothing_is_stopped_that_is_not_under_way_here(channel: SshChannel, server: Server):
    assert not await channel.cancel(delivery(server.address, "true"))


async def test_a_login_that_hangs_leaves_it_unknown(tmp_path: Path):
    """The shell has our line and may read it later, so nobody can say that it will not run."""
    folder = prepared(tmp_path)
    with sshd(folder, "ForceCommand sleep 60") as server:
        async with SshChannel(server.way()) as channel:
            with pytest.raises(DeliveryUnknown, match="not confirmed"):
                await said(channel, server, "true", timeout_s=0.5)
