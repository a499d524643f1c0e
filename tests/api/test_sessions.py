"""Logging in with a browser: what it is given, what that is good for, and what nobody can forge."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.cookies import Morsel, SimpleCookie
from typing import Final

import httpx2
import pytest
from fastapi import FastAPI

from onward.api.app import create_app
from onward.api.permissions import Permission, Role
from onward.api.services import Services
from onward.store.keys import Keys
from onward.store.sessions import Sessions
from onward.wiring import Onward
from tests.api.asking_hosts import fresh
from tests.api.asking_routes import operations
from tests.api.conftest import BASE, KeyFor, calling
from tests.api.test_foundation import address, told
from tests.present import TESTER

NAME: Final = "onward_session"
PAGE: Final = {"X-Onward-Page": "1"}
UNKNOWN: Final = "a" * 43  # a secret as ours are, and none of them


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Nothing here minds what another test has left behind."""
    return shared


@pytest.fixture
async def nobody(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser that has not logged in, and keeps no cookies by itself."""
    async with calling(app) as found:
        yield found


@pytest.fixture
async def key(key_for: KeyFor) -> str:
    """The key of an operator."""
    return bare(await key_for("operator"))


def bare(headers: Mapping[str, str]) -> str:
    return headers["Authorization"].removeprefix("Bearer ")


async def logged_in(app: FastAPI, key: str) -> str:
    """Log in; returns the secret that the browser is given."""
    async with calling(app) as browser:
        answer = await browser.post("/session", json={"key": key})
        assert answer.status_code == 201, answer.text
        return cookie_of(answer).value


def cookie_of(answer: httpx2.Response) -> Morsel[str]:
    """The one cookie that an answer sets."""
    (said,) = answer.headers.get_list("set-cookie")
    return SimpleCookie(said)[NAME]


def cookie(secret: str) -> dict[str, str]:
    return {"Cookie": f"{NAME}={secret}"}


def page(secret: str) -> dict[str, str]:
    """What a page of ours sends."""
    return {**cookie(secret), **PAGE}


# Logging in


async def test_a_browser_that_logs_in_is_told_who_it_is_and_keeps_a_secret_of_its_own(
    nobody: httpx2.AsyncClient, services: Services, key: str
):
    answer = await nobody.post("/session", json={"key": key})
    assert answer.status_code == 201
    (said,) = answer.headers.get_list("set-cookie")
    secret, *attributes = said.removeprefix(f"{NAME}=").split("; ")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", secret)
    assert sorted(attributes) == ["HttpOnly", "Max-Age=43200", "Path=/", "SameSite=strict"]
    assert key not in answer.text + said
    assert secret not in answer.text

    nobody.cookies.clear()
    me = (await nobody.get("/me", headers=page(secret))).json()
    assert me == answer.json()
    by_key = (await nobody.get("/me", headers={"Authorization": f"Bearer {key}"})).json()
    assert by_key == {**me, "session": None}
    until = datetime.fromisoformat(me["session"]["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=11.9) < until <= timedelta(hours=services.settings.session_hours)


async def test_what_is_stored_opens_nothing(app: FastAPI, services: Services, key: str):
    """Neither the secret nor the key is in any row; two browsers have two secrets."""
    first, second = await logged_in(app, key), await logged_in(app, key)
    assert first != second
    rows = await services.pool.fetch("SELECT to_jsonb(s)::text AS text FROM sessions s")
    stored = "".join(row["text"] for row in rows)
    for secret in (first, second):
        assert hashlib.sha256(secret.encode()).hexdigest() in stored
        assert secret not in stored
    assert key not in stored


@pytest.mark.parametrize(
    ("base", "headers", "secure"),
    [
        (BASE, {}, False),
        (BASE.replace("http:", "https:"), {}, True),
        # A proxy before us speaks TLS.
        (BASE, {"Origin": "https://onward.example"}, True),
        (BASE, {"X-Forwarded-Proto": "https"}, True),
        (BASE, {"Origin": BASE, "X-Forwarded-Proto": "http"}, False),
    ],
)
async def test_the_cookie_of_an_encrypted_page_is_never_sent_in_the_clear(
    app: FastAPI, key: str, base: str, headers: dict[str, str], *, secure: bool
):
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=base, headers=headers) as browser:
        answer = await browser.post("/session", json={"key": key})
        assert bool(cookie_of(answer)["secure"]) is secure
        gone = await browser.delete("/session", headers=page(cookie_of(answer).value))
        assert bool(cookie_of(gone)["secure"]) is secure


@pytest.mark.parametrize("role", Role)
async def test_a_session_may_what_its_key_may(app: FastAPI, key_for: KeyFor, role: Role):
    headers = await key_for(role)
    secret = await logged_in(app, bare(headers))
    async with calling(app, headers) as with_key, calling(app, page(secret)) as with_cookie:
        for path in ("/me", "/hosts", "/keys", "/api/v1/trading/deals"):
            statuses = {(await each.get(path)).status_code for each in (with_key, with_cookie)}
            assert len(statuses) == 1, path
        assert (await with_cookie.get("/me")).json()["role"] == role


async def test_a_wrong_key_logs_nobody_in(nobody: httpx2.AsyncClient, services: Services):
    before = await services.pool.fetchval("SELECT count(*) FROM sessions")
    answer = await nobody.post("/session", json={"key": f"onw_{UNKNOWN}"})
    told(answer, 401, "key-unknown")
    assert "set-cookie" not in answer.headers
    assert await services.pool.fetchval("SELECT count(*) FROM sessions") == before


async def test_a_revoked_key_logs_nobody_in(
    nobody: httpx2.AsyncClient, services: Services, key: str
):
    found = await services.keys.find(key.encode())
    assert found is not None
    # Elsewhere, so that this process still believes in it.
    await Keys(services.pool).revoke(found.id, by=TESTER)
    told(await nobody.post("/session", json={"key": key}), 401, "key-unknown")


async def test_whoever_guesses_has_to_wait(app: FastAPI, nobody: httpx2.AsyncClient, key: str):
    app.state.logins._clock = lambda: 0.0
    for _ in range(301):
        told(await nobody.post("/session", json={"key": f"onw_{UNKNOWN}"}), 401, "key-unknown")
    answer = await nobody.post("/session", json={"key": f"onw_{UNKNOWN}"})
    told(answer, 429, "too-many-tries")
    assert answer.headers["retry-after"] == "1"
    # Behind a proxy everybody has its address, also whoever has a key.
    assert (await nobody.post("/session", json={"key": key})).status_code == 201
    app.state.logins._clock = lambda: 1.0
    told(await nobody.post("/session", json={"key": f"onw_{UNKNOWN}"}), 401, "key-unknown")


@pytest.mark.parametrize("spoilt", [" {}", "{} ", "{}\n", "\t{}", "{}\u00e4", "{}\u200b", "onw {}"])
async def test_a_key_with_spaces_around_it_is_refused_with_a_sentence(
    nobody: httpx2.AsyncClient, key: str, spoilt: str
):
    answer = await nobody.post("/session", json={"key": spoilt.format(key)})
    problem = told(answer, 422, "invalid")
    assert problem["errors"] == [
        {
            "in": "body",
            "pointer": "/key",
            "detail": "a key has no spaces in it or around it, and nothing but ASCII",
        }
    ]
    assert key not in answer.text


# What the cookie is good for


async def test_the_cookie_alone_opens_nothing(app: FastAPI, key_for: KeyFor):
    """On every route, with the key of somebody who may do everything."""
    secret = await logged_in(app, bare(await key_for("admin")))
    asked = 0
    async with calling(app, cookie(secret)) as forged:
        for operation in operations(app):
            if operation.route.permission is not Permission.PUBLIC:
                answer = await forged.request(operation.method, address(operation.route))
                problem = told(answer, 401, "page-header-missing")
                assert "X-Onward-Page: 1" in str(problem["detail"])
                asked += 1
    assert asked > 50


FORGED: Final[Mapping[str, dict[str, str]]] = {
    "the cookie alone": {},
    "the header with another value": {"X-Onward-Page": "yes"},
    "from another site": {"Sec-Fetch-Site": "cross-site", **PAGE},
    "from a neighbour": {"Sec-Fetch-Site": "same-site", **PAGE},
    "from a site without a name": {"Sec-Fetch-Site": "", **PAGE},
    "from another site, without the header": {"Sec-Fetch-Site": "cross-site"},
    "a form": {"Content-Type": "application/x-www-form-urlencoded"},
    "a form with files": {"Content-Type": "multipart/form-data; boundary=x"},
    "plain text": {"Content-Type": "text/plain"},
}


@pytest.mark.parametrize("case", FORGED)
async def test_nothing_is_changed_by_what_another_site_has_a_browser_send(
    app: FastAPI, services: Services, key_for: KeyFor, case: str
):
    secret = await logged_in(app, bare(await key_for("admin")))
    name = fresh("forged-")
    sent = {"Content-Type": "application/json", **FORGED[case], **cookie(secret)}
    async with calling(app) as browser:
        me = (await browser.get("/me", headers=page(secret))).json()
        for answer in (
            await browser.post("/hosts", content=f'{{"name": "{name}"}}', headers=sent),
            await browser.delete(f"/keys/{me['key_id']}", headers=sent),
            await browser.delete("/session", headers=sent),
        ):
            assert answer.status_code in {401, 403}, answer.text
            told(answer, answer.status_code, answer.json()["code"])
        assert (await browser.get("/me", headers=page(secret))).json() == me
    assert not await services.pool.fetchval("SELECT count(*) FROM hosts WHERE name = $1", name)


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"]
)
async def test_what_a_form_can_send_is_not_taken_whatever_stands_beside_it(
    app: FastAPI, services: Services, key: str, kind: str
):
    name = fresh("form-")
    headers = {**page(await logged_in(app, key)), "Content-Type": kind}
    async with calling(app) as browser:
        answer = await browser.post("/hosts", content=f'{{"name": "{name}"}}', headers=headers)
        told(answer, 415, "type-unsupported")
    assert not await services.pool.fetchval("SELECT count(*) FROM hosts WHERE name = $1", name)


async def test_no_page_of_another_site_is_ever_allowed_to_send_the_header(
    nobody: httpx2.AsyncClient,
):
    asks = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-onward-page, content-type",
    }
    for path in ("/hosts", "/session", "/me", "/nothing"):
        answer = await nobody.options(path, headers=asks)
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_another_site_cannot_log_a_browser_in(nobody: httpx2.AsyncClient, key: str):
    """Its owner would do everything as somebody else."""
    for site in ("cross-site", "same-site"):
        answer = await nobody.post("/session", json={"key": key}, headers={"Sec-Fetch-Site": site})
        told(answer, 403, "cross-site")
        assert "set-cookie" not in answer.headers
    headers = {"Content-Type": "text/plain"}
    answer = await nobody.post("/session", content=f'{{"key": "{key}"}}', headers=headers)
    told(answer, 415, "type-unsupported")
    for site in ("same-origin", "none"):
        answer = await nobody.post("/session", json={"key": key}, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 201


async def test_of_a_key_and_a_cookie_the_key_counts(app: FastAPI, key_for: KeyFor, key: str):
    secret = await logged_in(app, key)
    bob = await key_for("viewer", person="bob")
    async with calling(app, page(secret)) as browser:
        me = (await browser.get("/me", headers=bob)).json()
        assert (me["person"], me["session"]) == ("bob", None)
        wrong = {"Authorization": f"Bearer onw_{UNKNOWN}"}
        told(await browser.get("/me", headers=wrong), 401, "key-unknown")
        # What a browser says to a proxy before us is not meant for us.
        mine = (await browser.get("/me", headers={"Authorization": "Basic eDp5"})).json()
        assert mine["person"] == "ann"
    async with calling(app) as program:
        told(await program.get("/me", headers={"Authorization": "Basic x"}), 401, "key-malformed")


BAD_COOKIES: Final[Mapping[str, tuple[str, tuple[bytes, ...]]]] = {
    "none of ours": ("key-missing", (b"session=x; onward_session2=y; onward_sessio=z",)),
    "not even a pair": ("key-missing", (b"onward_sessio", b"", b";;;", b"=")),
    "unknown": ("session-unknown", (b"onward_session=" + UNKNOWN.encode(),)),
    "empty": ("session-malformed", (b"onward_session=",)),
    "without a value": ("session-malformed", (b"onward_session",)),
    "short": ("session-malformed", (b"onward_session=" + b"a" * 42,)),
    "long": ("session-malformed", (b"onward_session=" + b"a" * 44,)),
    "gigantic": ("session-malformed", (b"onward_session=" + b"a" * 20_000,)),
    "in quotes": ("session-malformed", (b'onward_session="' + UNKNOWN.encode() + b'"',)),
    "bytes": ("session-malformed", (b"onward_session=" + b"\xff" * 43,)),
    "NUL": ("session-malformed", (b"onward_session=" + b"\x00" * 43,)),
    "SQL": ("session-malformed", (b"onward_session=' OR 1=1 --",)),
}


@pytest.mark.parametrize("case", BAD_COOKIES)
async def test_a_bad_cookie_is_told_as_what_it_is(app: FastAPI, case: str):
    code, said = BAD_COOKIES[case]
    headers = [(b"x-onward-page", b"1"), *((b"cookie", each) for each in said)]
    async with calling(app) as browser:
        for path in ("/me", "/hosts"):
            told(await browser.get(path, headers=headers), 401, code)
        # Whoever wants to be rid of it is.
        answer = await browser.delete("/session", headers=headers)
        assert answer.status_code == 204
        assert cookie_of(answer)["max-age"] == "0"


@pytest.mark.parametrize("joint", [b"; ", b"\n"])
async def test_of_two_cookies_neither_counts_and_both_can_be_ended(
    app: FastAPI, key: str, joint: bytes
):
    """A neighbour may have set the other one; a proxy before us might believe either."""
    ours, theirs = await logged_in(app, key), await logged_in(app, key)
    both = joint.join(f"{NAME}={each}".encode() for each in (ours, theirs))
    headers = [(b"x-onward-page", b"1"), *((b"cookie", each) for each in both.split(b"\n"))]
    async with calling(app) as browser:
        told(await browser.get("/me", headers=headers), 401, "session-malformed")
        assert (await browser.delete("/session", headers=headers)).status_code == 204
        for each in (ours, theirs):
            told(await browser.get("/me", headers=page(each)), 401, "session-unknown")


async def test_cookies_of_others_do_no_harm(app: FastAPI, key: str):
    secret = await logged_in(app, key)
    said = f"theme=dark; {NAME}2=x;{NAME}={secret};  other=a=b=c"
    async with calling(app) as browser:
        answer = await browser.get("/me", headers={**PAGE, "Cookie": said})
    assert answer.status_code == 200


# How a session ends


async def test_whoever_logs_out_is_out_and_only_they(app: FastAPI, key: str):
    laptop, phone = await logged_in(app, key), await logged_in(app, key)
    async with calling(app) as browser:
        answer = await browser.delete("/session", headers=page(laptop))
        assert (answer.status_code, answer.content) == (204, b"")
        gone = cookie_of(answer)
        assert (gone.value, gone["max-age"], gone["path"]) == ("", "0", "/")
        assert (await browser.get("/me", headers=page(phone))).status_code == 200
        problem = told(await browser.get("/me", headers=page(laptop)), 401, "session-unknown")
        assert "log in again" in str(problem["detail"])
        # Once more, or without ever having logged in, is as good.
        for headers in (page(laptop), PAGE, {}):
            assert (await browser.delete("/session", headers=headers)).status_code == 204


async def test_a_session_ends_with_its_key_at_once(
    app: FastAPI, client: httpx2.AsyncClient, services: Services, key: str
):
    secret = await logged_in(app, key)
    async with calling(app, page(secret)) as browser:
        me = (await browser.get("/me")).json()
        assert (await client.delete(f"/keys/{me['key_id']}")).status_code == 204
        told(await browser.get("/me"), 401, "session-unknown")
        # It is over for good, whatever becomes of the key.
        await services.pool.execute(
            "UPDATE api_keys SET revoked_at = NULL, revoked_by = NULL WHERE id = $1", me["key_id"]
        )
        services.keys.forget()
        told(await browser.get("/me"), 401, "session-unknown")


async def test_another_process_notices_within_a_second(app: FastAPI, services: Services, key: str):
    """Whether somebody logs out elsewhere, or their key is revoked there."""
    now = 0.0
    keys = Keys(services.pool)
    there = replace(services, keys=keys, sessions=Sessions(services.pool, keys, clock=lambda: now))
    first, second = await logged_in(app, key), await logged_in(app, key)
    async with calling(app) as here, calling(create_app(there)) as elsewhere:
        me = await elsewhere.get("/me", headers=page(first))
        assert me.status_code == 200
        await here.delete("/session", headers=page(first))
        assert (await elsewhere.get("/me", headers=page(first))).status_code == 200
        now = 1.0
        told(await elsewhere.get("/me", headers=page(first)), 401, "session-unknown")
        assert (await elsewhere.get("/me", headers=page(second))).status_code == 200
        await services.keys.revoke(me.json()["key_id"], by=TESTER)
        now = 2.0
        told(await elsewhere.get("/me", headers=page(second)), 401, "session-unknown")


async def test_a_session_ends_by_itself_and_is_cleared_away_by_the_next(
    app: FastAPI, services: Services, key: str
):
    over, open_ = await logged_in(app, key), await logged_in(app, key)
    digest = hashlib.sha256(over.encode()).digest()
    ended = "UPDATE sessions SET expires_at = now() WHERE digest = $1"
    assert await services.pool.execute(ended, digest) == "UPDATE 1"
    async with calling(app) as browser:
        told(await browser.get("/me", headers=page(over)), 401, "session-unknown")
        assert (await browser.get("/me", headers=page(open_))).status_code == 200
    await logged_in(app, key)
    there = "SELECT count(*) FROM sessions WHERE digest = $1"
    assert await services.pool.fetchval(there, digest) == 0
    opened = hashlib.sha256(open_.encode()).digest()
    assert await services.pool.fetchval(there, opened) == 1


async def test_how_long_a_session_lasts_is_a_setting(services: Services, key: str):
    settings = services.settings.model_copy(update={"session_hours": 0.5})
    async with calling(create_app(replace(services, settings=settings))) as browser:
        answer = await browser.post("/session", json={"key": key})
    assert cookie_of(answer)["max-age"] == "1800"
    until = datetime.fromisoformat(answer.json()["session"]["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=29) < until <= timedelta(minutes=30)
