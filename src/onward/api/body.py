"""The body of a request: so much and no more, in time, and strict JSON where JSON is asked for."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from onward.api import strict_json
from onward.api.patience import Patience
from onward.api.problems import Problem

_PARAMETERS: Final = rb'[ \t]*(?:;[ \t]*(?:charset="?utf-8"?)?[ \t]*)*'
_DIGITS = re.compile(rb"[0-9]{1,18}").fullmatch


class MediaType:
    """A kind of body, and how callers may write its name."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.fits = re.compile(re.escape(name) + _PARAMETERS, re.IGNORECASE).fullmatch


JSON: Final = MediaType(b"application/json")
LINES: Final = MediaType(b"application/x-ndjson")  # one JSON value a line


class StrictRequest(Request):
    """A request whose body is read within limits, and parsed strictly."""

    _bytes: bytes | None = None
    _parsed: bool = False
    _value: object = None

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, *, max_bytes: int, patience: Patience
    ) -> None:
        super().__init__(scope, receive, send)
        self._max_bytes = max_bytes
        self._patience = patience

    async def body(self) -> bytes:
        """Return the whole body, or refuse it: 413 if it is too large, 408 if it is too slow."""
        if self._bytes is None:
            self._refuse_announced()
            try:
                with self._patience:
                    self._bytes = self._body = await self._read()
            except TimeoutError:
                raise Problem(
                    408,
                    "body-too-slow",
                    "The body took too long",
                    f"It was not there after {self._patience.seconds:g} seconds.",
                    closing=True,
                ) from None
        return self._bytes

    async def json(self) -> object:
        """Return what the body means."""
        if not self._parsed:
            self._value = strict_json.parse(await self.body())
            self._parsed = True
        return self._value

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Give the body in one piece: there is no way around its limits."""
        yield await self.body()
        yield b""

    def refuse_other_types(self, kind: MediaType = JSON) -> None:
        """Refuse with 415 what does not say that it is of this kind, as it is."""
        kinds = encodings = 0
        for name, value in self.scope["headers"]:
            if name == b"content-type":
                kinds += 1
                if value != kind.name and not kind.fits(value):
                    raise _unsupported(kind, f"Send the body as {_header(kind)}.")
            elif name == b"content-encoding":
                encodings += 1
                if value.lower() != b"identity":
                    raise _unsupported(kind, "Send the body as it is, without Content-Encoding.")
        if kinds != 1:
            raise _unsupported(kind, f"Send the body as {_header(kind)}, said once.")

    def is_of(self, kind: MediaType) -> bool:
        """Say whether the body claims to be of this kind."""
        for name, value in self.scope["headers"]:
            if name == b"content-type":
                return kind.fits(value) is not None
        return False

    async def _read(self) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._max_bytes:
                raise self._too_large()
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks) if len(chunks) > 1 else chunk

    def _refuse_announced(self) -> None:
        """Refuse before reading a body that says how large it is."""
        for name, value in self.scope["headers"]:
            if name == b"content-length" and _DIGITS(value) and int(value) > self._max_bytes:
                raise self._too_large()

    def _too_large(self) -> Problem:
        return Problem(
            413,
            "body-too-large",
            "The body is too large",
            f"A body has at most {self._max_bytes} bytes (ONWARD_BODY_MAX_BYTES).",
            extra={"max_bytes": self._max_bytes},
            closing=True,
        )


def _header(kind: MediaType) -> str:
    return f"`Content-Type: {kind.name.decode()}`"


def _unsupported(kind: MediaType, detail: str) -> Problem:
    return Problem(
        415,
        "type-unsupported",
        "The body is not sent as JSON",
        detail,
        headers={"Accept": kind.name.decode(), "Accept-Encoding": "identity"},
    )
