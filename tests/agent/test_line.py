"""The connection: broken, frozen, lied to, and held all the same."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onward.agent import line
from onward.agent.journal import Journal
from onward.agent.line import Line, ServerClock
from onward.agent.program import Options, run
from onward.agent.running import Limits
from onward.agent.server import server_at
from onward.agent.state import Identity, State
from onward.channels.agent.messages import Ready, Result, Stop, Stopped
from onward.channels.agent.wire import Close
from tests.agent.desk import Desk, enrolled, open_desk
from tests.agent.grounds import attempt, until
from tests.channels.faults import Proxy, Way, faulty
from tests.proof_table import Tried


@asynccontextmanager
async def living(folder: Path, url: str, key: bytes) -> AsyncIterator[asyncio.Event]:
    """An agent in this process, until the block ends."""
    enrolled(State(folder), key)
    options = Options(
        server_at(url),
        folder,
        limits=Limits(grace_s=0.5, processes=None),
        drain_s=0.0,
        pause_max_s=0.05,
        environment=dict(os.environ),
    )
    stopping = asyncio.Event()
    task = asyncio.create_task(run(options, stopping))
    try:
        yield stopping
    finally:
        stopping.set()
        async with asyncio.timeout(60.0):
            await task


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with open_desk() as desk:
        yield desk


def waiting(folder: Path) -> list[Result]:
    journal = Journal(folder / "journal.sqlite")
    try:
        return journal.waiting()
    finally:
        journal.close()


async def test_an_agent_calls_says_that_it_is_ready_and_carries_out_what_it_is_told(
    desk: Desk, tmp_path: Path
):
    async with living(tmp_path / "state", desk.url, desk.key):
        assert await desk.until(Ready) == Ready(0, "0.1.0.dev0")
        await desk.tell(attempt(tmp_path / "effects", "c1", 5, prints="hello"))
        assert (await desk.until(Result)).succeeded
        assert desk.output() == "hello"
        await until(lambda: not waiting(tmp_path / "state"))
    async with living(tmp_path / "state", desk.url, desk.key):
        assert (await desk.until(Ready, 2)).seen == 5


async def test_a_result_that_could_not_be_said_comes_with_its_output_when_the_line_is_back(
    desk: Desk, tmp_path: Path
):
    desk.receipts = False
    async with living(tmp_path / "state", desk.url, desk.key):
        await desk.until(Ready)
        await desk.tell(attempt(tmp_path / "effects", "c1", 1, prints="hello", sleep_s=0.5))
        await until(lambda: desk.output() == "hello")
        await desk.hang_up()
        desk.all.clear()
        assert (await desk.until(Result)).succeeded
        assert desk.output() == "hello"
        desk.receipts = True
        await desk.hang_up()
        await desk.until(Result, 2)
        await until(lambda: not waiting(tmp_path / "state"))


async def test_a_connection_that_is_reset_in_the_middle_of_any_message_is_made_again(
    desk: Desk, tmp_path: Path, proof, tried: Tried
):
    """Cut after so many bytes of either direction, each a step further into the conversation."""
    step = 7 if proof else 173
    cuts = 0
    async with faulty(desk.port) as proxy, living(tmp_path / "state", proxied(proxy), desk.key):
        await desk.until(Ready)
        for way, most in ((Way.UP, 700), (Way.DOWN, 900)):
            for n_bytes in range(1, most, step):
                cuts += 1
                await _cut(desk, proxy, way, n_bytes=n_bytes, effects=tmp_path / "effects")
    effects = (tmp_path / "effects").read_text().splitlines()
    assert len(effects) == len(set(effects)), "nothing has run twice"
    assert len({each for each in effects if each.startswith("finished")}) == cuts
    tried("connections of an agent reset in the middle of a message", cuts)


def proxied(proxy: Proxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


async def _cut(desk: Desk, proxy: Proxy, way: Way, *, n_bytes: int, effects: Path) -> None:
    """Have one command carried out over a connection that breaks; say it again until it is."""
    run_ = attempt(effects, f"c-{way.name}-{n_bytes}", len(desk.of(Result)) + 100)
    run_ = run_._replace(epoch=time.time_ns())
    connections = desk.connections
    proxy.cut_after(n_bytes, way)
    ended = asyncio.create_task(_result_of(desk, run_.cmd))
    while not ended.done():
        await desk.try_to_tell(run_)
        await asyncio.wait({ended, asyncio.create_task(_reconnected(desk, connections))},
                           return_when=asyncio.FIRST_COMPLETED, timeout=30.0)  # fmt: skip
        connections = desk.connections
    assert ended.result().succeeded
    await proxy.restore()


async def _result_of(desk: Desk, cmd: str) -> Result:
    async with asyncio.timeout(60.0):
        while True:
            for result in desk.of(Result):
                if result.cmd == cmd:
                    return result
            await asyncio.sleep(0.005)


async def _reconnected(desk: Desk, before: int) -> None:
    while desk.connections == before:  # noqa: ASYNC110 - only looked at
        await asyncio.sleep(0.005)


async def test_a_connection_that_is_only_half_there_is_noticed(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(line, "_PING_S", 0.3)
    async with faulty(desk.port) as proxy, living(tmp_path / "state", proxied(proxy), desk.key):
        await desk.until(Ready)
        await desk.tell(attempt(tmp_path / "effects", "c1", 1, sleep_s=1.0))
        await until((tmp_path / "effects").exists)
        proxy.strand()
        assert (await desk.until(Result)).succeeded
        assert desk.connections == 2


async def test_what_the_server_says_twice_is_done_once_and_ends_the_connection(
    desk: Desk, tmp_path: Path
):
    async with living(tmp_path / "state", desk.url, desk.key):
        await desk.until(Ready)
        assert desk.session is not None
        assert desk.socket is not None
        frame = desk.session.seal(Stop("c1", 1), time.time())
        await desk.socket.send(frame)
        await desk.socket.send(frame)
        await desk.socket.wait_closed()
        assert desk.socket.close_code == Close.WRONG_SEQ
        assert len(desk.of(Stopped)) <= 1
        await desk.until(Ready, 2)


async def test_a_server_that_has_not_the_key_is_not_listened_to(desk: Desk, tmp_path: Path):
    """It answers a hello that it cannot check, as somebody would who is not the server."""
    mine = b"another key".ljust(32)
    desk.checks = False
    async with living(tmp_path / "state", desk.url, mine):
        await until(lambda: Close.WRONG_MAC in desk.codes)
        assert desk.all == []


async def test_the_clock_of_the_host_may_be_wrong_by_an_hour(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Ahead, so that its hello is good; from then on it goes by the server's."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600.0)
    desk.clock = real
    async with living(tmp_path / "state", desk.url, desk.key):
        await desk.until(Ready)
        await desk.tell(attempt(tmp_path / "effects", "c1", 1))
        assert (await desk.until(Result)).succeeded


def test_pauses_grow_are_drawn_and_are_long_where_only_a_person_helps():
    identity = Identity(1, "h", 1, b"k" * 32)
    held = Line(server_at("http://127.0.0.1:1"), identity, None, clock=ServerClock(), version="1")  # type: ignore[arg-type]  # it never connects
    for failures, most in ((1, 1.0), (3, 4.0), (10, 60.0), (10_000, 60.0)):
        held._failures = failures
        drawn = [held._pause_s((0, "")) for _ in range(500)]
        assert most / 2 < max(drawn) <= most
        assert min(drawn) < most / 2
    for code in (Close.UNKNOWN_HOST, Close.REVOKED, Close.WRONG_MAC, Close.EXPIRED):
        held._failures = 1
        assert held._pause_s((code, "")) >= 30.0


@pytest.mark.parametrize("code", [Close.UNKNOWN_HOST, Close.REVOKED, Close.DISPLACED, 4999])
async def test_why_the_server_ended_the_connection_is_told_with_what_to_do(
    desk: Desk, tmp_path: Path, code: int, capsys: pytest.CaptureFixture[str]
):
    async with living(tmp_path / "state", desk.url, desk.key):
        await desk.until(Ready)
        assert desk.socket is not None
        await desk.socket.close(code, "because")
        told = ""
        async with asyncio.timeout(10.0):
            while "not_connected" not in told:
                await asyncio.sleep(0.01)
                told += capsys.readouterr().out
    expected = line._ADVICE.get(code, "(4999 because)")  # type: ignore[call-overload]  # 4999 is not ours
    assert expected in told


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://onward.example.com", "https"),
        ("ws://192.0.2.1:80", "https"),
        ("ftp://localhost", "takes an address"),
        ("localhost:8470", "takes an address"),
        ("https://user:pw@example.com", "takes an address"),
        ("https://example.com?x=1", "takes an address"),
        ("https://[::1", "takes an address"),
        ("https://example.com:99999", "takes an address"),
        ("", "takes an address"),
    ],
)
def test_an_address_that_is_none_or_leads_over_open_ground_is_refused(url: str, told: str):
    with pytest.raises(ValueError, match=told):
        server_at(url)


@pytest.mark.parametrize(
    ("url", "http", "web_socket"),
    [
        ("https://example.com/", "https://example.com", "wss://example.com/agent"),
        ("wss://example.com/x/", "https://example.com/x", "wss://example.com/x/agent"),
        ("http://127.0.0.5:81", "http://127.0.0.5:81", "ws://127.0.0.5:81/agent"),
        ("http://[::1]:81", "http://[::1]:81", "ws://[::1]:81/agent"),
        ("http://localhost", "http://localhost", "ws://localhost/agent"),
    ],
)
def test_an_address_is_read(url: str, http: str, web_socket: str):
    server = server_at(url)
    assert (server.http, server.web_socket) == (http, web_socket)
    assert (server.tls is not None) is http.startswith("https")
