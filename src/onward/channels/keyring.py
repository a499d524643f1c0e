"""The keys of hosts, derived from one secret: none of them is kept anywhere.

A host has a key of its own for each generation. To take a key from a host, give it another
generation: what the former key signs is worth nothing from then on.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from onward.errors import InvalidInput
from onward.settings import Settings

KEY_BYTES: Final = 32
FILE: Final = "master-key"

_usable = re.compile(r"[!-~]{32,1024}").fullmatch


class KeyRing:
    """Makes the key of a host from the secret that only the server's processes know."""

    def __init__(self, master: bytes) -> None:
        self._master = master

    def __repr__(self) -> str:
        return "KeyRing(...)"

    def agent_key(self, host_id: int, generation: int) -> bytes:
        """The key that an agent and the server sign their messages with."""
        return self._derived(f"onward agent {host_id} {generation}")

    def node_key(self, host_id: int, generation: int) -> bytes:
        """The key that a node and the server sign their messages with."""
        return self._derived(f"onward node {host_id} {generation}")

    def _derived(self, what: str) -> bytes:
        return hmac.digest(self._master, what.encode(), hashlib.sha256)


def key_ring(settings: Settings) -> KeyRing:
    """The keys that the settings' secret makes; without one, the first to ask makes it up."""
    if settings.master_key is not None:
        return KeyRing(_checked("ONWARD_MASTER_KEY", settings.master_key.get_secret_value()))
    path = settings.data_dir / FILE
    try:
        return KeyRing(_checked(str(path), _found(path)))
    except OSError as error:
        raise InvalidInput(
            "ONWARD_DATA_DIR", f"the master key cannot be kept there ({error.strerror})"
        ) from error


def _checked(field: str, key: str) -> bytes:
    if not _usable(key):
        raise InvalidInput(field, "takes at least 32 printable ASCII characters without spaces")
    return key.encode()


def _found(path: Path) -> str:
    """Read the file, or make it; of many who make it at once, one does, and all read the same."""
    with suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(KEY_BYTES)}\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
    return path.read_text(encoding="ascii").strip()
