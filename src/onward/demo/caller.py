"""Somebody with a key, who calls the API over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from onward.errors import InvariantBroken, ServerUnreachable

_PATIENCE_S: Final = 60.0
_OK: Final = range(200, 300)


class Answer(NamedTuple):
    """What the API said."""

    status: int
    etag: str
    body: Any


@dataclass(frozen=True, slots=True)
class Caller:
    """A person, as far as the API knows."""

    address: str
    key: str

    async def ask(
        self, method: str, path: str, body: object = None, *, if_match: str | None = None
    ) -> Answer:
        """Call, and return whatever the answer is."""
        headers = {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if if_match is not None:
            headers["If-Match"] = if_match
        text = None if body is None else json.dumps(body)
        return await asyncio.to_thread(self._call, method, path, text, headers)

    async def get(self, path: str) -> Any:  # noqa: ANN401 - as JSON has it
        """Return what there is at a path."""
        return (await self.do("GET", path)).body

    async def do(
        self, method: str, path: str, body: object = None, *, if_match: str | None = None
    ) -> Answer:
        """Call for something that has to succeed."""
        answer = await self.ask(method, path, body, if_match=if_match)
        if answer.status not in _OK:
            raise InvariantBroken(
                f"{method} {path} was answered with {answer.status}: {answer.body}"
            )
        return answer

    def _call(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        # A connection for each call: nobody has to ask whether an old one is still good.
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=_PATIENCE_S)
        try:
            connection.request(method, path, body, dict(headers))
            found = connection.getresponse()
            text = found.read()
        except (OSError, HTTPException) as error:
            raise ServerUnreachable(f"The service at {self.address} is gone ({error}).") from error
        finally:
            connection.close()
        return Answer(found.status, found.headers.get("ETag", ""), json.loads(text or "null"))
