"""How somebody calls the services: over a connection that stays open, until the other end is gone.

An answer that does not come is a value as well: whoever asked cannot know whether it was done.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

_PATIENCE_S: Final = 20.0
_CALLS_MAX: Final = 40  # on one connection; the next one is made to the door that is nearest again
_HEAD_END: Final = b"\r\n\r\n"
_NOT_NOW: Final = frozenset({502, 503, 504})


class Answer(NamedTuple):
    """What the API said."""

    status: int
    etag: str
    replayed: bool  # it is the answer that was given before
    body: Any

    @property
    def code(self) -> str:
        """What a refusal is called; nothing, if it is none."""
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""


class Line:
    """One caller's way to any of the services; one call after the other."""

    def __init__(self, doors: list[str], nearest: int, *, key: str) -> None:
        """Call at the `nearest` of the doors, which may be others by the time of the next call."""
        self._doors = doors
        self._nearest = nearest
        self._key = key
        self._calls = 0
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer | None:
        """Call once; nothing, if nobody answered."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await self._call(self._written(method, path, body, headers or {}))
        except (OSError, EOFError, TimeoutError):
            answer = None
        self._calls += 1
        if answer is None or answer.status in _NOT_NOW:
            self.close()
            return None
        return answer

    def close(self) -> None:
        """Hang up."""
        if self._open is not None:
            with suppress(OSError):
                self._open[1].close()
        self._open = None
        self._calls = 0

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Knock at the nearest door, and at the others when nobody is there."""
        count = len(self._doors)
        for at in range(self._nearest, self._nearest + count):
            door = urlsplit(self._doors[at % count])
            with suppress(OSError):
                return await asyncio.open_connection(door.hostname, door.port)
        raise ConnectionError("no service is there")

    async def _call(self, wanted: bytes) -> Answer:
        if self._calls >= _CALLS_MAX:
            self.close()
        self._open = reader, writer = self._open or await self._connected()
        writer.write(wanted)
        head = await reader.readuntil(_HEAD_END)
        first, *lines = head.decode("latin-1").split("\r\n")
        said = {name.lower(): value.strip() for name, _, value in map(_parted, lines)}
        body = await reader.readexactly(int(said.get("content-length", "0")))
        return Answer(
            status=int(first.split()[1]),
            etag=said.get("etag", ""),
            replayed=said.get("idempotency-replayed") == "true",
            body=_read(body),
        )

    def _written(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: demo", f"Authorization: Bearer {self._key}"]
        if body is not None:
            lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(content)}")
        return "\r\n".join(lines).encode() + _HEAD_END + content


def _read(body: bytes) -> Any:  # noqa: ANN401 - as JSON has it
    """Read an answer; whoever answers with anything but JSON is no longer well, and is quoted."""
    try:
        return json.loads(body or b"null")
    except ValueError:
        return body.decode("utf-8", "replace")


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")
