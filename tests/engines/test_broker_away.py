"""Whoever sends hints outlives every broker that takes none: the hint is given up, and told of.

A worker's loops die of what they do not know, and its process with them. So whatever a broker that
is away, busy, full or no broker at all makes the client raise has to be known.
"""

from __future__ import annotations

import importlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from celery import Celery
from structlog.testing import capture_logs

from onward.engines.celery import names
from onward.engines.celery.hands import Message
from onward.engines.celery.process import CeleryBroker
from tests.mortal_valkey import mortal_valkey
from tests.proof_table import Tried

HINT = [Message(1)]
# The module: by its name, the package gives the application that is made in it.
application = importlib.import_module("onward.engines.celery.app")

# What somebody says to everything, at an address where a broker should be.
SAID: dict[str, bytes | None] = {
    "hangs up": b"",
    "says nothing": None,
    "speaks another language": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "is loading": b"-LOADING Valkey is loading the dataset in memory\r\n",
    "is full": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "only lets read": b"-READONLY You can't write against a read only replica.\r\n",
    "cannot write to its disk": b"-MISCONF Errors writing to the append only file\r\n",
    "has lost its master": b"-MASTERDOWN Link with MASTER is down\r\n",
    "does not know us": b"-NOAUTH Authentication required.\r\n",
    "does not let us": b"-NOPERM this user has no permissions to run the command\r\n",
    "is busy": b"-BUSY Valkey is busy running a script\r\n",
}


class Way(socketserver.BaseRequestHandler):
    """Hands on what is said to a Valkey and back, and after a while says something else itself."""

    valkey: str | None
    good: int  # messages that are handed on, over each connection
    says: bytes | None

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as there:
            if self.valkey is not None:
                there.connect(self.valkey)
            handed_on = 0
            while (said := self.request.recv(65_536)) and (
                handed_on < self.good or self.says != b""
            ):
                handed_on += 1
                if handed_on <= self.good:
                    there.sendall(said)
                    self.request.sendall(there.recv(65_536))
                elif self.says is not None:
                    self.request.sendall(self.says)


class Server(socketserver.ThreadingTCPServer):
    """Somebody at a port."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Keep quiet: a client that hangs up in the middle is no news."""


@contextmanager
def stranger(says: bytes | None, *, good: int = 0, valkey: str | None = None) -> Iterator[int]:
    """Somebody who says this at a port, once so many messages were well answered by a Valkey."""
    handler = type("Saying", (Way,), {"valkey": valkey, "good": good, "says": says})
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def broker_at(
    url: str, monkeypatch: pytest.MonkeyPatch, *, patience_s: float = 0.1
) -> Iterator[CeleryBroker]:
    """The broker of an application that is set up like ours, at another address."""
    monkeypatch.setenv("ONWARD_BROKER_URL", url)
    monkeypatch.setattr(application, "_SOCKET_S", patience_s)
    with Celery("test", set_as_current=False) as app:
        app.add_defaults(application.configuration)
        app.conf.broker_connection_timeout = patience_s
        yield CeleryBroker(app)


def given_up(broker: CeleryBroker) -> list[str]:
    """What is told when a hint is sent and the queues are asked for; neither may raise."""
    with capture_logs() as told:
        broker.send(names.PLAN_JOB, HINT)
        assert broker.waiting() is None
    assert {line["event"] for line in told} == {"broker_away"}
    return [line["problem"] for line in told]


@pytest.mark.parametrize(
    ("scheme", "what"),
    [
        *(("redis", what) for what in SAID),
        *(("amqp", what) for what in ("hangs up", "says nothing", "speaks another language")),
    ],
)
def test_a_hint_for_somebody_who_is_no_broker_is_given_up(
    monkeypatch: pytest.MonkeyPatch, *, scheme: str, what: str
):
    with (
        stranger(SAID[what]) as port,
        broker_at(f"{scheme}://127.0.0.1:{port}//", monkeypatch) as broker,
    ):
        assert len(given_up(broker)) == 2


@pytest.mark.parametrize("what", ["hangs up", "is full"])
def test_a_broker_that_fails_in_the_middle_costs_the_hint_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tried: Tried, *, what: str
):
    """Wherever that is: the client tells of it in other words once it is connected."""
    with mortal_valkey() as valkey:
        place, reached = 0, True
        while reached:
            socket_ = str(valkey.folder / "valkey.sock")
            with (
                stranger(SAID[what], good=place, valkey=socket_) as port,
                broker_at(f"redis://127.0.0.1:{port}", monkeypatch) as broker,
                capture_logs() as told,
            ):
                broker.send(names.PLAN_JOB, HINT)
                broker.waiting()
            assert {line["event"] for line in told} <= {"broker_away"}
            place, reached = place + 1, bool(told)
    assert place > 3
    tried("places for a broker to fail in", place - 1, "given up in one line")


@pytest.mark.parametrize(
    "url",
    ["redis://127.0.0.1:1", "amqp://127.0.0.1:1//", "unix:///nowhere/valkey.sock"],
)
def test_a_hint_for_nobody_is_given_up(monkeypatch: pytest.MonkeyPatch, *, url: str):
    with broker_at(url, monkeypatch) as broker:
        assert len(given_up(broker)) == 2


def test_a_broker_that_goes_away_and_comes_back_is_used_again(monkeypatch: pytest.MonkeyPatch):
    """Also over connections that were made before."""
    with mortal_valkey() as valkey, broker_at(valkey.url, monkeypatch) as broker:
        broker.send(names.PLAN_JOB, HINT)
        assert broker.waiting() == 1
        valkey.strike_down()
        assert len(given_up(broker)) == 2
        (valkey.folder / "valkey.sock").unlink()
        assert len(given_up(broker)) == 2
        valkey.raise_up()
        broker.send(names.PLAN_JOB, HINT)
        assert broker.waiting() == 1


def test_a_broker_that_is_full_is_used_again_when_it_has_room(monkeypatch: pytest.MonkeyPatch):
    with mortal_valkey() as valkey, broker_at(valkey.url, monkeypatch) as broker:
        broker.send(names.PLAN_JOB, HINT)
        with valkey.client as client:
            client.config_set("maxmemory", 1)
            with capture_logs() as told:
                broker.send(names.PLAN_JOB, HINT)
            assert [line["event"] for line in told] == ["broker_away"]
            client.config_set("maxmemory", 0)
        broker.send(names.PLAN_JOB, HINT)
        assert broker.waiting() == 2
