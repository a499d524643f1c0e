"""The stream of changes over connections that break: nothing is missed, and it never gives up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from onward.cli.client import Client
from onward.cli.stream import ANEW, events, listening

BOUND_S = 20.0


class Script:
    """What a service says on one connection after the other, and what it was asked for."""

    def __init__(self, *connections: int | Sequence[str]) -> None:
        self.connections = list(connections)
        self.asked: list[str | None] = []
        self.paths: list[str] = []
        self.over = threading.Event()


@contextmanager
def serving(script: Script) -> Iterator[Client]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            script.asked.append(self.headers.get("Last-Event-ID"))
            script.paths.append(self.path)
            said = script.connections.pop(0) if script.connections else []
            self.send_response(said if isinstance(said, int) else 200)
            self.end_headers()
            if isinstance(said, int):
                return
            for line in said:
                self.wfile.write(f"{line}\n".encode())
            self.wfile.flush()
            if not script.connections:
                script.over.wait(BOUND_S)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{server.server_port}") as http:
            yield Client(http)
            script.over.set()
    finally:
        script.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def event(number: int) -> list[str]:
    return [f"id: p{number}", f"data: {json.dumps({'kind': 'job', 'n': number})}", ""]


def heard(service: Client, *, until: int, **params: str) -> list[object]:
    """Listen until something is heard."""
    found: list[object] = []
    with listening(service, params) as changes:
        while until not in found:
            found += [
                "anew" if change is ANEW else change.get("n", "lost")
                for change in changes.next(BOUND_S)
            ]
            assert len(found) < 50, found
    return found


def test_it_goes_on_after_the_last_that_was_heard():
    script = Script(
        ["retry: 2000", "id: p0", "", *event(1), *event(2)],
        [": still here", "id: p2b", "", *event(3)],
        event(4),
    )
    with serving(script) as service:
        found = heard(service, until=4)
    assert [each for each in found if isinstance(each, int)] == [1, 2, 3, 4]
    assert script.asked == [None, "p2", "p3"]
    assert "lost" in found


def test_where_there_is_no_way_on_it_begins_anew():
    script = Script(event(1), 410, event(2))
    with serving(script) as service:
        found = heard(service, until=2)
    assert script.asked == [None, "p1", None]
    assert found[-2:] == ["anew", 2]


def test_a_position_that_there_is_no_way_on_from_is_not_asked_for_again():
    script = Script(410, event(1))
    with serving(script) as service:
        heard(service, until=1, after="p0", job_id="7")
    assert script.paths == ["/events?after=p0&job_id=7", "/events?job_id=7"]


def test_a_service_that_is_away_for_a_while_is_asked_again():
    script = Script(event(1), 503, 503, event(2))
    with serving(script) as service:
        found = heard(service, until=2)
    assert script.asked == [None, "p1", "p1", "p1"]
    assert found.count("lost") == 3


@pytest.mark.parametrize("status", [401, 403, 404])
def test_whoever_is_refused_does_not_ask_again(status: int):
    script = Script(status)
    with serving(script) as service, listening(service, wait_s=0.1) as changes:
        changes._thread.join(BOUND_S)
        assert not changes._thread.is_alive()
    assert script.asked == [None]


def test_events_are_read_as_they_are_written():
    lines = ["id: 1", "data: a", "data: b", "", ":comment", "id:2", "", "event: x", "data:c", ""]
    assert list(events(iter(lines))) == [("1", "a\nb"), ("2", ""), ("", "c")]
