"""Signed webhooks: who holds the secret may send jobs, each message once, and only in time."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx2
import pytest
from fastapi import FastAPI
from standardwebhooks import Webhook

from onward.api.app import create_app
from onward.api.signatures import Signatures, secrets_of
from onward.errors import InvalidInput
from onward.service.serving import services as services_for
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.fleet import Fleet
from tests.api.test_foundation import told
from tests.conftest import settings_for
from tests.proof_table import Tried

NEW, OLD, LOST = (f"whsec_{base64.b64encode(byte * 32).decode()}" for byte in (b"n", b"o", b"l"))
NOW = 1_800_000_000.25
PATH = "/webhook/jobs"
WEBHOOK_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Messages have ids of their own, so that the database can be shared."""
    return shared


@dataclass
class Sender:
    """Sends signed messages, right ones unless it is told how they should be wrong."""

    client: httpx2.AsyncClient
    fleet: Fleet
    clock: list[float]
    sent: list[int] = field(default_factory=list)

    def message(self, **changes: object) -> bytes:
        return json.dumps(self.fleet.body(**changes)).encode()

    def headers(
        self,
        body: bytes,
        *,
        secret: str = NEW,
        message_id: str | None = None,
        at: float | None = None,
    ) -> dict[str, str]:
        """The headers of a message that was signed with a secret."""
        self.sent.append(len(self.sent))
        name = message_id or f"msg_{self.fleet.tag}_{len(self.sent)}"
        seconds = int(self.clock[0] if at is None else at)
        signed = Webhook(secret).sign(
            name, datetime.fromtimestamp(seconds, tz=UTC), body.decode("utf-8", "replace")
        )
        values = (name, str(seconds), signed)
        headers = dict(zip(WEBHOOK_HEADERS, values, strict=True))
        return {"Content-Type": "application/json", **headers}

    async def send(self, body: bytes, headers: object) -> httpx2.Response:
        return await self.client.post(PATH, content=body, headers=headers)  # type: ignore[arg-type]  # any form of headers


@pytest.fixture
def clock() -> list[float]:
    """What time it is, for whoever judges the age of a message."""
    return [NOW]


@pytest.fixture
def signed_app(opened: Onward, clock: list[float]) -> FastAPI:
    """The application, with a secret that is being replaced by another."""
    settings = settings_for(str(opened.database_url), webhook_secrets=f"{NEW}, {OLD}")
    return create_app(services_for(opened, settings=settings), clock=lambda: clock[0])


@pytest.fixture
async def sender(signed_app: FastAPI, fleet: Fleet, clock: list[float]) -> AsyncIterator[Sender]:
    await fleet.hosts(1)
    async with calling(signed_app) as client:
        yield Sender(client, fleet, clock)


async def test_a_signed_message_makes_a_job_without_any_key(sender: Sender):
    body = sender.message()
    answer = await sender.send(body, sender.headers(body))
    assert answer.status_code == 202, answer.text
    asked = "SELECT requested_by FROM jobs WHERE id = $1"
    assert await sender.fleet.pool.fetchval(asked, answer.json()["job_id"]) == "webhook"


async def test_a_message_is_taken_once_and_its_retry_finds_the_same_job(sender: Sender):
    body = sender.message()
    headers = sender.headers(body, message_id=f"msg_{sender.fleet.tag}_once")
    first = await sender.send(body, headers)
    told(await sender.send(body, headers), 409, "replayed")
    sender.clock[0] += 30
    again = sender.headers(body, message_id=headers["webhook-id"])
    answer = await sender.send(body, again)
    assert (answer.status_code, answer.json()["job_id"]) == (200, first.json()["job_id"])
    told(await sender.send(body, headers), 409, "replayed")


async def test_of_twenty_copies_at_once_one_is_taken(sender: Sender, tried: Tried, *, proof: bool):
    rounds = 50 if proof else 5
    for _ in range(rounds):
        body = sender.message()
        headers = sender.headers(body)
        answers = await asyncio.gather(*(sender.send(body, headers) for _ in range(20)))
        assert Counter(answer.status_code for answer in answers) == {202: 1, 409: 19}
    tried("signed messages copied twenty times at once", rounds, "one is taken")


@pytest.mark.parametrize(
    ("age_s", "timely"),
    [(-301, False), (-300, True), (0, True), (300, True), (301, False), (-(10**9), False)],
)
async def test_a_message_is_as_old_as_it_may_be_or_too_old(
    sender: Sender, *, age_s: int, timely: bool
):
    """To the second, into the past as into the future."""
    body = sender.message()
    answer = await sender.send(body, sender.headers(body, at=NOW - age_s))
    if timely:
        assert answer.status_code == 202, answer.text
    else:
        told(answer, 401, "signature-untimely")


@pytest.mark.parametrize("times", [(150, 301, 450, 600), (299, 600)])
async def test_a_copy_is_known_for_as_long_as_it_would_be_timely(
    sender: Sender, times: tuple[int, ...]
):
    """Sent from the future, it is timely for twice as long; old ones are forgotten meanwhile."""
    body = sender.message()
    early = sender.headers(body, at=NOW + 300)
    assert (await sender.send(body, early)).status_code == 202
    for later in times:
        sender.clock[0] = NOW + later
        other = sender.message()
        assert (await sender.send(other, sender.headers(other))).status_code == 202
        told(await sender.send(body, early), 409, "replayed")
    sender.clock[0] = NOW + 601
    told(await sender.send(body, early), 401, "signature-untimely")


async def test_while_secrets_are_rotated_either_is_right(sender: Sender):
    for secret in (NEW, OLD):
        body = sender.message()
        assert (await sender.send(body, sender.headers(body, secret=secret))).status_code == 202
    body = sender.message()
    told(await sender.send(body, sender.headers(body, secret=LOST)), 401, "signature-wrong")


async def test_of_several_signatures_one_has_to_be_right(sender: Sender):
    def with_signatures(body: bytes, *texts: str) -> dict[str, str]:
        headers = sender.headers(body)
        right = headers["webhook-signature"]
        told_ = [text.replace("RIGHT", right.removeprefix("v1,")) for text in texts]
        return headers | {"webhook-signature": " ".join(told_)}

    wrong = f"v1,{base64.b64encode(b'w' * 32).decode()}"
    for texts, right in (
        ((wrong, "v1,RIGHT"), True),
        (("v1,RIGHT", wrong), True),
        (("v1a,RIGHT", "v1,RIGHT"), True),
        (("v1,!!!", "v1,RIGHT"), True),
        ((wrong, wrong), False),
        (("v2,RIGHT",), False),
        (("V1,RIGHT",), False),
        (("RIGHT",), False),
        (("v1=RIGHT",), False),
        (("v1,RIGHT,v1",), False),
        (("v1,",), False),
        (("",), False),
        (("v1,é",), False),
        ((wrong,) * 20 + ("v1,RIGHT",), False),  # nobody is made to compare without end
    ):
        body = sender.message()
        headers = with_signatures(body, *texts)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        answer = await sender.send(body, raw)
        if right:
            assert answer.status_code == 202, (texts, answer.text)
        else:
            told(answer, 401, "signature-wrong")


async def test_whatever_was_changed_on_the_way_is_noticed(sender: Sender):
    body = sender.message()
    before = await sender.fleet.written()
    for other in (body.replace(b"noop", b"look"), body + b" ", body.replace(b", ", b","), b""):
        told(await sender.send(other, sender.headers(body)), 401, "signature-wrong")
    for name, value in (
        ("webhook-id", "msg_other"),
        ("webhook-timestamp", str(int(NOW) - 1)),
    ):
        changed = sender.headers(body) | {name: value}
        told(await sender.send(body, changed), 401, "signature-wrong")
    assert await sender.fleet.written() == before


async def test_what_is_signed_in_a_wrong_way_is_told_how(sender: Sender):
    body = sender.message()
    good = sender.headers(body)
    for name in WEBHOOK_HEADERS:
        without = {key: value for key, value in good.items() if key != name}
        problem = told(await sender.send(body, without), 401, "signature-malformed")
        assert name in str(problem["detail"])
        twice = [*good.items(), (name, good[name])]
        told(await sender.send(body, twice), 401, "signature-malformed")
    for name, value in (
        ("webhook-id", ""),
        ("webhook-id", "a.b"),
        ("webhook-id", "a b"),
        ("webhook-id", "x" * 256),
        ("webhook-timestamp", ""),
        ("webhook-timestamp", "now"),
        ("webhook-timestamp", "-1"),
        ("webhook-timestamp", "1e9"),
        ("webhook-timestamp", "1800000000.0"),
        ("webhook-timestamp", "9" * 12),
    ):
        told(await sender.send(body, good | {name: value}), 401, "signature-malformed")
    told(await sender.send(body, good | {"webhook-timestamp": "9" * 11}), 401, "signature-untimely")


async def test_the_signature_is_checked_before_anything_is_parsed(sender: Sender):
    """Who is not known learns nothing about the body, and who is known learns what is wrong."""
    for body, status, code in (
        (b"{", 400, "json-malformed"),
        (b"", 400, "json-malformed"),
        (b'{"external_id": "a", "external_id": "b"}', 400, "json-malformed"),
        (b"[" * 100_000, 400, "json-malformed"),
        (b"{}", 422, "invalid"),
    ):
        told(await sender.send(body, sender.headers(body)), status, code)
        told(await sender.send(body, sender.headers(body, secret=LOST)), 401, "signature-wrong")
    told(await sender.send(b"{", {"Content-Type": "application/json"}), 401, "key-missing")
    no_text = b'{"external_id": "\xff"}'
    told(await sender.send(no_text, sender.headers(no_text)), 401, "signature-wrong")
    good = sender.message()
    plain = sender.headers(good) | {"Content-Type": "text/plain"}
    told(await sender.send(good, plain), 415, "type-unsupported")


async def test_a_key_besides_says_who_it_is_and_both_have_to_be_right(
    sender: Sender, key_for: KeyFor
):
    body = sender.message()
    ann = await key_for("operator", person="ann")
    answer = await sender.send(body, sender.headers(body) | ann)
    asked = "SELECT requested_by FROM jobs WHERE id = $1"
    assert await sender.fleet.pool.fetchval(asked, answer.json()["job_id"]) == "ann"
    wrong = sender.headers(body, secret=LOST) | ann
    told(await sender.send(body, wrong), 401, "signature-wrong")
    viewer = sender.headers(body) | await key_for("viewer")
    told(await sender.send(body, viewer), 403, "permission-missing")
    nobody = sender.headers(body) | {"Authorization": f"Bearer onw_{'x' * 43}"}
    told(await sender.send(body, nobody), 401, "key-unknown")


async def test_a_signature_opens_no_other_door(sender: Sender):
    body = sender.message()
    headers = sender.headers(body)
    for path in ("/jobs/plan", "/jobs/1/cancel"):
        told(await sender.client.post(path, content=body, headers=headers), 401, "key-missing")


async def test_without_secrets_no_signature_is_right(app: FastAPI, sender: Sender):
    body = sender.message()
    async with calling(app) as client:
        answer = await client.post(PATH, content=body, headers=sender.headers(body))
        told(answer, 401, "signature-unknown")


async def test_a_plan_can_be_named_in_a_signed_message_too(sender: Sender):
    body = sender.message()
    stale = {"If-Match": f'"plan-{"0" * 32}"'}
    refused = await sender.send(body, sender.headers(body) | stale)
    told(refused, 412, "plan-changed")
    present = {"If-Match": refused.headers["etag"]}
    assert (await sender.send(body, sender.headers(body) | present)).status_code == 202


@pytest.mark.parametrize(
    "secret",
    [" ", "canary", "whsec_", "whsec_c2hvcnQ=", f"{NEW},", f"{NEW},whsec_canary", "whsec_é"],
)
async def test_a_secret_that_is_none_is_refused_at_the_start_and_not_repeated(
    opened: Onward, secret: str
):
    settings = settings_for(str(opened.database_url), webhook_secrets=secret)
    with pytest.raises(InvalidInput, match="not whsec_ and at least 24 bytes") as refused:
        Signatures(secrets_of(settings), pool=opened.commands.pool)
    for part in ("canary", "c2hvcnQ", NEW, "é"):
        assert part not in str(refused.value)
