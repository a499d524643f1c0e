"""Bodies: what is not strict JSON, not in time, or not of a sensible size is refused in words."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from onward.api import strict_json
from onward.api.app import create_app
from onward.api.problems import Problem
from onward.api.services import Services
from onward.service.serving import services as services_for
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling, sample_router
from tests.api.test_foundation import told
from tests.conftest import settings_for

JSON = {"Content-Type": "application/json"}
GOOD = b'{"name": "a"}'


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Nothing here minds what another test has left behind."""
    return shared


def nested(levels: int) -> bytes:
    inner = b"[" * levels + b"]" * levels
    return b'{"name": "a", "params": {"deep": ' + inner + b"}}"


# The catalogue: a body, the status and the code of the answer.
CATALOGUE: dict[str, tuple[bytes, int, str]] = {
    "100,000 nested arrays": (b"[" * 100_000, 400, "json-malformed"),
    "100,000 nested arrays, closed": (nested(100_000), 400, "json-malformed"),
    "100,000 nested objects": (b'{"a":' * 100_000, 400, "json-malformed"),
    "nested one deeper than allowed": (nested(127), 400, "json-malformed"),
    "a lone surrogate": (rb'{"name": "\ud800"}', 422, "invalid"),
    "a lone low surrogate": (rb'{"name": "a\udfffb"}', 422, "invalid"),
    "a lone surrogate, deep": (
        rb'{"name": "a", "params": {"a": [{"b": "\uD800"}]}}',
        422,
        "invalid",
    ),
    "a lone surrogate in a key": (rb'{"name": "a", "params": {"\udc00": 1}}', 422, "invalid"),
    "NaN for an integer": (b'{"name": "a", "count": NaN}', 400, "json-malformed"),
    "NaN for a float": (b'{"name": "a", "ratio": NaN}', 400, "json-malformed"),
    "Infinity": (b'{"name": "a", "ratio": Infinity}', 400, "json-malformed"),
    "-Infinity": (b'{"name": "a", "ratio": -Infinity}', 400, "json-malformed"),
    "1e400": (b'{"name": "a", "ratio": 1e400}', 400, "json-malformed"),
    "-1e400": (b'{"name": "a", "ratio": -1e400}', 400, "json-malformed"),
    "a key twice": (b'{"name": "a", "name": "b"}', 400, "json-malformed"),
    "a key twice, deep": (
        b'{"name": "a", "params": {"x": [{"k": 1, "k": 1}]}}',
        400,
        "json-malformed",
    ),
    "a key twice, once escaped": (rb'{"name": "a", "\u006eame": "b"}', 400, "json-malformed"),
    "an unknown field": (b'{"name": "a", "is_admin": true}', 422, "invalid"),
    "UTF-16": ('{"name": "a"}'.encode("utf-16"), 400, "json-malformed"),
    "UTF-16 without a mark": ('{"name": "a"}'.encode("utf-16-le"), 400, "json-malformed"),
    "UTF-32": ('{"name": "a"}'.encode("utf-32"), 400, "json-malformed"),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, 400, "json-malformed"),
    "not UTF-8": (b'{"name": "\xff"}', 400, "json-malformed"),
    "a surrogate in UTF-8": (b'{"name": "\xed\xa0\x80"}', 400, "json-malformed"),
    "empty": (b"", 400, "json-malformed"),
    "only spaces": (b" \r\n\t ", 400, "json-malformed"),
    "null": (b"null", 422, "invalid"),
    "an array": (b"[]", 422, "invalid"),
    "a text": (b'"a"', 422, "invalid"),
    "a number": (b"1", 422, "invalid"),
    "half of it": (b'{"name": "a"', 400, "json-malformed"),
    "two of them": (GOOD + GOOD, 400, "json-malformed"),
    "a comma too many": (b'{"name": "a",}', 400, "json-malformed"),
    "single quotes": (b"{'name': 'a'}", 400, "json-malformed"),
    "a comment": (b'{"name": "a"} // b', 400, "json-malformed"),
    "a raw control character": (b'{"name": "a\nb"}', 400, "json-malformed"),
    "an unclosed text with many quotes": (b'{"a": "' + rb"\"" * 100_000, 400, "json-malformed"),
    "4,301 digits": (b'{"name": "a", "count": ' + b"9" * 4_301 + b"}", 400, "json-malformed"),
    "2^63": (b'{"name": "a", "count": 9223372036854775808}', 422, "invalid"),
    "-1": (b'{"name": "a", "count": -1}', 422, "invalid"),
    "true for an integer": (b'{"name": "a", "count": true}', 422, "invalid"),
    "a text for an integer": (b'{"name": "a", "count": "10"}', 422, "invalid"),
    "1.0 for an integer": (b'{"name": "a", "count": 1.0}', 422, "invalid"),
    "a number for a text": (b'{"name": 1}', 422, "invalid"),
    "a text for a number": (b'{"name": "a", "ratio": "1"}', 422, "invalid"),
    "NUL": (rb'{"name": "a\u0000b"}', 422, "invalid"),
    "a newline in a name": (rb'{"name": "a\nb"}', 422, "invalid"),
    "a bidi override in a name": (rb'{"name": "a\u202eb"}', 422, "invalid"),
    "an empty name": (b'{"name": ""}', 422, "invalid"),
    "a name of 256": (b'{"name": "' + b"a" * 256 + b'"}', 422, "invalid"),
    "a missing field": (b"{}", 422, "invalid"),
}


@pytest.mark.parametrize("case", CATALOGUE)
async def test_the_catalogue_of_bad_bodies(sample: httpx2.AsyncClient, case):
    body, status, code = CATALOGUE[case]
    problem = told(await sample.post("/sample", content=body, headers=JSON), status, code)
    if status == 422:
        assert problem["errors"]


@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        b' \n{"name": "a"}\r\n',
        nested(126),
        rb'{"name": "a", "params": {"rocket": "\ud83d\ude80", "slash": "\\ud800"}}',
        b'{"name": "a", "params": {"' + b"[{" * 500 + b'": 1}}',
        b'{"name": "a", "params": {"wide": [' + b"[]," * 500 + b"[]]}}",
        rb'{"name": "a", "params": {"nul": "\u0000", "big": 123456789012345678901234567890}}',
        b'{"name": "a", "ratio": 1.7976931348623157e308, "count": 9223372036854775807}',
    ],
    ids=["small", "spaces", "deep", "pairs", "brackets in a key", "wide", "anything", "large"],
)
async def test_good_bodies_are_taken(sample: httpx2.AsyncClient, body):
    answer = await sample.post("/sample", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["by"]) == (200, "ann"), answer.text


async def test_the_key_that_is_there_twice_is_named(sample: httpx2.AsyncClient):
    answer = await sample.post("/sample", content=b'{"name": 1, "name": 1}', headers=JSON)
    assert "'name'" in answer.json()["detail"]


async def test_a_lone_surrogate_is_pointed_at(sample: httpx2.AsyncClient):
    answer = await sample.post(
        "/sample", content=rb'{"name": "a", "params": {"x/y": ["b", "\ud800"]}}', headers=JSON
    )
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/params/x~1y/1"


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        'Application/JSON;charset="UTF-8"',
        "application/json;",
    ],
)
async def test_json_may_be_called_so(sample: httpx2.AsyncClient, kind):
    answer = await sample.post("/sample", content=GOOD, headers={"Content-Type": kind})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "",
        "text/plain",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
        "application/json; charset=utf-8; version=1",
        "application/jsonp",
        "application/problem+json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json, text/plain",
    ],
)
async def test_another_content_type_is_415(sample: httpx2.AsyncClient, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    told(await sample.post("/sample", content=GOOD, headers=headers), 415, "type-unsupported")


async def test_two_content_types_are_415(sample: httpx2.AsyncClient):
    headers = [("Content-Type", "application/json"), ("Content-Type", "application/json")]
    told(await sample.post("/sample", content=GOOD, headers=headers), 415, "type-unsupported")


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, identity", "x"])
async def test_a_compressed_body_is_415(sample: httpx2.AsyncClient, encoding):
    headers = JSON | {"Content-Encoding": encoding}
    answer = await sample.post("/sample", content=gzip.compress(GOOD), headers=headers)
    told(answer, 415, "type-unsupported")
    assert answer.headers["accept-encoding"] == "identity"


async def test_a_body_that_says_it_is_as_it_is_is_taken(sample: httpx2.AsyncClient):
    headers = JSON | {"Content-Encoding": "Identity"}
    assert (await sample.post("/sample", content=GOOD, headers=headers)).status_code == 200


async def test_who_may_not_call_is_told_before_the_body_is_looked_at(
    sample_app: FastAPI, key_for: KeyFor
):
    async with calling(sample_app, await key_for("viewer")) as viewer:
        told(await viewer.post("/sample", content=b"{"), 403, "permission-missing")
    async with calling(sample_app) as nobody:
        told(await nobody.post("/sample", content=b"{"), 401, "key-missing")


async def test_a_body_that_may_be_missing_may_be_missing(sample: httpx2.AsyncClient):
    assert (await sample.post("/sample/optional")).json() == {"name": None}
    answer = await sample.post("/sample/optional", content=GOOD, headers=JSON)
    assert answer.json() == {"name": "a"}
    told(await sample.post("/sample/optional", content=b"{", headers=JSON), 400, "json-malformed")
    told(await sample.post("/sample/optional", content=GOOD), 415, "type-unsupported")


# Size and time


@pytest.fixture
async def tight(opened: Onward, key_for: KeyFor) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the sample where bodies are small and quick."""
    settings = settings_for(str(opened.database_url), body_max_bytes=1_024, body_timeout_s=0.05)
    app = create_app(services_for(opened, settings=settings), routers=[sample_router()])
    async with calling(app, await key_for("operator")) as client:
        yield client


def sized(size: int) -> bytes:
    return json.dumps({"name": "a", "params": {"x": "y" * (size - 34)}}).encode()


async def chunked(body: bytes, sent: list[int] | None = None) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 100):
        if sent is not None:
            sent.append(start)
        yield body[start : start + 100]


async def test_a_body_of_the_largest_size_is_taken(tight: httpx2.AsyncClient):
    assert len(sized(1_024)) == 1_024
    for body in (sized(1_024), chunked(sized(1_024))):
        answer = await tight.post("/sample", content=body, headers=JSON)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/sample", "/sample/optional", "/sample/raw"])
async def test_one_byte_more_is_413(tight: httpx2.AsyncClient, path):
    for body in (sized(1_025), chunked(sized(1_025))):
        answer = await tight.post(path, content=body, headers=JSON)
        told(answer, 413, "body-too-large")
        assert answer.headers["connection"] == "close"


async def test_a_body_that_is_announced_as_too_large_is_not_read(
    sample_app: FastAPI, services: Services, key_for: KeyFor
):
    """Not even its first byte is asked for before the answer is there."""
    key = (await key_for("operator"))["Authorization"]
    order: list[str] = []

    async def receive() -> Message:
        order.append("read")
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        order.append(str(message.get("status", "body")))

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/sample",
        "raw_path": b"/sample",
        "query_string": b"",
        "headers": [
            (b"authorization", key.encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(services.settings.body_max_bytes + 1).encode()),
        ],
    }
    await sample_app(scope, receive, send)
    assert order[:2] == ["413", "body"]


async def test_a_body_that_does_not_come_is_408(tight: httpx2.AsyncClient):
    stuck = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"name": '
        await stuck.wait()

    async def answered() -> None:
        answer = await tight.post("/sample", content=slow(), headers=JSON)
        told(answer, 408, "body-too-slow")
        assert answer.headers["connection"] == "close"

    await asyncio.wait_for(answered(), 30)


async def test_whoever_leaves_in_the_middle_of_a_body_is_no_bug(
    sample_app: FastAPI, key_for: KeyFor
):
    key = (await key_for("operator"))["Authorization"]
    messages: Iterator[Message] = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        pytest.fail(f"nobody is there to be told {message}")

    headers = [(b"authorization", key.encode()), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/sample",
        "query_string": b"",
        "headers": headers,
    }
    await sample_app(scope, receive, send)


# The parser itself

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(plain, st.booleans())
def test_whatever_is_json_means_the_same_as_before(value, escaped):
    body = json.dumps(value, ensure_ascii=escaped).encode()
    assert strict_json.parse(body) == value


@given(
    st.binary(max_size=40) | st.text(alphabet='[]{}":,\\u dD8e1NaN-', max_size=40).map(str.encode)
)
def test_whatever_comes_is_understood_or_refused(body):
    try:
        value = strict_json.parse(body)
    except Problem as problem:
        assert problem.status in {400, 422}  # noqa: PT017 - either of the two ways is right
    else:
        assert json.loads(body) == value


@given(st.integers(1, 300), st.text(alphabet='[]{}"\\', max_size=8))
def test_depth_is_counted_outside_of_texts(levels, text):
    body = b"[" * levels + json.dumps(text).encode() + b"]" * levels
    if levels <= strict_json.DEPTH_MAX:
        strict_json.parse(body)
    else:
        with pytest.raises(Problem, match="nested deeper"):
            strict_json.parse(body)
