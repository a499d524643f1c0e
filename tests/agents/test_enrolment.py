"""How an agent gets its key: with a token that is good once, and for nobody else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from onward.api.app import create_app
from onward.api.tries import Tries
from onward.service.serving import services as services_for
from onward.wiring import Onward
from tests.agents.ground import BOUND_S, Server, delivery, silent, until
from tests.present import TESTER

NONCE = "a nonce of an agent"


@pytest.fixture(scope="module")
async def admin(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody with the key of an admin."""
    _, key = await server.services.keys.make("tests", person="root", role="admin", by=TESTER)
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}",
        headers={"Authorization": f"Bearer {key}"},
        trust_env=False,
    ) as client:
        yield client


async def made(admin: httpx2.AsyncClient, name: str) -> tuple[int, str]:
    """A new host, and a token for it."""
    answer = await admin.post("/hosts", json={"name": name, "channel": "agent"})
    host_id = answer.json()["host_id"]
    return host_id, await token_for(admin, host_id)


async def token_for(admin: httpx2.AsyncClient, host_id: int, **body: float) -> str:
    answer = await admin.post(f"/hosts/{host_id}/enrolment", json=body or None)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


async def enrol(
    admin: httpx2.AsyncClient, token: str, nonce: str = NONCE
) -> tuple[int, dict[str, Any]]:
    answer = await admin.post("/agents/enrol", json={"token": token, "nonce": nonce})
    return answer.status_code, answer.json()


async def test_a_token_is_exchanged_for_a_key_that_opens_the_way(
    server: Server, admin: httpx2.AsyncClient
):
    before, _ = await made(admin, "never-enrolled-1")
    host_id, token = await made(admin, "enrolled-1")
    status, answer = await enrol(admin, token)
    assert (status, answer["host_id"], answer["host"]) == (200, host_id, "enrolled-1")
    assert answer["generation"] == 1
    key = base64.urlsafe_b64decode(answer["key"])
    agent = server.agent(host_id)
    assert key == agent.key
    async with server.connected(host_id):
        assert (await server.services.hub.deliver(delivery(host_id), silent)).succeeded
        listed = (await admin.get("/agents")).json()["items"]
        (shown,) = [each for each in listed if each["host_id"] == host_id]
        assert (shown["host"], shown["connected"]) == ("enrolled-1", True)
        assert (await admin.get("/agents", params={"host_id": host_id})).json()["items"] == [shown]
        # Not the next one that there is.
        for other in (before, host_id + 1):
            assert (await admin.get("/agents", params={"host_id": other})).json()["items"] == []


async def test_the_same_token_and_nonce_may_ask_again_and_nobody_else(
    server: Server, admin: httpx2.AsyncClient
):
    _, token = await made(admin, "enrolled-2")
    (first, again) = [await enrol(admin, token) for _ in range(2)]
    assert first[0] == again[0] == 200
    # Only the clock has gone on.
    assert first[1] | {"server_time": 0} == again[1] | {"server_time": 0}
    status, problem = await enrol(admin, token, "another nonce, of somebody else")
    assert (status, problem["code"]) == (403, "token-refused")
    # Two at once: one of them has it.
    _, token = await made(admin, "enrolled-3")
    statuses = [
        status
        for status, _ in await asyncio.gather(
            *(enrol(admin, token, f"the nonce of number {n}") for n in range(8))
        )
    ]
    assert sorted(statuses) == [200] + [403] * 7
    generation = await server.services.pool.fetchval(
        "SELECT key_generation FROM hosts WHERE name = 'enrolled-3'"
    )
    assert generation == 1


async def test_a_token_ends(server: Server, admin: httpx2.AsyncClient):
    host_id, token = await made(admin, "enrolled-4")
    await server.services.pool.execute("UPDATE enrolments SET expires_at = now()")
    assert (await enrol(admin, token))[0] == 403
    # A newer one ends the former, used or not.
    first, second = await token_for(admin, host_id), await token_for(admin, host_id, ttl_s=60)
    assert (await enrol(admin, first))[0] == 403
    assert (await enrol(admin, second))[0] == 200
    await token_for(admin, host_id)
    assert (await enrol(admin, second))[0] == 403


async def test_enrolling_anew_makes_the_former_key_worthless(
    server: Server, admin: httpx2.AsyncClient
):
    host_id, token = await made(admin, "enrolled-5")
    await enrol(admin, token)
    async with server.connected(host_id) as old:
        status, answer = await enrol(admin, await token_for(admin, host_id), "another machine's")
        assert (status, answer["generation"]) == (200, 2)
        assert old.closed is not None
        assert await asyncio.wait_for(old.closed, BOUND_S) == 4410
    async with server.agent(host_id, generation=2).connected():
        await until(lambda: server.services.hub.has(host_id))


async def test_a_key_that_is_taken_ends_the_connection_and_the_token(
    server: Server, admin: httpx2.AsyncClient
):
    host_id, token = await made(admin, "enrolled-6")
    await enrol(admin, token)
    async with server.connected(host_id) as agent:
        assert (await admin.delete(f"/hosts/{host_id}/key")).status_code == 204
        assert agent.closed is not None
        assert await asyncio.wait_for(agent.closed, BOUND_S) == 4410
    # Whoever has kept the token and the nonce gets no key with them.
    assert (await enrol(admin, token))[0] == 403
    assert (await admin.delete(f"/hosts/{host_id}/key")).status_code == 204
    assert (await enrol(admin, await token_for(admin, host_id)))[1]["generation"] == 4


async def test_what_is_stored_is_of_no_use_to_whoever_reads_it(
    server: Server, admin: httpx2.AsyncClient
):
    _, token = await made(admin, "enrolled-7")
    _, answer = await enrol(admin, token, NONCE)
    rows = await server.services.pool.fetch("SELECT e::text AS row FROM enrolments e")
    key = base64.urlsafe_b64decode(answer["key"])
    for row in rows:
        for secret in (token, token.removeprefix("oat_"), NONCE, key.hex(), answer["key"]):
            assert secret not in row["row"]


async def test_only_an_admin_makes_tokens_and_takes_keys(server: Server, admin: httpx2.AsyncClient):
    host_id, _ = await made(admin, "enrolled-8")
    for role in ("viewer", "operator", "approver", "trader"):
        _, key = await server.services.keys.make(role, person="ann", role=role, by=TESTER)
        headers = {"Authorization": f"Bearer {key}"}
        made_ = await admin.post(f"/hosts/{host_id}/enrolment", headers=headers)
        taken = await admin.delete(f"/hosts/{host_id}/key", headers=headers)
        assert (made_.status_code, taken.status_code) == (403, 403)
    for path in ("/hosts/999999/enrolment", "/hosts/0/enrolment", "/hosts/x/enrolment"):
        assert (await admin.post(path)).status_code in {404, 422}
    assert (await admin.delete("/hosts/999999/key")).status_code == 404


async def test_who_guesses_tokens_has_to_wait(shared: Onward):
    app = create_app(services_for(shared))
    now = 0.0
    app.state.tries = tries = Tries(clock=lambda: now)
    guess = {"token": "oat_a-guess", "nonce": NONCE}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://onward.test"
    ) as guesser:
        for _ in range(290):
            tries.failed("127.0.0.1")
        statuses = [
            (await guesser.post("/agents/enrol", json=guess)).status_code for _ in range(12)
        ]
        assert statuses == [403] * 11 + [429]
        refused = await guesser.post("/agents/enrol", json=guess)
        assert refused.json()["code"] == "too-many-tries"
        assert int(refused.headers["retry-after"]) >= 1
        now = 1.0
        assert (await guesser.post("/agents/enrol", json=guess)).status_code == 403
    # Nobody else has to.
    assert tries.wait_s("10.0.0.1") == 0.0
