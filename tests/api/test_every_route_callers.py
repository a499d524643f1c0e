"""On every route: who is let in, what nobody gets to see, and what is said when nothing works."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx2
import pytest
import structlog
from standardwebhooks import Webhook

import onward
from onward.api.app import create_app
from onward.api.first_key import first_key
from onward.api.permissions import GRANTS, Permission, Role
from onward.service.serving import services as services_for
from tests.api import catalogue
from tests.api.asking_routes import Answer, Draft, ask
from tests.api.catalogue import CANARY
from tests.api.conftest import PLATFORMS
from tests.api.judge import TAKEN, Judge
from tests.api.relay import Relay, relayed
from tests.cli.running import BOUND_S, folder_for_servers, on_database, onward_up
from tests.conftest import settings_for
from tests.proof_table import Tried

numbers = count(1)

PUBLIC: Final = {
    *("/health/live", "/health/ready", "/openapi.json", "/docs", "/docs/static/{name}"),
    *("/agents/enrol", "/session", "/", "/dashboard/{digest}/{name:path}"),
}

DATABASE_PASSWORD: Final = "database-password-4711"  # noqa: S105 - looked for where it must not be
ADMIN_KEY: Final = "admin-key-of-the-environment-0123456789"
WEBHOOK_SECRET: Final = f"whsec_{base64.b64encode(b'canary' * 6).decode()}"
# What was asked for is shown to whoever may see what was asked for, and there only.
SHOWS_PARAMS: Final = {
    *("GET /jobs", "GET /jobs/{job_id}", "GET /jobs/{job_id}/plan", "PATCH /jobs/{job_id}"),
    *(f"POST /jobs/{{job_id}}/{deed}" for deed in ("approve", "cancel", "pause", "reject")),
    *("POST /jobs/{job_id}/resume", "GET /commands/{cmd_id}", "GET /overview"),
}


@dataclass(frozen=True)
class Guarded:
    """An application whose secrets are known to us, and a way to its database."""

    judge: Judge
    relay: Relay


@pytest.fixture(scope="module")
async def guarded(shared_url: str, *, proof: bool) -> AsyncIterator[Guarded]:
    """One for all tests."""
    async with relayed(shared_url, password=DATABASE_PASSWORD) as relay:
        settings = settings_for(
            relay.url,
            webhook_secrets=WEBHOOK_SECRET,
            admin_key=ADMIN_KEY,
            pool_size=4,
            platforms=PLATFORMS,
        )
        async with onward.open(settings) as opened:
            pool = opened.commands.pool
            services = services_for(opened)
            await first_key(pool, settings)
            judge = await Judge.made(create_app(services), services, proof=proof)
            yield Guarded(judge, relay)


@pytest.fixture
async def judge(guarded: Guarded) -> Judge:
    """Somebody who may do everything, and looks at what comes of it."""
    await guarded.judge.world.renew()
    return replace(guarded.judge, asked=0, wrong=[])


# Who is let in


def test_only_these_routes_are_open_to_everybody(judge: Judge):
    for operation in judge.operations():
        route = operation.route
        assert (route.permission is Permission.PUBLIC) == (route.path in PUBLIC), route.path
        described = judge.app.openapi()["paths"].get(route.path)
        if described is not None:
            said = described[operation.method.lower()]["x-permission"]
            assert said == route.permission.value


async def test_every_role_is_let_in_where_it_may_and_nowhere_else(judge: Judge, tried: Tried):
    for role in Role:
        _, key = await judge.key_of(role)
        for operation in judge.operations():
            draft = with_key(judge.fresh(operation), key)
            permission = operation.route.permission
            everybody = permission in {Permission.ANY, Permission.PUBLIC}
            granted = everybody or permission in GRANTS[role]
            answer = await judge.of(draft, role, statuses=TAKEN if granted else {403})
            if answer.status == 403:
                assert answer.json()["permission"] == permission
    judge.sum_up(tried, "roles")


async def test_whoever_does_not_say_who_they_are_is_let_in_nowhere(judge: Judge, tried: Tried):
    for operation in judge.operations():
        expected = TAKEN if operation.route.permission is Permission.PUBLIC else {401}
        for case, said in catalogue.AUTHORIZATIONS.items():
            draft = judge.fresh(operation).with_headers(b"authorization", *said)
            await judge.of(draft, case, statuses=expected)
        # Of two keys that are both right, a proxy may have believed the other.
        right = bearer(judge.key)
        draft = judge.fresh(operation).with_headers(b"authorization", right, right)
        await judge.of(draft, "twice", statuses=expected)
    judge.sum_up(tried, "strange keys")


async def test_a_key_that_is_revoked_opens_nothing_from_that_moment_on(judge: Judge, tried: Tried):
    (me,) = [each for each in judge.operations() if each.route.path == "/me"]
    (revoke,) = [each for each in judge.operations() if str(each) == "DELETE /keys/{key_id}"]
    for operation in judge.operations():
        if operation.route.permission is Permission.PUBLIC:
            continue
        key_id, key = await judge.key_of("admin")
        await judge.of(with_key(judge.fresh(me), key), "before", statuses={200})
        gone = judge.fresh(revoke).in_path("key_id", str(key_id).encode())
        await judge.of(gone, "revoked", statuses={204})
        await judge.of(with_key(judge.fresh(operation), key), "after", statuses={401})
    judge.sum_up(tried, "revoked keys")


def with_key(draft: Draft, key: str) -> Draft:
    return draft.with_headers(b"authorization", bearer(key))


# What nobody gets to see


@dataclass
class Ear:
    """Hears everything that is logged by anybody, in whatever way."""

    heard: list[str] = field(default_factory=list)

    def hears(self, secret: str) -> bool:
        return any(secret in line for line in self.heard)


@contextmanager
def listening() -> Iterator[Ear]:
    """Hear what is logged meanwhile."""
    ear = Ear()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            ear.heard.append(f"{record.getMessage()} {record.exc_text or ''} {vars(record)}")

    handler, root = Handler(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with structlog.testing.capture_logs() as lines:
            yield ear
        ear.heard += map(str, lines)
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


def signature(text: str, *, wrong: bool = False) -> dict[str, str]:
    """The headers of a message that is signed, so that it needs no key."""
    now, message = datetime.now(UTC), f"message-{next(numbers)}"
    return {
        "webhook-id": "another" if wrong else message,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(WEBHOOK_SECRET).sign(message, now, text),
    }


def signed(draft: Draft, *, wrong: bool = False) -> Draft:
    draft = draft.with_headers(b"authorization")
    for name, value in signature(draft.body.decode(), wrong=wrong).items():
        draft = draft.with_headers(name.encode(), value.encode())
    return draft


def plotted(fresh: Callable[[], Draft]) -> Iterator[Draft]:
    """Requests with secrets in them, where they belong and where they do not."""
    yield fresh()
    yield with_key(fresh(), ADMIN_KEY)
    yield with_key(fresh(), f"{CANARY}-{CANARY}")
    yield fresh().with_headers(b"authorization", f"Basic {CANARY}".encode())
    yield fresh().with_headers(b"cookie", CANARY.encode()).in_query("token", CANARY.encode())
    draft = fresh()
    if isinstance(draft.value, dict):
        if "params" in draft.value:
            yield fresh().with_field(("params",), json.dumps({"password": CANARY}).encode())
        yield fresh().with_body(json.dumps({**draft.value, "password": CANARY}).encode())
        yield fresh().with_body(f'{{"password": "{CANARY}'.encode())
        yield fresh().with_headers(b"content-type", CANARY.encode())
    if draft.operation.route.signed:
        message = signed(fresh())
        yield message
        yield message  # A copy, which is refused.
        yield signed(fresh(), wrong=True)


async def test_no_secret_is_in_any_answer_or_any_log(judge: Judge, tried: Tried):
    """Whether a request succeeds or fails. What a job is asked with is shown where jobs are."""
    secrets = {judge.key, judge.world.key, ADMIN_KEY, DATABASE_PASSWORD}
    secrets |= {WEBHOOK_SECRET, WEBHOOK_SECRET[6:]}
    statuses: Counter[int] = Counter()
    shown: set[str] = set()
    with listening() as ear:
        for operation, kind in judge.ways():
            for draft in plotted(partial(judge.fresh, operation, kind)):
                answer = await ask(judge.app, draft, (b"authorization", bearer(judge.key)))
                if await judge.world.changed():
                    await judge.world.renew()
                statuses[answer.status] += 1
                assert not any(map(answer.says, secrets)), (operation, answer)
                if answer.says(CANARY):
                    shown.add(str(operation))
                if operation.route.path == "/keys" and answer.status == 201:
                    secrets.add(answer.json()["key"])
    tried("secrets on every route", statuses.total())
    assert {200, 201, 202, 204, 400, 401, 409, 415, 422} <= statuses.keys()
    assert shown == SHOWS_PARAMS
    assert ear.heard
    for secret in (*secrets, CANARY):
        assert not ear.hears(secret)


# When nothing works


async def test_without_the_database_every_route_says_so_and_finds_its_way_back(
    judge: Judge, guarded: Guarded, tried: Tried
):
    with listening() as ear:
        for operation, kind in judge.ways():
            draft = judge.fresh(operation, kind)
            await guarded.relay.cut()
            told_away(await ask(judge.app, draft, (b"authorization", bearer(judge.key))))
            # A key that nobody has asked for lately is not believed without the database.
            judge.services.keys.forget()
            answer = await ask(judge.app, draft, (b"authorization", bearer(judge.key)))
            told_away(answer)
            assert answer.status == 503 or operation.route.path in PUBLIC
            await guarded.relay.mend()
            await judge.world.renew()
            await judge.of(judge.fresh(operation, kind), "back again", statuses=TAKEN)
    judge.sum_up(tried, "cut connections")
    assert any("PostgreSQL did not answer" in line for line in ear.heard)
    for secret in (DATABASE_PASSWORD, judge.key, judge.world.key, CANARY):
        assert not ear.hears(secret)


def told_away(answer: Answer) -> None:
    """Whoever cannot be answered is told to come again, and nothing of where the database is."""
    # Whoever has no session is logged out without anybody being asked.
    assert answer.status in {200, 204, 503}, answer
    if answer.status == 503:
        problem = answer.json()
        assert problem["code"] in {"unavailable", "not-ready"}
        assert int(answer.headers[b"retry-after"]) > 0
        assert not answer.says("127.0.0.1")


def bearer(key: str) -> bytes:
    return f"Bearer {key}".encode()


# A process of its own


def test_no_secret_is_in_what_a_process_says(database_url: str):
    """Its log as it is written, through whatever renders it; also of what is no request at all."""
    parts = urlsplit(database_url)
    login = f"{parts.username or 'postgres'}:{DATABASE_PASSWORD}@{parts.hostname or ''}"
    url = urlunsplit(parts._replace(netloc=login))
    settings = {
        **on_database(url),
        "ONWARD_ADMIN_KEY": ADMIN_KEY,
        "ONWARD_WEBHOOK_SECRETS": WEBHOOK_SECRET,
    }
    with folder_for_servers() as folder:
        with onward_up(folder, "--access-log", **settings) as up:
            call_with_secrets(up.address)
            asyncio.run(break_connections(database_url))
            call_with_secrets(up.address)
            up.stop()
        said = up.said + up.log.read_text("utf-8")
    assert "turned away" in said
    for secret in (DATABASE_PASSWORD, ADMIN_KEY, WEBHOOK_SECRET[6:], CANARY):
        assert secret not in said


def call_with_secrets(address: str) -> None:
    """Call in every way that may be logged; what comes back is not looked at here."""
    body = {"external_id": "x", "command_type": "x", "selector": "all", "params": {"a": CANARY}}
    text = json.dumps(body)
    known = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    with httpx2.Client(base_url=address, headers=known, timeout=BOUND_S) as client:
        for path in ("/me", "/jobs", "/nothing", "/health/ready"):
            client.get(path)
        for content in (text, text[:-2]):
            client.post("/webhook/jobs", content=content)
        client.get("/me", headers={"Authorization": f"Bearer {CANARY}-{CANARY}"})
        client.get("/me", headers={"X-Request-Id": f"{CANARY}!"})
        del client.headers["Authorization"]
        for wrong in (False, True):
            headers = signature(text, wrong=wrong)
            client.post("/webhook/jobs", content=text, headers=headers)
    where = urlsplit(address)
    with socket.create_connection((where.hostname, where.port), timeout=BOUND_S) as line:
        line.sendall(f"{ADMIN_KEY} {CANARY}\r\nAuthorization: Bearer {CANARY}\r\n\r\n".encode())
        assert line.recv(1_000)


async def break_connections(url: str) -> None:
    """Break every connection to a database but our own."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()
