"""A task is made at a platform, and whatever goes wrong, it is said whether it may have been."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from onward.channels.base import Letter, Target
from onward.channels.platform.file import read
from onward.channels.platform.wire import PlatformWire
from onward.errors import (
    ChannelError,
    DeliveryUnknown,
    HostBusy,
    HostRefused,
    InvalidInput,
    NotDelivered,
)
from tests.platform.fake import Platform, described, http, serving
from tests.proof_table import Tried

CANARY = "canary-4711"
SECRET = {"TOKEN": f"tok-{CANARY}"}
HEADERS = 'headers = { Authorization = "Bearer env:TOKEN", X-Plain = "yes" }\ntimeout_s = 5'

Wired = Callable[..., Awaitable[PlatformWire]]


@pytest.fixture
async def fake() -> AsyncIterator[Platform]:
    """A platform that calls nobody back."""
    async with serving(Platform()) as platform:
        yield platform


@pytest.fixture
async def wired(fake: Platform) -> AsyncIterator[Wired]:
    """Make a wire to it, described with more or with something else."""
    async with AsyncExitStack() as stack:

        async def make(more: str = HEADERS, text: str | None = None) -> PlatformWire:
            platforms = read(described(fake, more=more) if text is None else text)
            return await stack.enter_async_context(PlatformWire(platforms, environment=SECRET))

        yield make


def letter(cmd_id: str = "c-1", *, address: str = "fake/pump-1", **params: object) -> Letter:
    return Letter(cmd_id, 7, Target(1, "pump", address), "open", params, timeout_s=20.0)


async def test_a_task_is_made_as_described(fake: Platform, wired: Wired):
    wire = await wired()
    assert await wire.send(letter(valve=3, why="指令 \ud83d🛰")) == "t-1"
    (request,) = fake.requests
    assert (request.method, request.path) == ("POST", "/tasks")
    assert request.body == {
        "device": "pump-1",
        "command": "open",
        "params": {"valve": 3, "why": "指令 \ud83d🛰"},
        "timeout": 20.0,
    }
    assert request.headers["authorization"] == f"Bearer {SECRET['TOKEN']}"
    assert request.headers["x-plain"] == "yes"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{fake.port}"


async def test_the_same_command_is_the_same_task(fake: Platform, wired: Wired):
    wire = await wired()
    names = [await wire.send(letter("c-1")), await wire.send(letter("c-1"))]
    assert names == ["t-1", "t-1"]
    assert {request.headers["idempotency-key"] for request in fake.requests} == {"c-1"}
    assert await wire.send(letter("c-2")) == "t-2"


# What a platform may answer, and what is known then.
ODD_NAMES: tuple[object, ...] = (None, True, 1.5, "", "x" * 256, "a\nb", "\u202e", [], {})
ANSWERS: list[tuple[bytes | None, type[ChannelError]]] = [
    *((http(status, {}), HostRefused) for status in (400, 401, 403, 404, 405, 413, 422, 451, 499)),
    *((http(status, b""), HostRefused) for status in (301, 302, 307, 308, 304)),
    (http(302, b"", "Location: http://169.254.169.254/"), HostRefused),
    (http(408, {}), NotDelivered),
    (http(409, {}), DeliveryUnknown),
    (http(429, {}, "Retry-After: 5"), HostBusy),
    *((http(status, {}), DeliveryUnknown) for status in (500, 501, 502, 503, 504, 599)),
    (http(200, b""), DeliveryUnknown),
    (http(200, b"not json"), DeliveryUnknown),
    (http(200, b"\xff\xfe"), DeliveryUnknown),
    (http(200, b"[" * 100_000), DeliveryUnknown),
    (http(200, []), DeliveryUnknown),
    (http(200, {"task": {}}), DeliveryUnknown),
    *((http(200, {"task": {"id": odd}}), DeliveryUnknown) for odd in ODD_NAMES),
    (http(200, b"x" * 2_000_000), DeliveryUnknown),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", DeliveryUnknown),
    (b"nonsense\r\n\r\n", DeliveryUnknown),
    (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000, DeliveryUnknown),
    (None, DeliveryUnknown),
]


async def test_every_answer_says_what_is_known(fake: Platform, wired: Wired, tried: Tried):
    wire = await wired()
    for answer, expected in ANSWERS:
        fake.answers = [answer]
        sending = asyncio.create_task(wire.send(letter(word=CANARY)))
        with pytest.raises(expected) as problem:
            await _until_cut(fake, sending)
        assert type(problem.value) is expected, answer
        assert CANARY not in str(problem.value)
        assert str(problem.value).count("\n") == 0
    fake.answers = []
    assert await wire.send(letter("after")) == "t-1", "it still works"
    tried("answers of a platform", len(ANSWERS), "each told as what it is")


async def _until_cut(fake: Platform, sending: asyncio.Task[str]) -> str:
    """Wait for what comes; whoever waits for more than there is finds the way cut."""
    done, _ = await asyncio.wait({sending}, timeout=1)
    if not done:
        fake.cut()
    return await sending


async def test_what_a_platform_says_is_told_without_anybodys_secret(fake: Platform, wired: Wired):
    wire = await wired()
    said = f"No such valve for {SECRET['TOKEN']}: {CANARY}\n\x1b[31m see the manual"
    fake.answers = [http(422, {"message": said})]
    with pytest.raises(HostRefused) as refusal:
        await wire.send(letter(nested={"list": [CANARY]}))
    assert "No such valve for ***: ***" in str(refusal.value)
    assert CANARY not in str(refusal.value)
    assert "\x1b" not in str(refusal.value)
    fake.answers = [http(400, {"detail": "x" * 10_000})]
    with pytest.raises(HostRefused) as refusal:
        await wire.send(letter())
    assert len(str(refusal.value)) < 400


async def test_where_nobody_listens_nothing_was_delivered(fake: Platform, wired: Wired):
    closed = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    wire = await wired(text=described(fake).replace(str(fake.port), str(port)))
    with pytest.raises(NotDelivered) as problem:
        await wire.send(letter())
    assert type(problem.value) is NotDelivered


async def test_a_platform_that_does_not_answer_in_time_may_have_made_the_task(
    fake: Platform, wired: Wired
):
    wire = await wired("timeout_s = 0.3")
    fake.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"]
    with pytest.raises(DeliveryUnknown, match="in time"):
        await wire.send(letter())
    fake.answers = [b""]
    with pytest.raises(DeliveryUnknown, match="in time"):
        await wire.send(letter())


async def test_a_connection_that_never_comes_about_delivers_nothing(fake: Platform):
    """The time is up before the first byte of the request has left."""

    async def resolve(_host: str, _port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    platforms = read(described(fake, more="timeout_s = 0.2"))
    async with PlatformWire(platforms, environment={}, resolve=resolve) as wire:
        with pytest.raises(NotDelivered) as problem:
            await wire.send(letter())
    assert type(problem.value) is NotDelivered
    assert fake.requests == []


async def test_a_private_address_is_refused_until_it_is_opened(fake: Platform, wired: Wired):
    wire = await wired(text=described(fake).replace("private = true", ""))
    with pytest.raises(HostRefused, match="private = true"):
        await wire.send(letter())
    assert fake.requests == []


async def test_a_host_has_to_be_at_a_platform_of_the_file(wired: Wired):
    wire = await wired()
    for odd in ("", "fake", "fake/", "/pump", "other/pump", "FAKE/pump", "http://fake/pump"):
        with pytest.raises(HostRefused, match="platform"):
            await wire.send(letter(address=odd))
        with pytest.raises(HostRefused):
            wire.lifecycle(letter(address=odd).target)
    assert wire.lifecycle(letter(address="fake/a/b").target) == "platform_lenient"


async def test_a_task_is_stopped_if_the_platform_can(fake: Platform, wired: Wired):
    wire = await wired()
    assert not await wire.cancel(letter()), "nobody knows what it is called"
    await wire.send(letter(sleep_s=60))
    await asyncio.sleep(0)
    assert await wire.cancel(letter())
    assert (fake.requests[-1].method, fake.requests[-1].path) == ("DELETE", "/tasks/t-1")
    assert not await wire.cancel(letter()), "it is stopped already"
    fake.answers = [None]
    assert not await wire.cancel(letter()), "nobody knows whether it was heard"
    assert not await wire.cancel(letter(address="nobody/x"))


async def test_a_platform_that_uses_our_name_has_nothing_to_tell(fake: Platform, wired: Wired):
    text = described(fake).replace('task_id = "/task/id"\n', "", 1)
    wire = await wired(text=text)
    fake.answers = [http(204, b""), http(409, {}), http(422, {})]
    assert await wire.send(letter("c-9")) == "c-9"
    assert await wire.send(letter("c-9")) == "c-9", "it is there already"
    with pytest.raises(HostRefused):
        await wire.send(letter("c-9"))


async def test_a_secret_that_is_not_there_is_missed_before_anything_is_sent(fake: Platform):
    platforms = read(described(fake, more=HEADERS))
    with pytest.raises(InvalidInput, match=r"fake\.headers\.Authorization.*TOKEN"):
        PlatformWire(platforms, environment={})
    with pytest.raises(InvalidInput) as problem:
        PlatformWire(platforms, environment={"TOKEN": f"{CANARY}\r\nX: y"})
    assert CANARY not in str(problem.value)


async def test_no_proxy_of_the_environment_sees_the_requests(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:1")
    assert await (await wired()).send(letter()) == "t-1"


# TLS


def certificate(folder: Path, host: str) -> Path:
    """A certificate that stands for itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{host}.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


async def test_a_platform_has_to_prove_who_it_is(tmp_path: Path):
    """By the name in its url, although the connection is made to an address."""
    path = certificate(tmp_path, "tasks.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async def sent(host: str, more: str) -> str:
        text = described(platform, more=more).replace(
            platform.url, f"https://{host}:{platform.port}"
        )
        platforms = read(text, folder=tmp_path)
        async with PlatformWire(platforms, environment={}, resolve=resolve) as wire:
            return await wire.send(letter())

    async with serving(Platform(), context=context) as platform:
        with pytest.raises(NotDelivered, match="certificate"):
            await sent("tasks.example", "")
        with pytest.raises(NotDelivered, match="Hostname"):
            await sent("other.example", f'ca = "{path.name}"')
        assert platform.requests == []
        assert await sent("tasks.example", f'ca = "{path.name}"') == "t-1"
        with pytest.raises(InvalidInput, match=r"fake\.ca"):
            await sent("tasks.example", 'ca = "nothing.pem"')
