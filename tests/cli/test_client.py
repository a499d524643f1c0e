"""How a command talks to a service that is slow to answer, refuses, or is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from onward.cli import client
from onward.cli.client import Answer, Client
from onward.cli.exits import Exit, Leaving, of_error

Said = tuple[int, object]


@contextmanager
def saying(*answers: Said) -> Iterator[tuple[Client, list[str]]]:
    """A service that gives these answers, and keeps what it was asked."""
    left, asked = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            status, body = left.pop(0)
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.send_header("X-Request-ID", "r-17")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = answer  # noqa: N815 - as the library calls them

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{server.server_port}") as http:
            yield Client(http), asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def problem(code: str, title: str = "No", **more: Any) -> dict[str, object]:
    return {"code": code, "title": title, **more}


GOOD: Said = (200, {"fine": True})
LOCKED: Said = (409, problem("locked"))
AWAY: Said = (503, problem("unavailable"))


def test_what_somebody_else_is_changing_is_asked_for_again():
    with saying(LOCKED, LOCKED, GOOD) as (service, asked):
        assert service.do("PATCH", "/x", body={}, seen='"1"').body == {"fine": True}
    assert asked == ["PATCH /x"] * 3


def test_a_question_that_cannot_be_answered_now_is_asked_again():
    with saying(AWAY, GOOD) as (service, asked):
        assert service.get("/x") == {"fine": True}
    assert len(asked) == 2


def test_a_deed_that_may_have_been_done_is_not_done_again():
    with saying(AWAY) as (service, asked), pytest.raises(Leaving) as refused:
        service.do("POST", "/keys", body={})
    assert refused.value.code is Exit.SERVICE_AWAY
    assert len(asked) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_deed_whose_repeat_is_harmless_is_done_again(monkeypatch, status: int):
    monkeypatch.setattr(client, "_AGAIN_S", 0.0)
    with saying((status, ""), (status, ""), GOOD) as (service, asked):
        assert service.send("POST", "/x", body={}, repeat=True).good
    assert len(asked) == 3


def test_whoever_knows_when_to_ask_again_is_answered_at_once():
    with saying(AWAY) as (service, asked), pytest.raises(Leaving):
        service.once(1.0).get("/x")
    assert len(asked) == 1


def test_nobody_is_asked_for_ever():
    with saying(*[LOCKED] * 9) as (service, asked), pytest.raises(Leaving) as refused:
        service.do("PATCH", "/x", body={})
    assert refused.value.code is Exit.CONFLICT
    assert "Try again in a moment" in str(refused.value)
    assert len(asked) == 4


@pytest.mark.parametrize("body", ["<html>welcome</html>", "[1, 2]", ""])
def test_what_is_no_onward_is_told_so(body: str):
    with saying((200, body)) as (service, _), pytest.raises(Leaving, match="not as Onward does"):
        service.get("/jobs")


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ((401, problem("key-unknown", "Not known")), Exit.NOT_AUTHORISED, "Set ONWARD_KEY"),
        ((403, problem("permission-missing")), Exit.NOT_AUTHORISED, "`onward whoami`"),
        ((403, problem("four-eyes")), Exit.NOT_AUTHORISED, "Ask somebody else"),
        ((404, problem("unknown-job")), Exit.FAILED, "`onward jobs` lists"),
        ((404, problem("not-found")), Exit.FAILED, "older than this command"),
        (
            (409, problem("job-stands-otherwise", detail="It is PAUSED.", allowed=["resume"])),
            Exit.CONFLICT,
            "It is PAUSED. As it stands, it allows resume.",
        ),
        ((500, problem("internal", "A bug")), Exit.FAILED, "A bug (request r-17)."),
        ((502, "<html>bad gateway</html>"), Exit.SERVICE_AWAY, "The service answered 502"),
        ((422, problem("job-conflict")), Exit.CONFLICT, "Choose another --external-id."),
        ((422, problem("command-conflict")), Exit.CONFLICT, "No."),
        (
            (422, problem("invalid", errors=[{"pointer": "/params/x", "detail": "is wrong"}])),
            Exit.FAILED,
            "params.x: is wrong",
        ),
    ],
)
def test_a_refusal_says_what_to_do_next(answer: Said, code: Exit, said: str):
    with saying(answer) as (service, _), pytest.raises(Leaving) as refused:
        service.do("POST", "/x")
    assert of_error(refused.value) is code
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (502, "The service answered 502. Something before it does not reach it: try again"),
        (301, "The service answered 301. It is elsewhere: name its own address"),
    ],
)
def test_what_a_proxy_says_is_told_with_what_to_do_next(status: int, said: str):
    with pytest.raises(Leaving) as refused:
        Answer(status, {}).refuse()
    assert str(refused.value).startswith(said)


def test_a_list_ends_where_enough_was_seen():
    pages: list[Said] = [
        (200, {"items": [{"n": 1}, {"n": 2}], "next_cursor": "a"}),
        (200, {"items": [], "next_cursor": "b"}),
        (200, {"items": [{"n": 3}, {"n": 4}], "next_cursor": None}),
    ]
    with saying(*pages) as (service, asked):
        assert [row["n"] for row in service.pages("/x")] == [1, 2, 3, 4]
    assert asked == [
        "GET /x?limit=1000",
        "GET /x?limit=1000&cursor=a",
        "GET /x?limit=1000&cursor=b",
    ]
    with saying(*pages) as (service, asked):
        found, more = service.more("/x", most=1, status=["A", "B"])
    assert ([row["n"] for row in found], more) == ([1], True)
    assert asked == ["GET /x?limit=2&status=A&status=B"]
