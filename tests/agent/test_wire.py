"""What is said is heard as it was said, once, by whom it was meant for; all else is refused."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from onward.channels.agent.messages import (
    PIECE_MAX,
    Accepted,
    Block,
    Blocks,
    Down,
    Malformed,
    Pieces,
    Ready,
    Receipt,
    Refused,
    Result,
    Run,
    Stop,
    Stopped,
    Up,
    cut_pieces,
    to_agent,
    to_server,
    written,
)
from onward.channels.agent.wire import (
    BODY_MAX,
    CLOCK_WINDOW_S,
    MAC_BYTES,
    VALID_S,
    AgentSession,
    Close,
    FrameRefused,
    Hello,
    ServerSession,
    Welcome,
    agent_session,
    check_hello,
    read_hello,
    read_welcome,
    say_hello,
    say_welcome,
    server_session,
)
from onward.channels.base import Stream
from onward.channels.program import Program

NOW = 1_800_000_000.0
KEY = b"k" * 32
PROGRAM = Program(
    ("sh", "-c", "true"), {"A": "ü"}, cwd="/", stdin="\0\ud800", user="ann", secrets={"B": "c"}
)
DOWN: list[Down] = [
    Run("c", 5, "restart", {"a": [1, None, "\ud83d", 1.5]}, PROGRAM, 30.0, False, {"id": "x"}),
    Run("c", 5, "ping", {}, None, 0.5),
    Stop("c", 5),
    Receipt("c", 5),
    Blocks((Block("restart", "why", "ann", None), Block("*", "", "", 1.5))),
]
UP: list[Up] = [
    Ready(9, "1.0"),
    Accepted("c", 5),
    Refused("c", 5, busy=True, why="busy"),
    Pieces("c", 5, 3, ((Stream.STDOUT, "a\n\0\ud800🚀"), (Stream.STDERR, ""))),
    Result("c", 5, succeeded=False, exit_code=-3, error="no", repeated=True, unknown=True),
    Result("c", 5, succeeded=True),
    Stopped("c", 5, stopped=True),
]


def hands(host: int = 7, key: bytes = KEY) -> tuple[AgentSession, ServerSession]:
    """Both sides of a connection."""
    hello = Hello(host, 1, os.urandom(32))
    welcome = Welcome(os.urandom(32), NOW)
    heard = read_welcome(say_welcome(key, hello, welcome), key, hello)
    assert heard == welcome
    said = say_hello(key, hello, now=NOW)
    assert read_hello(said) == hello
    check_hello(said, key, now=NOW)
    return agent_session(key, hello, welcome), server_session(key, hello, welcome)


def _name(message: Down | Up) -> str:
    return type(message).__name__


def body_of(message: Down | Up) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(f"{{{written(message)}}}")
    return body


def refused(call: Callable[[], object]) -> Close:
    with pytest.raises(FrameRefused) as caught:
        call()
    assert str(caught.value)
    return caught.value.code


def test_every_message_arrives_as_it_was_said():
    agent, server = hands()
    for down in DOWN:
        assert agent.open(server.seal(down, NOW), NOW) == down
    for up in UP:
        assert server.open(agent.seal(up, NOW), NOW) == up


def test_every_frame_of_a_run_is_refused_a_second_time_wherever_it_is_sent(tried):
    agent, server = hands()
    down = [server.seal(message, NOW) for message in DOWN]
    up = [agent.seal(message, NOW) for message in UP]
    for frame in down:
        agent.open(frame, NOW)
    for frame in up:
        server.open(frame, NOW)
    for frame in (*down, *up):
        other_agent, other_server = hands()
        neighbour_agent, neighbour_server = hands(host=8, key=b"n" * 32)
        for ear in (agent, server, other_agent, other_server, neighbour_agent, neighbour_server):
            assert refused(lambda: ear.open(frame, NOW)) in {Close.WRONG_MAC, Close.WRONG_SEQ}  # noqa: B023 - called at once
    tried("frames said again", (len(down) + len(up)) * 6)


def test_no_bit_of_a_frame_can_be_changed():
    agent, server = hands()
    frame = server.seal(Stop("c", 5), NOW)
    for place in range(len(frame) * 8):
        changed = bytearray(frame)
        changed[place // 8] ^= 1 << place % 8
        assert refused(lambda: agent.open(bytes(changed), NOW)) is Close.WRONG_MAC  # noqa: B023 - called at once
    for length in range(len(frame)):
        assert refused(lambda: agent.open(frame[:length], NOW)) is Close.WRONG_MAC  # noqa: B023 - as above
    assert agent.open(frame, NOW) == Stop("c", 5), "what was refused has changed nothing"


def test_a_frame_behind_a_lost_one_is_refused():
    agent, server = hands()
    server.seal(Stop("c", 1), NOW)
    assert refused(lambda: agent.open(server.seal(Stop("c", 2), NOW), NOW)) is Close.WRONG_SEQ


def test_a_frame_that_is_over_is_refused():
    agent, server = hands()
    frame = server.seal(Stop("c", 1), NOW)
    late = NOW + VALID_S + CLOCK_WINDOW_S
    assert refused(lambda: agent.open(frame, late + 1)) is Close.EXPIRED
    assert agent.open(frame, late) == Stop("c", 1)


def test_a_hello_that_is_over_or_signed_with_another_key_is_refused():
    said = say_hello(KEY, Hello(7, 1, b"n" * 32), now=NOW)
    over = NOW + VALID_S + CLOCK_WINDOW_S + 1
    assert refused(lambda: check_hello(said, KEY, now=over)) is Close.EXPIRED
    assert refused(lambda: check_hello(said, b"x" * 32, now=NOW)) is Close.WRONG_MAC


def test_a_welcome_for_another_hello_is_refused():
    mine, others = Hello(7, 1, b"m" * 32), Hello(7, 1, b"o" * 32)
    said = say_welcome(KEY, others, Welcome(b"w" * 32, NOW))
    assert refused(lambda: read_welcome(said, KEY, mine)) is Close.WRONG_MAC
    hello = say_hello(KEY, mine, now=NOW)
    assert refused(lambda: read_welcome(hello, KEY, mine)) is Close.MALFORMED
    assert refused(lambda: read_hello(said)) is Close.MALFORMED


@pytest.mark.parametrize(
    "change",
    [{"v": 2}, {"v": None}, {"host": "7"}, {"host": -1}, {"gen": True}, {"nonce": "ab"},
     {"nonce": 5}, {"nonce": "zz" * 32}, {"t": "ready"}, {"t": ["hello"]}],
    ids=str,
)  # fmt: skip
def test_a_hello_that_is_none_is_refused(change: dict[str, Any]):
    said = say_hello(KEY, Hello(7, 1, b"n" * 32), now=NOW)
    body = {**json.loads(said[MAC_BYTES:]), **change}
    expected = Close.WRONG_VERSION if change == {"v": 2} else Close.MALFORMED
    assert refused(lambda: read_hello(bytes(MAC_BYTES) + json.dumps(body).encode())) is expected


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[]", b"null", b'{"t":', b'{"host":7,"exp":NaN}', b"[" * 100_000, b"9" * 5000],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_is_none_of_ours_is_refused(body: bytes):
    agent, _ = hands()
    signed = agent._expect(body) + body
    assert refused(lambda: agent.open(signed, NOW)) in {Close.MALFORMED, Close.WRONG_HOST}
    assert refused(lambda: read_hello(bytes(32) + body)) is Close.MALFORMED


@pytest.mark.parametrize("exp", [-(10**400), None, 1.5, True, "9"], ids=lambda exp: str(exp)[:9])
def test_a_time_that_is_none_is_refused(exp: object):
    """Also one beyond all floats."""
    agent, server = hands()
    fields = json.loads(server.seal(Stop("c", 1), NOW)[MAC_BYTES:])
    body = json.dumps({**fields, "exp": exp}).encode()
    signed = agent._expect(body) + body
    assert refused(lambda: agent.open(signed, NOW)) in {Close.EXPIRED, Close.MALFORMED}


def test_a_frame_about_another_host_is_refused():
    agent, server = hands()
    server._host = 8
    assert refused(lambda: agent.open(server.seal(Stop("c", 1), NOW), NOW)) is Close.WRONG_HOST


def test_a_message_that_is_too_large_is_refused_before_it_is_sent():
    agent, server = hands()
    huge = Run("c", 1, "x", {"a": "x" * BODY_MAX}, None, 1.0)
    assert refused(lambda: server.seal(huge, NOW)) is Close.TOO_LARGE
    assert agent.open(server.seal(Stop("c", 1), NOW), NOW), "the next one is the next one"
    assert refused(lambda: agent.open(bytes(BODY_MAX + 33), NOW)) is Close.TOO_LARGE


@pytest.mark.parametrize("message", [*DOWN, *UP], ids=_name)
def test_what_is_missing_or_of_the_wrong_kind_is_refused(message: Down | Up):
    read = to_agent if isinstance(message, Down) else to_server
    body = body_of(message)
    assert read(body) == message
    assert read({**body, "new": 1}) == message, "the other side may be newer"
    for name in body.keys() - {"exit_code", "error", "program", "epoch"}:
        for wrong in (None, [None], {"": None}, -1, "x", True):
            if type(wrong) is type(body[name]) and name != "t":
                continue  # that is another value, and not a wrong one
            with pytest.raises(Malformed):
                read({**body, name: wrong})
        with pytest.raises(Malformed):
            read({each: body[each] for each in body if each != name})


def test_what_only_the_other_side_may_say_is_refused():
    for down in DOWN:
        with pytest.raises(Malformed):
            to_server(body_of(down))
    for up in UP:
        with pytest.raises(Malformed):
            to_agent(body_of(up))


def test_output_is_cut_so_that_it_fits_whatever_it_holds():
    agent, server = hands()
    written = [(Stream.STDOUT, "🚀" * 100_000), (Stream.STDERR, ""), (Stream.STDERR, "\0" * 50_000)]
    parts = cut_pieces(written)
    assert max(sum(len(text) for _, text in part) for part in parts) == PIECE_MAX
    heard = [server.open(agent.seal(Pieces("c", 1, 0, part), NOW), NOW) for part in parts]
    for stream in Stream:
        whole = "".join(
            text for said in heard if isinstance(said, Pieces)
            for where, text in said.pieces if where is stream
        )  # fmt: skip
        assert whole == "".join(text for where, text in written if where is stream)


def test_frames_are_signed_with_plain_hmac_sha256():
    """So that an agent can be written in any language."""
    hello, welcome = Hello(7, 1, b"a" * 32), Welcome(b"s" * 32, NOW)
    said = say_hello(KEY, hello, now=NOW)
    expected = hmac.digest(KEY, b"onward agent hello\0" + said[MAC_BYTES:], "sha256")
    assert said[:MAC_BYTES] == expected
    key = hmac.digest(KEY, b"onward agent up\0" + hello.nonce + welcome.nonce, "sha256")
    frame = agent_session(KEY, hello, welcome).seal(Ready(1, "x"), NOW)
    assert frame[:MAC_BYTES] == hmac.digest(key, frame[MAC_BYTES:], "sha256")
    assert json.loads(frame[MAC_BYTES:]) == {
        "t": "ready", "host": 7, "epoch": 0, "seq": 1, "exp": NOW + VALID_S,
        "seen": 1, "version": "x",
    }  # fmt: skip


def test_no_key_and_no_secret_is_shown():
    agent, server = hands()
    shown = f"{agent!r}{server!r}{DOWN[0]!r}"
    assert KEY.decode() not in shown
    assert "'B'" not in shown
