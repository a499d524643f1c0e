"""The measurements over HTTP: small, and only as to whether they measure what they say."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from onward.bench import callbacks, webhook
from onward.bench.calling import HOST, request
from onward.bench.load import Loaded, load
from onward.errors import InvariantBroken
from tests.bench.results import well_formed


def test_the_webhook_is_measured_beside_the_bare_insert():
    sizes = webhook.Sizes(hosts=5, calls=3, rounds=1)
    (result,) = webhook.webhook(lambda _: None, sizes)
    assert "5 hosts" in result.name
    assert "bare INSERT" in str(result.against)
    assert well_formed(result)


def test_callbacks_are_measured_beside_a_route_that_does_nothing():
    told: list[str] = []
    sizes = callbacks.Sizes(commands=16, connections=4, rounds=1)
    (result,) = callbacks.callbacks(told.append, sizes)
    assert "4 connections" in result.name
    assert well_formed(result)
    assert len(told) == 3  # the start, the round that warms up, and the one that counts


def test_callbacks_that_were_refused_are_not_counted():
    sizes = callbacks.Sizes(commands=1, connections=1, rounds=1)
    assert callbacks._rate(Loaded(2.0, {"200": 4}), sizes) == 2.0
    for statuses in ({"200": 3}, {"200": 3, "404": 1}, {"404": 4}):
        with pytest.raises(InvariantBroken):
            callbacks._rate(Loaded(2.0, statuses), sizes)


async def test_a_load_counts_every_answer_also_in_pieces():
    """One request at a time on each connection; answers come in two pieces, every third a 503."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                asked.append(await reader.readexactly(len(wanted)))
                status = b"503 Busy" if len(asked) % 3 == 0 else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-")
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(b"Length: 2\r\n\r\n{}")
        writer.close()

    wanted = request("/x", {"a": 1}, key="k" * 40)
    server = await asyncio.start_server(answer, HOST, 0)
    async with server:
        loaded = await load(server.sockets[0].getsockname()[1], [[wanted] * 4, [wanted] * 5])
    assert loaded.statuses == {"200": 6, "503": 3}
    assert loaded.seconds > 0
    assert asked == [wanted] * 9
