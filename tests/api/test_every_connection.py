"""What comes over the wire: whatever it is, it is answered or hung up on, and the next is served.

The server is the one that `onward up` starts, on a socket of this process; the client writes bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import pytest

from onward.api.app import create_app
from onward.api.events import end_streams
from onward.service import heads
from onward.service.listening import listening, serve
from onward.service.serving import services as services_for
from onward.wiring import Onward
from tests.api.judge import Judge
from tests.conftest import settings_for
from tests.proof_table import Tried

BOUND_S: Final = 30.0
LIVE: Final = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"


class Told(NamedTuple):
    """An answer as it came over the wire."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


class Hung(Exception):
    """The other side has closed the connection."""


@dataclass
class Line:
    """A connection, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, *pieces: bytes) -> None:
        """Send what the other side is still there to hear."""
        for piece in pieces:
            self.writer.write(piece)
            try:
                await self.writer.drain()
            except ConnectionError:
                return

    async def answer(self, method: str = "GET") -> Told:
        """Read one answer, and not a byte of the next."""
        async with asyncio.timeout(BOUND_S):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
                first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
                said = dict(line.lower().split(b": ", 1) for line in lines)
                status = int(first.split(b" ")[1])
                body = b"" if method == "HEAD" else await self._body(status, said)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise Hung from error
        return Told(status, said, body)

    async def _body(self, status: int, said: Mapping[bytes, bytes]) -> bytes:
        if status in {100, 204, 304}:
            return b""
        if b"content-length" in said:
            return await self.reader.readexactly(int(said[b"content-length"]))
        return await self._chunk() if b"transfer-encoding" in said else await self.reader.read()

    async def _chunk(self) -> bytes:
        """The first piece of an answer that may have no end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return await self.reader.readexactly(size + 2)

    async def ended(self) -> bool:
        """Wait until the other side has said everything, and hangs up."""
        async with asyncio.timeout(BOUND_S):
            with suppress(ConnectionError):
                await self.reader.read()
        return True

    async def is_closed(self) -> bool:
        """Wait until the other side hangs up; false if it says more instead."""
        async with asyncio.timeout(BOUND_S):
            try:
                return not await self.reader.read(1)
            except ConnectionError:
                return True


@dataclass(frozen=True)
class Service:
    """A server that listens, and somebody who knows what to ask it."""

    port: int
    judge: Judge

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        """Call it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Line(reader, writer)
        finally:
            writer.transport.abort()

    async def lives(self) -> None:
        """Make sure that whoever calls next is served."""
        async with self.line() as line:
            await line.say(LIVE)
            assert (await line.answer()).status == 200


@pytest.fixture(scope="module")
async def service(shared: Onward, *, proof: bool) -> AsyncIterator[Service]:
    """A service with little patience for bodies."""
    settings = settings_for(str(shared.database_url), body_timeout_s=0.3, body_max_bytes=100_000)
    services = services_for(shared, settings=settings)
    app = create_app(services)
    stopping, ready = asyncio.Event(), asyncio.Event()
    with listening("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(
            serve(
                app,
                listener,
                stopping,
                access_log=False,
                ready=ready.set,
                hang_up=partial(end_streams, app),
            )
        )
        await ready.wait()
        judge = await Judge.made(app, services, proof=proof)
        yield Service(int(listener.address.rpartition(":")[2]), judge)
        stopping.set()
        await asyncio.wait_for(serving, BOUND_S)


# What is no request, or one that could be read in two ways.
NO_REQUEST: Final[Mapping[str, bytes]] = {
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
    "NUL": b"\x00" * 1_000,
    "text": b"hello, is anybody there?\r\n\r\n",
    "a method alone": b"GET\r\n\r\n",
    "a strange version": b"GET /health/live HTTP/1.99\r\n\r\n",
    "no method": b" /health/live HTTP/1.1\r\n\r\n",
    "a made-up method": b"BREW /health/live HTTP/1.1\r\n\r\n",
    "a method in small letters": b"get /health/live HTTP/1.1\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:5432 HTTP/1.1\r\nHost: a\r\n\r\n",
    "no path": b"GET health/live HTTP/1.1\r\n\r\n",
    "no path, absolute": b"GET http://elsewhere HTTP/1.1\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
    "a control character in the path": b"GET /\x01 HTTP/1.1\r\n\r\n",
    "a space in the path": b"GET /health/ live HTTP/1.1\r\n\r\n",
    "bare line ends": b"GET /health/live HTTP/1.1\nHost: a\n\n",
    "a header without a colon": b"GET /health/live HTTP/1.1\r\nnothing\r\n\r\n",
    "a header without a name": b"GET /health/live HTTP/1.1\r\n: a\r\n\r\n",
    "a space after a name": b"GET /health/live HTTP/1.1\r\nHost : a\r\n\r\n",
    "a folded header": b"GET /health/live HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
    "NUL in a header": b"GET /health/live HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    "NUL in a name": b"GET /health/live HTTP/1.1\r\nX\x00: a\r\n\r\n",
    "two lengths": b"POST /hosts HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a length twice": b"POST /hosts HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "a negative length": b"POST /hosts HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "a length with a sign": b"POST /hosts HTTP/1.1\r\nContent-Length: +1\r\n\r\na",
    "a length without end": b"POST /hosts HTTP/1.1\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n",
    "length and chunks": b"POST /hosts HTTP/1.1\r\nContent-Length: 1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks that are not the last": b"POST /hosts HTTP/1.1\r\n"
    b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "no size of a chunk": b"POST /hosts HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "a chunk without end": b"POST /hosts HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"f" * 40
    + b"\r\n",
}

# Requests that are unusual, and what may answer them.
UNUSUAL: Final[Mapping[str, tuple[bytes, set[int]]]] = {
    "HTTP/0.9": (b"GET /health/live\r\n\r\n", {200, 400}),
    "HTTP/1.0": (b"GET /health/live HTTP/1.0\r\n\r\n", {200}),
    "empty lines before": (b"\r\n\r\n" + LIVE, {200}),
    "absolute": (b"GET http://elsewhere/health/live HTTP/1.1\r\nHost: a\r\n\r\n", {200}),
    "about the server": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", {400, 404}),
    "options": (b"OPTIONS /hosts HTTP/1.1\r\nHost: a\r\n\r\n", {204}),
    "a method of others": (b"PROPFIND /hosts HTTP/1.1\r\nHost: a\r\n\r\n", {405}),
    "a loop back": (b"TRACE /hosts HTTP/1.1\r\nHost: a\r\n\r\n", {405}),
    "two slashes": (b"GET //health/live HTTP/1.1\r\nHost: a\r\n\r\n", {404}),
    "up the tree": (b"GET /docs/static/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", {404}),
    "a fragment": (b"GET /health/live#a HTTP/1.1\r\nHost: a\r\n\r\n", {200, 400}),
    "no escape": (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", {404}),
    "no UTF-8": (b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "NUL": (b"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "two hosts": (b"GET /health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", {200, 400}),
    "a long path": (b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", {414}),
    "a path of a megabyte": (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n", {400, 414, 431}),
    "10,000 headers": (b"GET /me HTTP/1.1\r\n" + b"x: y\r\n" * 10_000 + b"\r\n", {431}),
    "a header of a megabyte": (b"GET /me HTTP/1.1\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n", {431}),
    "a name of a megabyte": (b"GET /me HTTP/1.1\r\n" + b"y" * 1_000_000 + b": x\r\n\r\n", {431}),
    "an upgrade": (
        b"GET /health/live HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        {400},
    ),
    "a WebSocket where there is none": (
        (
            b"GET /health/live HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        ),
        {403},
    ),
    "an upgrade to HTTP/2": (
        b"GET /health/live HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        {200},
    ),
}


async def test_what_is_no_request_is_refused_or_hung_up_on(service: Service, tried: Tried):
    for case, said in NO_REQUEST.items():
        async with service.line() as line:
            await line.say(said)
            try:
                assert 400 <= (await line.answer()).status < 500, case
            except Hung:
                continue
            assert await line.is_closed(), case
        await service.lives()
    tried("no requests at all", len(NO_REQUEST))


async def test_what_is_unusual_is_answered_all_the_same(service: Service, tried: Tried):
    for case, (said, statuses) in UNUSUAL.items():
        async with service.line() as line:
            await line.say(said)
            try:
                answer = await line.answer()
            except Hung:
                # Whoever sends more than is read may not get to see the answer.
                assert 431 in statuses, case
                continue
            assert answer.status in statuses, (case, answer)
        await service.lives()
    tried("unusual requests", len(UNUSUAL))


# Heads


async def test_a_head_without_end_is_not_kept(service: Service):
    """Nobody has seen a key yet, and nobody else would stop it."""
    for piece in (b"x: y\r\n" * 10_000, b"y" * 60_000):
        async with service.line() as line:
            await line.say(b"GET /me HTTP/1.1\r\nx: ", *[piece] * 100)
            # The answer may be overtaken by what is still being sent.
            with suppress(Hung):
                assert (await line.answer()).status == 431
            assert await line.is_closed()
        await service.lives()


async def test_many_requests_at_once_are_no_head_without_end(service: Service):
    many = heads.MAX_BYTES // len(LIVE) + 1
    async with service.line() as line:
        saying = asyncio.create_task(line.say(LIVE * many))
        for _ in range(many):
            assert (await line.answer()).status == 200
        await saying


@pytest.mark.parametrize("begun", [b"\r\n", b"GET /me HTT", b"GET /me HTTP/1.1\r\nHost: a\r\n"])
async def test_whoever_does_not_end_a_head_is_hung_up_on(
    service: Service, monkeypatch: pytest.MonkeyPatch, begun
):
    monkeypatch.setattr(heads, "TIMEOUT_S", 0.1)
    async with service.line() as line:
        assert await line.is_closed()
    for before in (b"", LIVE):
        async with service.line() as line:
            await line.say(before)
            if before:
                assert (await line.answer()).status == 200
            await line.say(begun)
            assert await line.is_closed()
    await service.lives()


# Bodies


def post(judge: Judge, *headers: bytes) -> bytes:
    """The head of a request that makes a host."""
    said = [
        b"POST /hosts HTTP/1.1",
        b"Host: a",
        b"Content-Type: application/json",
        b"Authorization: Bearer " + judge.key.encode(),
        *headers,
    ]
    return b"\r\n".join(said) + b"\r\n\r\n"


async def test_a_body_that_is_slow_is_refused_in_time(service: Service):
    async def refused(said: bytes) -> None:
        async with service.line() as line:
            await line.say(said)
            answer = await line.answer()
            assert (answer.status, answer.headers[b"connection"]) == (408, b"close")
            assert await line.is_closed()

    announced = post(service.judge, b"Content-Length: 100")
    chunked = post(service.judge, b"Transfer-Encoding: chunked")
    await asyncio.gather(
        refused(announced),
        refused(announced + b'{"name": "slow'),
        refused(chunked + b'5\r\n{"nam\r\n'),
    )
    await service.lives()


async def test_a_body_that_is_too_large_is_refused_before_it_is_there(service: Service):
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    for said in (
        [post(service.judge, b"Content-Length: 100001")],
        [post(service.judge, b"Content-Length: 100001", b"Expect: 100-continue")],
        [post(service.judge, b"Content-Length: 100001"), b" " * 100_001],
        [post(service.judge, b"Transfer-Encoding: chunked"), *[chunk] * 3],
    ):
        async with service.line() as line:
            await line.say(*said)
            answer = await line.answer()
            assert (answer.status, answer.headers[b"connection"]) == (413, b"close")
            line.writer.write_eof()
            assert await line.is_closed()
        await service.lives()


async def test_whoever_leaves_in_the_middle_has_changed_nothing(service: Service):
    whole = post(service.judge, b"Content-Length: 16") + b'{"name": "gone"}'
    await service.judge.world.renew()
    for length in range(0, len(whole), 7):
        async with service.line() as line:
            await line.say(whole[:length])
    await service.lives()
    assert await service.judge.world.changed() == []
    # All of it is a host; so it was only the end that was missing.
    async with service.line() as line:
        await line.say(whole)
        assert (await line.answer()).status == 201


async def test_whoever_asks_to_go_on_with_a_body_is_told_to(service: Service):
    body = b'{"name": "patient"}'
    async with service.line() as line:
        await line.say(post(service.judge, b"Content-Length: 19", b"Expect: 100-continue"))
        assert (await line.answer()).status == 100
        await line.say(body)
        assert (await line.answer()).status == 201


# One after the other


async def test_requests_that_come_together_are_answered_in_their_order(service: Service):
    body = b'{"name": "first"}'
    made = post(service.judge, b"Content-Length: 17") + body
    unknown = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
    async with service.line() as line:
        await line.say(made + made + unknown + LIVE)
        statuses = [(await line.answer()).status for _ in range(4)]
        assert statuses == [201, 409, 404, 200]
    async with service.line() as line:
        await line.say(LIVE + LIVE + b"garbage\r\n\r\n")
        assert await line.ended()
    await service.lives()


async def test_what_is_left_of_a_refused_body_is_no_request(service: Service):
    """A body that nobody reads must not be taken for whoever comes next on this connection."""
    inside = LIVE * 3
    head = b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(inside)
    async with service.line() as line:
        await line.say(head + inside + b"GET /docs HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await line.answer()).status == 404
        after = await line.answer()
        assert (after.status, after.headers[b"content-type"][:9]) == (200, b"text/html")


async def test_head_is_get_without_its_body_on_every_route(service: Service, tried: Tried):
    asked = 0
    for operation in service.judge.operations():
        if operation.method != "GET":
            continue
        asked += 1
        target = service.judge.fresh(operation).target
        rest = b" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + service.judge.key.encode()
        async with service.line() as line:
            # Both on one line: a byte too many after the first would garble the second.
            await line.say(b"HEAD " + target + rest + b"\r\n\r\n")
            head = await line.answer("HEAD")
            await line.say(b"GET " + target + rest + b"\r\n\r\n")
            got = await line.answer()
        assert head.status == got.status, operation
        assert lasting(head) == lasting(got), operation
        assert got.body, operation
    await service.lives()
    tried("HEAD on every route", asked)


def lasting(answer: Told) -> dict[bytes, bytes]:
    """The headers that say the same each time; how long figures are may differ."""
    moving = {b"date", b"x-request-id", b"transfer-encoding"}
    if answer.headers.get(b"content-type", b"").startswith(b"text/plain"):
        moving.add(b"content-length")
    return {name: value for name, value in answer.headers.items() if name not in moving}
