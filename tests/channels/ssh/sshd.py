"""An sshd of the test's own on loopback, with keys of its own; and asyncssh's server beside it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh
import pytest

from onward.channels.base import Delivery, Target
from onward.channels.ssh import SshChannel, SshWay
from tests.cli.running import until

PROGRAM = shutil.which("sshd") or "/usr/sbin/sshd"
installed = Path(PROGRAM).exists()
needs_sshd = pytest.mark.skipif(not installed, reason="not run: needs sshd (openssh-server)")
USER = getpass.getuser()


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs, and what is needed to reach it."""

    folder: Path  # with the keys of both sides, and `home`
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{USER}@127.0.0.1:{self.port}"

    @property
    def host_key(self) -> str:
        """The public key that it shows."""
        return (self.folder / "host_key.pub").read_text().rsplit(" ", 1)[0]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def way(self, directory: Path | None = None, **changes: object) -> SshWay:
        """A way to it with its key known and ours in the folder."""
        directory = directory or self.folder / "client"
        made = SshWay(directory, user=USER, connect_timeout_s=20, grace_s=1)
        return replace(made, **changes)  # type: ignore[arg-type]  # the test names what there is


def keygen(path: Path, *options: str) -> Path:
    """Make a pair of keys."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run([*command, *options], check=True, stdin=subprocess.DEVNULL)
    return path


def sign(authority: Path, key: Path, *options: str) -> Path:
    """Certify a key; the certificate stands beside it."""
    command = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", *options, f"{key}.pub"]
    subprocess.run(command, check=True)
    return key.with_name(f"{key.name}-cert.pub")


def prepared(folder: Path) -> Path:
    """Make the keys of both sides, and let them know each other."""
    if shutil.which("ssh-keygen"):
        keygen(folder / "host_key")
    else:
        _write_key(folder / "host_key")
    client = folder / "client"
    client.mkdir(mode=0o700)
    _write_key(client / "id_ed25519")
    (folder / "home").mkdir()
    authorized = folder / "authorized_keys"
    authorized.write_bytes((client / "id_ed25519.pub").read_bytes())
    authorized.chmod(0o600)
    kind_and_key = (folder / "host_key.pub").read_text().split()[:2]
    (client / "known_hosts").write_text(f"* {' '.join(kind_and_key)}\n")
    return folder


def _write_key(path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(path))
    path.chmod(0o600)
    key.write_public_key(f"{path}.pub")
    text = path.with_name(f"{path.name}.pub").read_text().strip()
    path.with_name(f"{path.name}.pub").write_text(f"{text} test\n")


@contextmanager
def sshd(
    folder: Path, *options: str, addresses: Sequence[str] = ("127.0.0.1",)
) -> Iterator[Server]:
    """Start one in a folder that is prepared; it and what it runs is gone in the end."""
    port = free_port()
    config = folder / "sshd_config"
    config.write_text("\n".join([*options, *_config(folder, port, addresses)]) + "\n")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    log = folder / "log"
    log.unlink(missing_ok=True)
    command = [PROGRAM, "-D", "-f", str(config), "-E", str(log)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        until(lambda: log.exists() and log.read_text().count("Server listening") == len(addresses))
        yield Server(folder, port, process)
    finally:
        process.terminate()
        process.wait(20)


def _config(folder: Path, port: int, addresses: Sequence[str]) -> list[str]:
    return [
        f"Port {port}",
        *(f"ListenAddress {each}" for each in addresses),
        f"HostKey {folder / 'host_key'}",
        f"AuthorizedKeysFile {folder / 'authorized_keys'}",
        # What a user's own profile does at every login is none of ours.
        f"SetEnv HOME={folder / 'home'}",
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "UseDNS no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin yes",
        "MaxStartups 1000:30:2000",
        "MaxSessions 100",
        "LogLevel INFO",
    ]


@contextmanager
def asyncssh_server(folder: Path) -> Iterator[Server]:
    """Asyncssh's own server, in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("asyncssh_server.py")), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield Server(folder, int(process.stdout.readline()), process)
        finally:
            process.terminate()
            process.wait(20)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


_numbers = iter(range(1, 1_000_000_000))


def delivery(
    address: str,
    *argv: str,
    timeout_s: float = 30.0,
    name: str = "web1",
    masked: Sequence[str] = (),
    **params: object,
) -> Delivery:
    """An attempt at a program on the host with this address."""
    number = next(_numbers)
    asked = {"argv": [*argv], **params} if argv else params
    target = Target(1, name, address)
    return Delivery(str(number), number, target, "RUN", asked, timeout_s, masked=masked)


def begun(channel: SshChannel) -> int:
    """How many programs have begun, and have not ended."""
    return sum(bool(each.session and each.session.begun) for each in channel._attempts.values())
