"""The edge: what every request and every answer goes through, whatever the route.

Plain ASGI, and little of it, because it is paid for by every request.
"""

from __future__ import annotations

import re
import time
from typing import Final
from urllib.parse import unquote_to_bytes

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uuid_utils import uuid7

from onward.api import problems
from onward.api.problems import REQUEST_ID, Problem
from onward.api.traffic import TRAFFIC, Traffic

_HEADERS_MAX: Final = 100
_HEADERS_MAX_BYTES: Final = 32 * 1024
_ADDRESS_MAX_BYTES: Final = 16 * 1024
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}").fullmatch

# What an answer says unless its handler said otherwise.
_DEFAULTS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.api")


class Edge:
    """Wraps the application: a request id, limits, headers of every answer, the last resort."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._traffic = Traffic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, and its answer out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        given, refusal = _looked_at(scope)
        request_id = given or str(uuid7())
        method = scope["method"]
        head = method == "HEAD"
        # A copy where the method changes: the server looks at its own to leave the body out.
        if head:
            scope = {**scope, "method": "GET"}
        scope[REQUEST_ID] = request_id
        scope[TRAFFIC] = self._traffic
        out = _Out(send, request_id, head=head)
        # Not unbound: the server runs every request in a context of its own.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            await self._answered(scope, receive, out, refusal)
        finally:
            self._traffic.count(scope, method, out.status, time.perf_counter() - began)

    async def _answered(
        self, scope: Scope, receive: Receive, out: _Out, refusal: Problem | None
    ) -> None:
        try:
            if refusal is not None:
                await _tell(scope, receive, out, refusal)
            else:
                await self._app(scope, receive, out)
        except ClientDisconnect:
            log.debug("the caller left before the whole request was there")
        except Exception as error:
            problem = problems.internal(scope, error)
            if out.started:
                # The answer is half written: only a cut connection says that it is not whole.
                raise
            await _tell(scope, receive, out, problem)


class _Out:
    """Sends an answer with what every answer carries."""

    __slots__ = ("_head", "_request_id", "_send", "ended", "started", "status")

    def __init__(self, send: Send, request_id: str, *, head: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._head = head
        self.started = False
        self.ended = False
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            said = {name for name, _ in headers}
            headers.append((b"x-request-id", self._request_id.encode()))
            headers += [each for each in _DEFAULTS if each[0] not in said]
            message = {**message, "headers": headers}
        elif self._head:
            # The headers were the answer. What follows, perhaps without end, is not sent.
            if self.ended:
                return
            self.ended = True
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)


async def _tell(scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
    await problems.answer(Request(scope), problem)(scope, receive, send)


def _looked_at(scope: Scope) -> tuple[str, Problem | None]:
    """Return the request id that was sent, if it is one, and why the request is refused, if so."""
    request_id, size = "", 0
    headers = scope["headers"]
    if len(headers) > _HEADERS_MAX:
        return "", _too_large(f"There are more than {_HEADERS_MAX} headers.")
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"x-request-id" and _REQUEST_ID(value):
            request_id = value.decode()
    if size > _HEADERS_MAX_BYTES:
        return request_id, _too_large(f"The headers have more than {_HEADERS_MAX_BYTES} bytes.")
    return request_id, _bad_address(scope)


def _bad_address(scope: Scope) -> Problem | None:
    """Refuse an address that is too long, or that is not text which could be stored."""
    query: bytes = scope["query_string"]
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    if len(query) + len(path) > _ADDRESS_MAX_BYTES:
        return Problem(414, "address-too-long", "The address is too long")
    if b"%" in query or b"%" in path:
        try:
            meant = unquote_to_bytes(path + b"?" + query).decode()
        except UnicodeDecodeError:
            return _malformed("It has percent-encoded bytes that are not UTF-8.")
        if "\x00" in meant:
            return _malformed("It has a NUL character.")
    return None


def _malformed(detail: str) -> Problem:
    return Problem(400, "address-malformed", "The address cannot be read", detail)


def _too_large(detail: str) -> Problem:
    return Problem(431, "headers-too-large", "The headers are too large", detail)
