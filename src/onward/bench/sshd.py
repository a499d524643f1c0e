"""Hundreds of hosts on one machine: real sshds, with keys of their own, each host at its own port.

One sshd listens at 16 ports at most, so several of them are started. Nothing of the machine's own
configuration is used, and nobody but the bench has a key. A shell that they start finds an empty
home: what somebody's profile does would be measured otherwise.

Hosts share the processors with whoever asks them, so they are to weigh little: an sshd forks for a
connection and does not start itself anew (`-r`; sshds since 9.8 know no such option and ignore it).
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from onward.errors import InvariantBroken

ADDRESS: Final = "127.0.0.1"
KEY: Final = "id_ed25519"

_PORTS_EACH: Final = 16  # as many as an sshd has room for
# Below those from which the system takes ports for outgoing connections.
_PORTS: Final = range(20_000, 32_000)
_PATIENCE_S: Final = 30.0
_LOOK_S: Final = 0.05
_SEPARATION: Final = Path("/run/sshd")  # an sshd that is root's does not start without it
_CONFIGURATION: Final = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/{key}.pub
PidFile none
UsePAM no
UseDNS no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
PrintLastLog no
MaxStartups 10000:30:20000
SetEnv HOME={folder}/home
LogLevel ERROR
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """Hosts that can be logged in to."""

    folder: Path  # has the key and `known_hosts`, as a channel wants them
    user: str
    ports: Sequence[int]  # one a host

    @property
    def key(self) -> Path:
        """The private key that they let in."""
        return self.folder / KEY

    @property
    def known_hosts(self) -> Path:
        """The keys by which they are known."""
        return self.folder / "known_hosts"


def sshd() -> str | None:
    """Where the program is, if it is there."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which("sshd", path=path)


@contextmanager
def hosts(count: int) -> Iterator[Ground]:
    """Start so many hosts, and end them with all that was started on them."""
    program = sshd()
    if program is None:
        raise InvariantBroken("there is no sshd to measure with")
    with TemporaryDirectory(prefix="onward-sshd-") as name, ExitStack() as stack:
        ground = Ground(Path(name), pwd.getpwuid(os.getuid()).pw_name, list(_free_ports(count)))
        _prepare(ground)
        for first in range(0, count, _PORTS_EACH):
            ports = ground.ports[first : first + _PORTS_EACH]
            stack.enter_context(_listening(program, ground, ports))
        yield ground


def _free_ports(count: int) -> Iterator[int]:
    """Ports at which nobody listens; several grounds at once begin at different ones."""
    begin = os.getpid() * 512 % len(_PORTS)
    ports = (_PORTS[(begin + number) % len(_PORTS)] for number in range(len(_PORTS)))
    return islice(filter(_is_free, ports), count)


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((ADDRESS, port))
        except OSError:
            return False
        return True


def _prepare(ground: Ground) -> None:
    """Make the keys, and write down by which one the hosts are known."""
    ground.folder.joinpath("home").mkdir()
    if os.getuid() == 0:
        _SEPARATION.mkdir(mode=0o755, exist_ok=True)
    for name in (KEY, "host_key"):
        command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ground.folder / name))
        subprocess.run(command, check=True)  # noqa: S603 - our own words
    kind, key, *_ = ground.folder.joinpath("host_key.pub").read_text("ascii").split()
    known = [f"[{ADDRESS}]:{port} {kind} {key}\n" for port in ground.ports]
    ground.known_hosts.write_text("".join(known), encoding="ascii")


@contextmanager
def _listening(program: str, ground: Ground, ports: Sequence[int]) -> Iterator[None]:
    path = ground.folder / f"sshd-{ports[0]}.conf"
    listens = "".join(f"ListenAddress {ADDRESS}:{port}\n" for port in ports)
    path.write_text(_CONFIGURATION.format(folder=ground.folder, key=KEY) + listens, "utf-8")
    log = path.with_suffix(".log")
    with log.open("wb") as told:
        started = subprocess.Popen(  # noqa: S603 - our own words
            (program, "-D", "-e", "-r", "-f", str(path)),
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
        )
    try:
        _until_listening(started, ports, log)
        yield
    finally:
        started.terminate()
        started.wait(_PATIENCE_S)


def _until_listening(started: subprocess.Popen[bytes], ports: Sequence[int], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    for port in ports:
        while not _answers(port):
            if started.poll() is not None or time.monotonic() > deadline:
                raise InvariantBroken(f"an sshd did not start: {log.read_text('utf-8')[-500:]}")
            time.sleep(_LOOK_S)


def _answers(port: int) -> bool:
    with closing(socket.socket()) as tried:
        return tried.connect_ex((ADDRESS, port)) == 0
