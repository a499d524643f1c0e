"""The directory that is an agent's own: its key, its journal, and the lock that keeps others out.

Nobody else may look into it. What is written replaces what was there in one step, and is on disk
before it counts.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onward.errors import InvalidInput

_KEY: Final = "key.json"
_ENROLMENT: Final = "enrolment.json"
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Identity:
    """Which host this is, and the key that proves it."""

    host_id: int
    host: str
    generation: int
    key: bytes = field(repr=False)
    token_digest: str = field(default="", repr=False)  # of the token that it was enrolled with


@dataclass(frozen=True, slots=True)
class State:
    """The directory, made if it is not there."""

    folder: Path

    @property
    def journal(self) -> Path:
        """Where the journal is."""
        return self.folder / "journal.sqlite"

    @property
    def temporary(self) -> Path:
        """Where each run gets a folder of its own."""
        return self.folder / "tmp"

    def identity(self) -> Identity | None:
        """The host's key, if it has been enrolled."""
        path = self.folder / _KEY
        try:
            said = json.loads(path.read_text("utf-8"))
            said["key"] = base64.urlsafe_b64decode(said["key"])
            return Identity(**said)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):
            raise InvalidInput(
                "--state", f"{path} holds no key: remove it, and enrol the host with a new token"
            ) from None

    def keep_identity(self, identity: Identity) -> None:
        """Write the host's key down; the enrolment is over."""
        _write(
            self.folder / _KEY,
            {
                "host_id": identity.host_id,
                "host": identity.host,
                "generation": identity.generation,
                "key": base64.urlsafe_b64encode(identity.key).decode(),
                "token_digest": identity.token_digest,
            },
        )
        (self.folder / _ENROLMENT).unlink(missing_ok=True)

    def nonce(self, token_digest: str) -> str:
        """What is said along with a token: the same again after a kill, as only we could know."""
        path = self.folder / _ENROLMENT
        try:
            said = json.loads(path.read_text("utf-8"))
            if said["token_digest"] == token_digest:
                return str(said["nonce"])
        except (OSError, ValueError, TypeError, KeyError):
            pass
        nonce = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
        _write(path, {"token_digest": token_digest, "nonce": nonce})
        return nonce


@contextmanager
def opened(folder: Path) -> Iterator[State]:
    """Open the directory for this process alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & _OTHERS:
            folder.chmod(0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidInput("--state", f"{folder} cannot be used: {error.strerror}") from None
    try:
        _lock(lock, folder)
        state = State(folder)
        state.temporary.mkdir(mode=0o700, exist_ok=True)
        yield state
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InvalidInput(
            "--state", f"another agent uses {folder}: stop it, or give this one another directory"
        ) from None


def _write(path: Path, content: object) -> None:
    beside = path.with_suffix(".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(descriptor)
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
