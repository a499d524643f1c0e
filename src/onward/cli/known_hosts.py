"""Accepts the keys of hosts: asks a host for them, and writes them down beside those of the others.

1. Nothing is written that nobody has looked at, or compared with a fingerprint.
2. A key that differs from the known one of its kind is refused, unless it is to replace that.
   A key that is revoked is refused whatever else is asked for.
3. The file is written whole beside the old one and then takes its place, so a worker that reads it
   sees the one or the other. Two commands at once take turns.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import asyncssh

from onward.channels.ssh.address import Address, Hop
from onward.channels.ssh.dial import Dialler, SshWay
from onward.channels.ssh.known_hosts import KnownHosts
from onward.errors import HostRefused, NotDelivered

FILE: Final = "known_hosts"
_PATIENCE_S: Final = 15.0
_MARKER: Final = "@"
_FIELDS: Final = 3  # names, kind of key, key

# A host has one key of each kind, and shows one of those that it is asked for.
_KINDS: Final = (
    ("ssh-ed25519",),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    ("rsa-sha2-512", "rsa-sha2-256"),
)


class Judged(NamedTuple):
    """What a host shows, beside what is known of it."""

    shown: list[asyncssh.SSHKey]
    known: list[asyncssh.SSHKey]  # of those, the ones that are known already
    others: list[asyncssh.SSHKey]  # known keys that it does not show, though it has their kind


async def shown_keys(way: SshWay, address: Address) -> list[asyncssh.SSHKey]:
    """Ask a host for its keys, through the machines on the way to it, and log in to none of it."""
    dialler = Dialler(way)
    opened: list[asyncssh.SSHClientConnection] = []
    try:
        through = await _opened(dialler, address, opened)
        found = [await _shown(address.target, kind, through) for kind in _KINDS]
    finally:
        for connection in reversed(opened):
            connection.abort()
    keys = [key for key in found if key is not None]
    if not keys:
        raise HostRefused(
            f"{address.target} hangs up, or shows no key that can be used: is there an sshd?"
        )
    return keys


def judge(directory: Path, hop: Hop, shown: Sequence[asyncssh.SSHKey]) -> Judged:
    """Compare what a host shows with what is known; a revoked key is refused at once."""
    trusted = KnownHosts(directory / FILE).trusted(hop)
    for key in shown:
        if key in trusted.revoked:
            raise HostRefused(
                f"The key of {hop}, {key.get_fingerprint()}, is revoked: others may have it."
            )
    kinds = {key.algorithm for key in shown}
    known = [key for key in shown if key in trusted.keys]
    others = [key for key in trusted.keys if key.algorithm in kinds and key not in shown]
    return Judged([*shown], known, others)


def write(
    directory: Path,
    hop: Hop,
    keys: Sequence[asyncssh.SSHKey],
    *,
    instead: Sequence[asyncssh.SSHKey],
) -> None:
    """Write down the keys of a host, instead of some that it had."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = (directory / FILE).resolve()
    with _alone(directory):
        lines = path.read_text("utf-8", "surrogateescape").splitlines() if path.exists() else []
        kept = [left for line in lines if (left := _without(line, hop, instead)) is not None]
        known = KnownHosts(path).trusted(hop).keys
        added = [f"{hop.known_as} {_line(key)}" for key in keys if key not in known]
        _put(path, [*kept, *added])


async def _opened(
    dialler: Dialler, address: Address, opened: list[asyncssh.SSHClientConnection]
) -> asyncssh.SSHClientConnection | None:
    """Log in to the last machine on the way, through those before it."""
    before = address.before
    if before is None:
        return None
    through = await _opened(dialler, before, opened)
    name = str(before.target)
    opened.append(await dialler.open(before, name, through=through, gone=lambda: None))
    return opened[-1]


async def _shown(
    hop: Hop, kind: Sequence[str], through: asyncssh.SSHClientConnection | None
) -> asyncssh.SSHKey | None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await asyncssh.get_server_host_key(
                hop.host, hop.port, tunnel=through, server_host_key_algs=kind, config=None
            )
    except (asyncssh.KeyExchangeFailed, asyncssh.ConnectionLost, ConnectionResetError):
        return None  # it has no key of this kind, and may say so by hanging up
    except TimeoutError:
        raise NotDelivered(f"{hop} has not answered for {_PATIENCE_S:g} s.") from None
    except (OSError, asyncssh.Error) as error:
        said = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise NotDelivered(f"{hop} cannot be reached: {str(said)[:200]}.") from None


def _without(line: str, hop: Hop, keys: Sequence[asyncssh.SSHKey]) -> str | None:
    """A line in which a host has none of these keys any more; `None` if nothing is left of it."""
    words = line.split(None, 2)
    if len(words) < _FIELDS or line.startswith(("#", _MARKER)) or not keys:
        return line
    names = words[0].split(",")
    if hop.known_as not in (name.lower() for name in names) or not _is_one(words, keys):
        return line
    left = [name for name in names if name.lower() != hop.known_as]
    return f"{','.join(left)} {words[1]} {words[2]}" if left else None


def _is_one(words: Sequence[str], keys: Sequence[asyncssh.SSHKey]) -> bool:
    with suppress(asyncssh.KeyImportError):
        return asyncssh.import_public_key(f"{words[1]} {words[2]}") in keys
    return False


def _line(key: asyncssh.SSHKey) -> str:
    kind, value, *_ = key.export_public_key().decode().split()
    return f"{kind} {value}"


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Keep others out of the directory; whoever has died keeps nobody out."""
    held = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _put(path: Path, lines: Sequence[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    made, name = tempfile.mkstemp(prefix=f".{FILE}-", dir=path.parent)
    try:
        with os.fdopen(made, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _belongs_as(path, name)
        os.replace(name, path)  # noqa: PTH105 - both are names
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _belongs_as(path: Path, name: str) -> None:
    """Give a new file the owner and the mode of the one that it replaces."""
    with suppress(OSError):
        stat = path.stat()
        os.chown(name, stat.st_uid, stat.st_gid)
        Path(name).chmod(stat.st_mode & 0o777)
