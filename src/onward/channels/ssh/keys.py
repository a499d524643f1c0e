"""The keys that we log in with: every `id_*` of one directory, each with its certificate.

They are read once, and again when a file has come, gone or changed. A key with a passphrase is left
to an agent: there is nobody to ask.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import asyncssh

from onward.errors import HostRefused

_LOOK_AGAIN_S: Final = 1.0


class _Found(NamedTuple):
    pairs: tuple[asyncssh.SSHKeyPair, ...]  # the certified one first
    problem: str | None = None  # why there is none


class Identities:
    """The keys of a directory, as it is now."""

    def __init__(self, directory: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self.directory = directory
        self._now = now
        self._look_at = 0.0
        self._seen: dict[str, tuple[int, ...]] | None = None
        self._found: dict[str, _Found] = {}

    def pairs(self, name: str | None = None) -> list[asyncssh.SSHKeyPair]:
        """The keys to try, in the order of their names, or the one of this name."""
        self._refresh()
        found = self._found.values() if name is None else [self._named(name)]
        return _own([pair for each in found for pair in each.pairs])

    def problems(self) -> list[str]:
        """Why a key of the directory is not tried, one sentence for each."""
        return [found.problem for found in self._found.values() if found.problem]

    def _named(self, name: str) -> _Found:
        found = self._found.get(name)
        if found is None:
            # Any file of the directory may be named, not only those that are tried by themselves.
            path = self.directory / name
            if not path.is_file():
                raise HostRefused(
                    f"The address names the key {name}: put it into {self.directory}."
                )
            found = _read(path)
        if found.problem:
            raise HostRefused(found.problem)
        return found

    def _refresh(self) -> None:
        now = self._now()
        if self._seen is not None and now < self._look_at:
            return
        self._look_at = now + _LOOK_AGAIN_S
        seen = dict(_files(self.directory))
        if seen != self._seen:
            private = [name for name in seen if not name.endswith(".pub")]
            self._found = {name: _read(self.directory / name) for name in sorted(private)}
            self._seen = seen


def _files(directory: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    try:
        for path in directory.glob("id_*"):
            stat = path.stat()
            yield path.name, (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except OSError:
        return


def _read(path: Path) -> _Found:
    try:
        certificate = path.with_name(f"{path.name}-cert.pub")
        certificates = [str(certificate)] if certificate.is_file() else []
        return _Found(tuple(asyncssh.load_keypairs([str(path)], certlist=certificates)))
    except asyncssh.KeyEncryptionError:
        return _Found((), f"The key {path.name} has a passphrase: add it to an agent.")
    except (asyncssh.KeyImportError, ValueError) as error:
        if "assphrase" in str(error):
            return _Found((), f"The key {path.name} has a passphrase: add it to an agent.")
        return _Found((), f"{path.name} is no private key that can be used: {error}.")
    except OSError as error:
        return _Found((), f"The key {path.name} cannot be read: {error.strerror}.")


def _own(pairs: Sequence[asyncssh.SSHKeyPair]) -> list[asyncssh.SSHKeyPair]:
    """Copies for one connection, which chooses for each of them how it signs."""
    return [copy.copy(pair) for pair in pairs]
