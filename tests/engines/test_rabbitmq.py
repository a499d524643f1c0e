"""With RabbitMQ as its broker, and quorum queues, a Celery worker does the same."""

from __future__ import annotations

import inspect
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from urllib.parse import urlsplit

import pytest
from kombu import Connection
from structlog.testing import capture_logs

from onward.engines.celery import names
from onward.engines.celery.hands import Message
from tests.engines import test_conformance as every_engine
from tests.engines.ground import BOUND_S, Ground, at_work, descendants, ground, until
from tests.engines.rabbit import installed, rabbit
from tests.engines.test_broker_away import broker_at
from tests.proof_table import Tried

pytestmark = pytest.mark.skipif(not installed, reason="not run: needs RabbitMQ (rabbitmq-server)")

# A sample, and all of it where there is time.
SAMPLE = {
    "test_two_jobs_on_the_same_hosts_run_one_after_the_other",
    "test_a_retry_is_not_claimed_before_it_is_due",
    "test_what_runs_is_stopped_on_its_host_when_the_job_is_cancelled",
    "test_the_limit_of_a_job_holds_while_it_runs",
}
ALL = {
    name: test
    for name, test in vars(every_engine).items()
    if name.startswith("test_") and list(inspect.signature(test).parameters) == ["working"]
}


@pytest.fixture(scope="module")
async def there(server: tuple[str, str]) -> AsyncIterator[Ground]:
    with rabbit() as url:
        async with ground("celery", server, broker_url=url) as found, at_work(found):
            yield found


def test_the_sample_is_part_of_what_every_engine_does():
    assert ALL.keys() > SAMPLE


async def test_it_does_what_every_engine_does(there: Ground, tried: Tried, *, proof: bool):
    said: dict[str, Callable[[Ground], Awaitable[None]]] = ALL
    chosen = sorted(ALL if proof else SAMPLE)
    for name in chosen:
        await said[name](there)
    tried("sentences about every engine, over RabbitMQ", len(chosen), "all hold")


async def test_its_queues_are_quorum_queues(there: Ground):
    with Connection(there.broker_url) as connection, connection.channel() as channel:
        for queue in names.QUEUES:
            # Asking for it with what it has not is refused.
            channel.queue_declare(  # type: ignore[attr-defined]  # left out there
                queue, durable=True, auto_delete=False, arguments={"x-queue-type": "quorum"}
            )


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"task": "os.system", "id": "1"}, "no task 'os.system'"),
        ({"task": ["onward.run_shard"], "id": "1"}, "no task ['onward.run_shard']"),
        ({"task": names.RUN_SHARD, "id": "1", "eta": "2999-01-01T00:00:00+00:00"}, "no eta"),
        ({"task": names.RUN_SHARD, "id": "1", "timelimit": [0.001, None]}, "no timelimit"),
        ({"task": names.RUN_SHARD, "id": "1"}, "-1 is not between"),
    ],
)
async def test_what_is_no_hint_is_refused_and_the_worker_goes_on(
    there: Ground, *, headers: dict[str, object], problem: str
):
    processes = descendants(there.workers[0].pid)
    with Connection(there.broker_url) as connection:
        connection.Producer().publish(
            json.dumps([[[-1]], {}, {}]),
            exchange=names.RUNS,
            routing_key=names.RUNS,
            content_type="application/json",
            content_encoding="utf-8",
            headers=headers,
        )

    async def said() -> bool:
        told = there.workers[0].told("message_refused")
        return any(problem in line["problem"] for line in told)

    await until(said, of=there, what=problem)
    assert await there.ended(await there.submit(await there.hosts(2))) == {"SUCCESS": 2}
    assert descendants(there.workers[0].pid) == processes


# `connection.close`, as RabbitMQ says it to everybody before it stops: 320, CONNECTION_FORCED.
CLOSED = bytes.fromhex("01 0000 00000010 000a 0032 0140 05") + b"bye-o" + bytes(4) + b"\xce"


class Way:
    """A way to a broker on which connections can be cut, or be told something by somebody else."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Hang up on everybody."""
        self._all(lambda end: end.shutdown(socket.SHUT_RDWR))

    def say(self, word: bytes) -> None:
        """Say something to whoever has connected here."""
        self._all(lambda end: end.sendall(word))

    def _all(self, deed: Callable[[socket.socket], object]) -> None:
        for end in self._ends:
            with suppress(OSError):  # it has gone by itself
                deed(end)
        self._ends.clear()

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._port))
                self._ends.append(client)
                for ends in ((client, there), (there, client)):
                    threading.Thread(target=self._hand_on, args=ends, daemon=True).start()

    def _hand_on(self, from_: socket.socket, to: socket.socket) -> None:
        with suppress(OSError), from_, to:
            while said := from_.recv(65_536):
                to.sendall(said)


@pytest.mark.parametrize("how", ["cut", "closed"])
@pytest.mark.parametrize("deed", ["send", "waiting"])
async def test_whoever_sends_hints_outlives_a_connection_that_ends(
    there: Ground, monkeypatch: pytest.MonkeyPatch, *, deed: str, how: str
):
    """Once it is connected, the client tells of that in words of its own."""
    way = Way(int(urlsplit(there.broker_url).port or 0))
    url = f"amqp://127.0.0.1:{way.port}//"
    with closing(way), broker_at(url, monkeypatch, patience_s=BOUND_S) as broker:
        deeds = {
            # Nobody takes hints for a job that is not there; it is looked up, and forgotten.
            "send": lambda: broker.send(names.PLAN_JOB, [Message(10**15)]),
            "waiting": broker.waiting,
        }
        deeds[deed]()
        way.cut() if how == "cut" else way.say(CLOSED)
        with capture_logs() as told:
            deeds[deed]()
            deeds[deed]()
            assert broker.waiting() is not None
        assert [line["event"] for line in told] in ([], ["broker_away"])
