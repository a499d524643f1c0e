"""The keys of hosts that somebody has looked at and accepted, as OpenSSH writes them down.

1. A host is who it says if it shows a key that stands beside its name, or a certificate of an
   authority (`@cert-authority`) that does.
2. A key that is `@revoked` for a name is refused, whatever else says that it is good.
3. Only the name in the address counts. What that name resolves to may be somebody else's word.
4. A host at another port than 22 is looked for as `[host]:port`, and then without the port.

The file is read once, and again when it has changed. A line is read when a host asks for it:
a file of ten thousand hosts costs nothing but its lines.
"""

from __future__ import annotations

import binascii
import fnmatch
import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import asyncssh

from onward.channels.ssh.address import Hop
from onward.errors import HostRefused

_MARKERS: Final = frozenset({"@cert-authority", "@revoked"})
_ASKED_MAX: Final = 100_000  # answers that are kept


class Trusted(NamedTuple):
    """What is known about a host."""

    keys: tuple[asyncssh.SSHKey, ...] = ()
    authorities: tuple[asyncssh.SSHKey, ...] = ()
    revoked: tuple[asyncssh.SSHKey, ...] = ()


class _Line(NamedTuple):
    number: int
    marker: str
    names: str
    key: str


class KnownHosts:
    """The file of known hosts, as it is now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._by_name: dict[str, list[_Line]] = {}
        self._others: list[_Line] = []  # with patterns or hashed names: each has to be tried
        self._answers: dict[str, Trusted] = {}

    def trusted(self, hop: Hop) -> Trusted:
        """What is known about this host; nothing if nobody has accepted a key of it."""
        self._refresh()
        found = self._answers.get(hop.known_as)
        if found is None:
            found = self._trusted(hop.known_as)
            if not (found.keys or found.authorities) and hop.known_as != hop.host:
                bare = self._trusted(hop.host)
                found = bare._replace(revoked=bare.revoked + found.revoked)
            if len(self._answers) >= _ASKED_MAX:
                self._answers.clear()
            self._answers[hop.known_as] = found
        return found

    def _refresh(self) -> None:
        try:
            stat = self.path.stat()
        except OSError:
            self._load(None, "")
            return
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            try:
                text = self.path.read_text("utf-8", errors="surrogateescape")
            except OSError as error:
                raise HostRefused(
                    f"{self.path} cannot be read: {error.strerror}; without it no host is known."
                ) from None
            self._load(seen, text)

    def _load(self, seen: tuple[int, ...] | None, text: str) -> None:
        self._seen = seen
        self._by_name, self._others, self._answers = {}, [], {}
        for line in _lines(text):
            if any(each in line.names for each in "*?!|"):
                self._others.append(line)
            else:
                for name in line.names.lower().split(","):
                    self._by_name.setdefault(name, []).append(line)

    def _trusted(self, name: str) -> Trusted:
        lines = [*self._by_name.get(name, ())]
        lines += [line for line in self._others if _meant(line.names, name)]
        by_marker: dict[str, list[asyncssh.SSHKey]] = {"": [], **{each: [] for each in _MARKERS}}
        for line in lines:
            key = self._key(line)
            if key is not None:
                by_marker[line.marker].append(key)
        return Trusted(
            tuple(by_marker[""]), tuple(by_marker["@cert-authority"]), tuple(by_marker["@revoked"])
        )

    def _key(self, line: _Line) -> asyncssh.SSHKey | None:
        try:
            return asyncssh.import_public_key(line.key)
        except asyncssh.KeyImportError:
            # A kind of key that we cannot use is nothing to trust; one that is not to be trusted
            # must not be passed over.
            if line.marker == "@revoked":
                raise HostRefused(
                    f"Line {line.number} of {self.path} revokes a key that cannot be read: "
                    "correct the line."
                ) from None
            return None


def _lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        marker = ""
        if words[0].startswith("@"):
            marker, *words = line.split(None, 3)
            # What a marker of the future says is not known, so the line trusts nobody.
            if marker not in _MARKERS:
                continue
        if len(words) == 3:  # noqa: PLR2004 - names, kind of key, key
            yield _Line(number, marker, words[0], f"{words[1]} {words[2]}")


def _meant(names: str, name: str) -> bool:
    """Whether a list of patterns means a host; one that is taken out (`!`) is not meant."""
    if names.startswith("|"):
        return _hashed(names, name)
    meant = False
    for pattern in names.lower().split(","):
        if fnmatch.fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            meant = True
    return meant


def _hashed(names: str, name: str) -> bool:
    try:
        _, kind, salt, digest = names.split("|")
        if kind != "1":
            return False
        made = hmac.digest(binascii.a2b_base64(salt), name.encode(), "sha1")
        return hmac.compare_digest(made, binascii.a2b_base64(digest))
    except ValueError:
        return False
