"""Secrets that are planted, and the search for them in whatever form they may have been told."""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import asyncpg

_LOOK_S = 0.02


class Canaries:
    """Every secret that there is, by what it is for."""

    def __init__(self) -> None:
        self.planted: dict[str, frozenset[str]] = {}  # each in every form
        self.values: dict[str, str] = {}

    def make(self, name: str, *, before: str = "") -> str:
        """Make up a secret and remember it."""
        # With characters that an address, JSON and a shell would each write otherwise.
        value = f"{before}canary/{secrets.token_hex(16)}+"
        return self.know(name, value)

    def know(self, name: str, value: str) -> str:
        """Remember a secret that somebody else has made."""
        assert len(value) >= 16, f"{name} could be found by chance"
        self.values[name] = value
        self.planted[name] = frozenset(_forms(value.encode()) | {value})
        return value

    def know_bytes(self, name: str, value: bytes) -> None:
        """Remember a key."""
        self.planted[name] = frozenset(_forms(value))

    def found(self, text: str) -> list[str]:
        """Name the secrets that are in a text."""
        return [name for name, forms in self.planted.items() if any(form in text for form in forms)]


def _forms(value: bytes) -> set[str]:
    forms = {
        value.hex(),
        base64.b64encode(value).decode().rstrip("="),
        base64.urlsafe_b64encode(value).decode().rstrip("="),
        repr(value)[2:-1],
        quote(value),
        quote(value, safe=""),
        json.dumps(value.decode("latin-1"))[1:-1],
    }
    return {form for form in forms if form}


class Onlooker:
    """Somebody on the same machine, who reads what everybody can: the arguments of processes."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._over = threading.Event()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look all the time."""
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            for process in Path("/proc").iterdir():
                if process.name.isdigit():
                    self.seen.add(_arguments(process))


def _arguments(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""  # It has ended.


# Where secrets have to be, because something is made of them later; and where it is written down
# what a node has said, which may be what it was told. The API shows them without.
HOLD_SECRETS = {
    "jobs": ("params", "asked"),
    "commands": ("params", "result", "late_result", "error_message"),
    "timeline": ("detail",),
    "hubs": ("secret",),
}


async def dumped(url: str) -> dict[str, list[str]]:
    """Every row of every table as JSON, without the columns that have to hold secrets."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'onward'::regnamespace "
            "AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1"
        )
        return {
            name: [
                row[0]
                for row in await connection.fetch(
                    f"SELECT (to_jsonb(t) - $1::text[])::text FROM onward.{name} t",  # noqa: S608 - names of tables
                    list(HOLD_SECRETS.get(name, ())),
                )
            ]
            for (name,) in tables
        }
    finally:
        await connection.close()
