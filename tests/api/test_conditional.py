"""The guard before a change: what it answers, and that its lock is free whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import httpx2
import pytest
import redis
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

from onward.api.app import create_app
from onward.api.conditional import TOKEN, Guard, Seen, etag
from onward.api.models import Model
from onward.api.permissions import Permission, needs
from onward.api.problems import Problem
from onward.api.routing import DirectRoute, router
from onward.api.services import Services
from onward.store import locks as store
from onward.store.locks import Locks
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.api.test_jobs import SEEN, get, waiting
from tests.mortal_valkey import MortalValkey, mortal_valkey
from tests.proof_table import Tried
from tests.steps import cancelled_at

NOBODYS = "00000000-0000-0000-0000-000000000000"  # of somebody who has bought nothing yet
TOKEN_NOW = "0190b3d4-7c5e-7f00-8000-0123456789ab"  # noqa: S105 - a tag
KEY = "onward:lock:thing"
BOUND_S = 30.0


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Nothing here minds what another test has left behind."""
    return shared


@pytest.fixture
def held(redis_url: str) -> Iterator[Callable[[], set[str]]]:
    """What locks there are."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        yield lambda: {key.decode() for key in client.scan_iter("onward:lock:*")}


class Wanted(Model):
    """What is to be done with the thing."""

    what: str = ""


@dataclass
class Thing:
    """A resource with one token, and what was seen while it was changed."""

    held: Callable[[], set[str]]
    token: str = NOBODYS
    seen_held: list[set[str]] = field(default_factory=list)

    def change(self, seen: Seen, what: str) -> dict[str, str]:
        self.seen_held.append(self.held())
        if what == "fail":
            raise ZeroDivisionError
        if what == "refuse":
            raise Problem(418, "teapot", "No")
        if seen.tag != self.token:
            raise seen.stale(self.token)
        return {"token": seen.tag}


async def _current(request: Request) -> str | None:
    token: str = request.app.state.thing.token
    return None if "nothing" in request.url.path else token


GUARD = Guard("thing", current=_current, lock=lambda _: "thing", tags=TOKEN)
SeenThing = Annotated[Seen, Depends(GUARD, scope="function")]


def both_kinds(thing: Thing) -> list[APIRouter]:
    """The thing behind a route that FastAPI calls, and behind one that it does not."""
    asked = GUARD.on(needs(Permission.PUBLIC))
    usual = router("/usual", "things")
    direct = router("/direct", "things", route_class=DirectRoute)

    @usual.put("/{name}", **asked)
    async def change_usual(
        name: str,  # noqa: ARG001 - so that it is in the address
        seen: SeenThing,
        wanted: Wanted | None = None,
    ) -> dict[str, str]:
        return thing.change(seen, wanted.what if wanted else "")

    @direct.put("/{name}", **asked)
    async def change_direct(request: Request) -> Response:
        async with GUARD.holding(request) as seen:
            wanted = await request.json() if await request.body() else {}
            done = thing.change(seen, wanted.get("what", ""))
        return JSONResponse(done)

    return [usual, direct]


@pytest.fixture
def thing(held: Callable[[], set[str]]) -> Thing:
    return Thing(held)


@pytest.fixture
def things(services: Services, thing: Thing) -> FastAPI:
    app = create_app(services, routers=both_kinds(thing))
    app.state.thing = thing
    return app


@pytest.fixture
async def client(things: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    async with calling(things) as found:
        yield found


both = pytest.mark.parametrize("path", ["/usual/one", "/direct/one"])


# What it answers

TOKENS: dict[str, tuple[str | None, int, str]] = {
    "missing": (None, 428, "if-match-required"),
    "any": ("*", 428, "if-match-required"),
    "a version": ('"1"', 400, "if-match-malformed"),
    "upper case": (f'"{TOKEN_NOW.upper()}"', 400, "if-match-malformed"),
    "braces": (f'"{{{TOKEN_NOW}}}"', 400, "if-match-malformed"),
    "no hyphens": (f'"{TOKEN_NOW.replace("-", "")}"', 400, "if-match-malformed"),
    "one digit too few": (f'"{TOKEN_NOW[:-1]}"', 400, "if-match-malformed"),
    "a list": (f'"{TOKEN_NOW}", "{NOBODYS}"', 400, "if-match-malformed"),
    "weak": (f'W/"{TOKEN_NOW}"', 412, "stale"),
    "stale": (f'"{NOBODYS}"', 412, "stale"),
}


@both
async def test_the_table_of_if_match_for_tokens(
    client: httpx2.AsyncClient, thing: Thing, path: str
):
    thing.token = TOKEN_NOW
    for case, (value, status, code) in TOKENS.items():
        headers = {} if value is None else {"If-Match": value}
        answer = await client.put(path, headers=headers)
        problem = told(answer, status, code)
        if status == 412:
            assert answer.headers["etag"] == problem["etag"] == etag(TOKEN_NOW), case
            assert problem["token"] == TOKEN_NOW
        assert thing.held() == set(), case
    taken = await client.put(path, headers={"If-Match": etag(TOKEN_NOW)})
    assert taken.json() == {"token": TOKEN_NOW}


@both
async def test_the_token_of_nobody_is_a_tag_like_others(client: httpx2.AsyncClient, path: str):
    answer = await client.put(path, headers={"If-Match": etag(NOBODYS)})
    assert answer.json() == {"token": NOBODYS}


async def test_a_weak_tag_of_what_has_no_tag_is_refused_without_one(client: httpx2.AsyncClient):
    answer = await client.put("/usual/nothing", headers={"If-Match": f'W/"{NOBODYS}"'})
    told(answer, 412, "stale")
    assert "etag" not in answer.headers


@both
async def test_while_another_process_holds_the_lock_it_is_409_with_a_time(
    client: httpx2.AsyncClient, thing: Thing, redis_url: str, path: str
):
    other = Locks(redis_url)
    lease = await other.take("thing")
    assert lease is not None
    answer = await client.put(path, headers={"If-Match": etag(NOBODYS)})
    told(answer, 409, "locked")
    assert answer.headers["retry-after"] == "1"
    assert thing.seen_held == []
    # What cannot be right is said without asking for the lock.
    told(await client.put(path), 428, "if-match-required")
    told(await client.put(path, headers={"If-Match": "x"}), 400, "if-match-malformed")
    told(await client.put(path, headers={"If-Match": f'W/"{NOBODYS}"'}), 412, "stale")
    await other.free(lease)
    await other.close()
    answer = await client.put(path, headers={"If-Match": etag(NOBODYS)})
    assert answer.status_code == 200


def test_the_description_says_what_is_asked_for_and_answered(things: FastAPI):
    for path in ("/usual/{name}", "/direct/{name}"):
        said = things.openapi()["paths"][path]["put"]
        (header,) = [each for each in said["parameters"] if each["in"] == "header"]
        assert (header["name"], header["required"]) == ("If-Match", True)
        assert header["example"] == etag(TOKEN.example)
        assert {"400", "409", "412", "428"} <= said["responses"].keys()


# Free, whatever happens


@both
@pytest.mark.parametrize(
    ("tag", "body", "status"),
    [
        (NOBODYS, {}, 200),
        (TOKEN_NOW, {}, 412),
        (NOBODYS, {"what": "refuse"}, 418),
        (NOBODYS, {"what": "fail"}, 500),
    ],
)
async def test_the_lock_is_held_while_the_handler_runs_and_free_when_the_answer_goes_out(
    things: FastAPI, thing: Thing, *, path: str, tag: str, body: dict[str, Any], status: int
):
    """Not a moment after: the caller's next request would meet it."""
    free_at: list[set[str]] = []

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            free_at.append(thing.held())
            assert message["status"] == status

    async def asked(scope: Any, receive: Any, send: Any) -> None:
        async def both_ways(message: Message) -> None:
            await sent(message)
            await send(message)

        await things(scope, receive, both_ways)

    transport = httpx2.ASGITransport(app=asked)
    async with httpx2.AsyncClient(transport=transport, base_url="http://onward.test") as client:
        answer = await client.put(path, json=body, headers={"If-Match": etag(tag)})
    assert answer.status_code == status
    assert thing.seen_held == [{KEY}]
    assert free_at == [set()]


async def test_a_body_that_is_wrong_leaves_no_lock(client: httpx2.AsyncClient, thing: Thing):
    headers = {"If-Match": etag(NOBODYS)}
    told(await client.put("/usual/one", json={"what": 1}, headers=headers), 422, "invalid")
    assert (thing.held(), thing.seen_held) == (set(), [])


async def test_an_approval_that_is_cancelled_wherever_it_waits_leaves_no_lock_and_nothing_half(
    fleet: Fleet,
    people: People,
    app: FastAPI,
    key_for: KeyFor,
    locks: Locks,
    held: Any,
    tried: Tried,
):
    """Its connection is gone; the job is approved or it is not, and whoever is next may decide."""
    headers = {**await key_for("approver", person="bob"), **SEEN}
    step, ends = 0, Counter[str]()
    going_on = True
    while going_on:
        job_id = await waiting(fleet, people, hosts=1)
        async with calling(app, headers) as client:
            work = client.post(f"/jobs/{job_id}/approve")
            going_on = await cancelled_at(step, work)
        step += 1
        # What it has still to say to the server goes before what we ask of it.
        lease = await locks.take("behind it")
        assert lease is not None
        await locks.free(lease)
        assert held() == set(), step
        job = await get(people.vic, f"/jobs/{job_id}")
        ends[job["approval_state"]] += 1
        assert (job["approval_state"], job["version"]) in {("WAIT_APPROVAL", 1), ("APPROVED", 2)}
        told_jobs = await fleet.pool.fetchval(
            "SELECT count(*) FROM outbox WHERE job_id = $1", job_id
        )
        assert told_jobs == (job["approval_state"] == "APPROVED")
        answer = await people.eve.post(f"/jobs/{job_id}/approve", headers=SEEN)
        assert answer.status_code == (200 if job["version"] == 1 else 409)
        assert answer.status_code == 200 or answer.json()["code"] == "job-stands-otherwise"
    assert min(ends["WAIT_APPROVAL"], ends["APPROVED"]) >= 1
    tried("places to cancel an approval in", step - 1, "no lock left, nothing half")


# With many at once, and with a server that comes and goes


async def test_of_fifty_approvals_of_one_version_one_is_made(
    fleet: Fleet, people: People, services: Services, redis_url: str, key_for: KeyFor
):
    """From two processes' worth of locks."""
    job_id = await waiting(fleet, people)
    headers = {**await key_for("approver", person="bob"), **SEEN}
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            locks = Locks(redis_url)
            stack.push_async_callback(locks.close)
            other = create_app(replace(services, locks=locks))
            clients.append(await stack.enter_async_context(calling(other, headers)))
        answers = await asyncio.gather(
            *(clients[n % 2].post(f"/jobs/{job_id}/approve") for n in range(50))
        )
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses[200] == 1
    assert statuses.keys() <= {200, 409, 412}
    assert (await get(people.vic, f"/jobs/{job_id}"))["version"] == 2


@pytest.mark.parametrize("blow", ["strike_down", "empty", "stop"])
async def test_answers_stay_right_when_the_server_of_the_locks_fails_in_the_middle(
    *,
    fleet: Fleet,
    people: People,
    services: Services,
    key_for: KeyFor,
    blow: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(store, "_REST_S", 0.02)
    headers = await key_for("approver", person="bob")
    with mortal_valkey() as valkey:
        locks = Locks(valkey.url, patience_s=0.05)
        async with calling(create_app(replace(services, locks=locks)), headers) as client:
            for at in (0, 5, 15):
                job_id = await waiting(fleet, people, hosts=1)
                asked = [
                    asyncio.create_task(client.post(f"/jobs/{job_id}/approve", headers=SEEN))
                    for _ in range(20)
                ]
                for _ in range(at):
                    await asyncio.sleep(0)
                getattr(valkey, blow)()
                answers = await asyncio.gather(*asked)
                statuses = Counter(answer.status_code for answer in answers)
                assert statuses[200] == 1
                assert statuses.keys() <= {200, 409, 412}
                assert (await get(people.vic, f"/jobs/{job_id}"))["version"] == 2
                _revive(valkey, blow)
            async with asyncio.timeout(BOUND_S):
                while valkey.holds():  # noqa: ASYNC110 - another process holds them
                    await asyncio.sleep(0.01)
            await locks.close()


def _revive(valkey: MortalValkey, blow: str) -> None:
    if blow == "strike_down":
        valkey.raise_up()
    valkey.go_on()
