"""Hosts in another process: what breaks between the two, and what a kill leaves behind."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from onward.channels.frames import delivery_out
from onward.channels.simulated import (
    Effect,
    RemoteSimulatedChannel,
    SimulatedFleet,
    What,
    check_journal,
)
from onward.channels.simulated.wire import packed, read_frame
from onward.errors import DeliveryUnknown, HostRefused, NotDelivered
from tests.channels.virtual_time import VirtualTimeLoop, in_virtual_time, now
from tests.channels.worlds import CALM, delivery, outcome, quiet, served

BOUND_S = 60
WRONG_TYPE = (
    b'{"id": 1, "deliver": {"command_id": "a", "epoch": "1", "command_type": "run", "params": {},'
    b' "timeout_s": 1, "target": {"host_id": 1, "name": "", "address": ""}}}\n'
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="onward-") as name:
        yield Path(name)


@asynccontextmanager
async def _connected(folder: Path) -> AsyncIterator[RemoteSimulatedChannel]:
    """A channel to a fleet that is served over a calm network."""
    path = folder / "fleet"
    async with served(SimulatedFleet(clock=now), CALM, path), RemoteSimulatedChannel(path) as found:
        yield found


@in_virtual_time
async def test_without_a_server_nothing_is_delivered(folder: Path):
    async with RemoteSimulatedChannel(folder / "none") as channel:
        with pytest.raises(NotDelivered, match="start one with"):
            await channel.deliver(delivery(), quiet)
        with pytest.raises(NotDelivered):
            await channel.cancel(delivery())


@in_virtual_time
async def test_a_connection_that_breaks_after_the_request_leaves_it_unknown(folder: Path):
    async def take_and_hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    server = await asyncio.start_unix_server(take_and_hang_up, folder / "fleet")
    async with RemoteSimulatedChannel(folder / "fleet") as channel:
        for _ in range(3):
            with pytest.raises(DeliveryUnknown, match="lost after"):
                await channel.deliver(delivery(), quiet)
        with pytest.raises(DeliveryUnknown):
            await channel.cancel(delivery())
    server.close()


@in_virtual_time
async def test_a_server_that_says_nothing_is_given_up(folder: Path):
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(listen, folder / "fleet")
    async with RemoteSimulatedChannel(folder / "fleet", patience_s=30) as channel:
        began = now()
        with pytest.raises(DeliveryUnknown, match="does not answer"):
            await channel.deliver(delivery(timeout_s=10), quiet)
        assert now() - began == pytest.approx(40)
    server.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"hello\n",
        b"[]\n",
        b'{"id": 1}\n',
        b'{"id": 1, "deliver": {}}\n',
        b'{"id": 1, "cancel": 7}\n',
        b"[" * 100_000 + b"\n",
        b"x" * 5_000_000 + b"\n",
        WRONG_TYPE,
    ],
    ids=lambda nonsense: repr(nonsense[:20]),
)
def test_whoever_talks_nonsense_is_cut_off_and_the_others_are_not(folder: Path, nonsense: bytes):
    @in_virtual_time
    async def scenario():
        async with _connected(folder) as channel:
            slow = asyncio.create_task(outcome(channel, delivery(sleep_s=5)))
            await asyncio.sleep(1)
            reader, writer = await asyncio.open_unix_connection(folder / "fleet")
            writer.write(nonsense)
            with suppress(ConnectionError):  # It may hang up before it has read all.
                assert await reader.read() == b""
            writer.close()
            assert await slow == "done"

    scenario()


@in_virtual_time
async def test_a_request_that_is_too_large_is_not_sent_and_harms_no_other(folder: Path):
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    async with _connected(folder) as channel:
        slow = asyncio.create_task(outcome(channel, delivery(sleep_s=5)))
        await asyncio.sleep(1)
        for params in ({"text": "x" * 5_000_000}, {"text": nested}):
            with pytest.raises(NotDelivered) as caught:
                await channel.deliver(delivery("b", 2, **params), quiet)
            assert not isinstance(caught.value, HostRefused)
        assert await slow == "done"


@in_virtual_time
async def test_the_largest_request_that_is_sent_comes_back_whole(folder: Path):
    """Every character of it grows on the way back, because an echo is JSON within JSON."""
    text = '\\"' * 1_000_000
    lines: list[str] = []
    async with _connected(folder) as channel:
        echo = delivery(command_type="echo", text=text)
        report = await channel.deliver(echo, lambda _, line: lines.append(line))
    assert report.succeeded
    assert len(lines[0]) > 4_000_000


@in_virtual_time
async def test_one_connection_carries_every_call(folder: Path):
    accepted = 0
    fleet = SimulatedFleet(clock=now)
    async with served(fleet, CALM, folder / "fleet"):

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            there, back = await asyncio.open_unix_connection(folder / "fleet")
            await asyncio.gather(_pump(reader, back), _pump(there, writer))

        between = await asyncio.start_unix_server(relay, folder / "relay")
        async with RemoteSimulatedChannel(folder / "relay") as channel:
            ends = await asyncio.gather(
                *(outcome(channel, delivery(host_id=host_id)) for host_id in range(1, 201))
            )
        between.close()
    assert ends == ["done"] * 200
    assert accepted == 1


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


def test_a_connection_is_used_only_in_the_loop_that_made_it(folder: Path):
    """As in a worker that was forked: the parent's connection is there, and open, but not ours."""
    channel = RemoteSimulatedChannel(folder / "fleet")
    loops = [asyncio.Runner(loop_factory=VirtualTimeLoop) for _ in range(2)]
    servers = [served(SimulatedFleet(clock=now), CALM, folder / "fleet") for _ in loops]
    for loop, server in zip(loops, servers, strict=True):
        loop.run(server.__aenter__())
        assert loop.run(outcome(channel, delivery())) == "done"
    for loop, server in zip(loops, servers, strict=True):
        loop.run(server.__aexit__(None, None, None))
        loop.close()


@in_virtual_time
async def test_a_call_that_was_given_up_is_not_answered_any_more(folder: Path):
    async with served(SimulatedFleet(clock=now), CALM, folder / "fleet"):
        reader, writer = await asyncio.open_unix_connection(folder / "fleet")
        attempt = delivery(lines=5, sleep_s=5)
        writer.write(packed({"id": 1, "deliver": delivery_out(attempt)}))
        assert await read_frame(reader) == {"id": 1, "output": ["stdout", "line 1 of 5\n"]}
        writer.write(packed({"id": 1, "forget": True}))
        await asyncio.sleep(60)
        writer.write(packed({"id": 2, "deliver": delivery_out(attempt)}))
        answer = await read_frame(reader)
        assert answer is not None
        assert answer["id"] == 2
        assert answer["report"]["repeated"] is True
        writer.close()


@in_virtual_time
async def test_a_client_that_leaves_is_let_go_at_once_and_its_run_goes_on(folder: Path):
    fleet = SimulatedFleet(clock=now)
    async with served(fleet, CALM, folder / "fleet"):
        reader, writer = await asyncio.open_unix_connection(folder / "fleet")
        writer.write(packed({"id": 1, "deliver": delivery_out(delivery(sleep_s=5))}))
        writer.write_eof()
        began = now()
        assert await reader.read() == b""
        assert now() == began
        writer.close()
        await asyncio.sleep(60)
        assert [effect.what for effect in fleet.journal.effects] == [What.STARTED, What.FINISHED]


@asynccontextmanager
async def _process(folder: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The fleet as a program of its own, ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "onward.channels.simulated",
        "--socket", folder / "fleet", "--journal", folder / "journal", "--hosts", "100", *options,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _until_started(folder: Path, command_id: str) -> None:
    """Wait until the journal tells of a start; it is another process that writes it."""
    async with asyncio.timeout(BOUND_S):
        while (  # noqa: ASYNC110 - nothing in this process could be awaited instead
            f'"command_id":"{command_id}"' not in (folder / "journal").read_text()
        ):
            await asyncio.sleep(0.01)


async def test_a_fleet_that_is_killed_leaves_errors_of_the_right_kind_and_no_second_run(
    folder: Path,
):
    endless = delivery("endless", 2, sleep_s=100_000, timeout_s=100_000)
    async with RemoteSimulatedChannel(folder / "fleet") as channel:
        async with _process(folder) as process:
            assert await outcome(channel, delivery("first", 1)) == "done"
            running = asyncio.create_task(channel.deliver(endless, quiet))
            await _until_started(folder, "endless")
            process.send_signal(signal.SIGKILL)
            with pytest.raises(DeliveryUnknown):
                await running
            await process.wait()
            with pytest.raises(NotDelivered):
                await channel.deliver(endless, quiet)
        async with _process(folder) as process:
            assert await outcome(channel, endless) == "repeated failed"
            assert await outcome(channel, delivery("first", 3)) == "repeated done"
            assert await outcome(channel, delivery("late", 2)) == "HostBusy"
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    lines = (folder / "journal").read_text().splitlines()
    assert check_journal(lines) == []
    assert sum('"started"' in line for line in lines) == 2
    assert not (folder / "fleet").exists()


_WORKER = """
import asyncio, sys
from pathlib import Path
from onward.channels.base import Delivery, Target
from onward.channels.simulated import RemoteSimulatedChannel

asyncio.run(RemoteSimulatedChannel(Path(sys.argv[1])).deliver(
    Delivery("a", 1, Target(1, "", ""), "run", {"sleep_s": 100_000}, 100_000), print))
"""


async def test_a_worker_that_is_killed_leaves_its_run_on_the_host(folder: Path):
    """Its successor, with a newer epoch, finds the host at work and takes its place."""
    async with _process(folder):
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _WORKER, folder / "fleet"
        )
        await _until_started(folder, "a")
        worker.kill()
        await worker.wait()
        async with RemoteSimulatedChannel(folder / "fleet") as channel:
            assert await outcome(channel, delivery("b", 2)) == "HostBusy"
            assert await outcome(channel, delivery("a", 3)) == "done"
    lines = (folder / "journal").read_text().splitlines()
    assert check_journal(lines) == []
    assert [(effect.epoch, effect.what) for effect in map(Effect.of, lines)] == [
        (1, What.STARTED),
        (2, What.REFUSED),
        (1, What.STOPPED),
        (3, What.STARTED),
        (3, What.FINISHED),
    ]


async def test_the_program_puts_the_network_that_was_asked_for_between(folder: Path):
    options = ("--network", "terrible", "--seed", "5", "--speed", "1000")
    async with _process(folder, *options), RemoteSimulatedChannel(folder / "fleet") as channel:
        async with asyncio.timeout(BOUND_S):
            ends = await asyncio.gather(
                *(outcome(channel, delivery(host_id=host_id)) for host_id in range(1, 101))
            )
    # Whether others are done in time is up to the machine; these do not depend on it.
    assert {"NotDelivered", "DeliveryUnknown"} <= set(ends)
