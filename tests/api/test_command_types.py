"""Command types over HTTP: said whole, by an admin, and never half-said."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from onward.api import paging
from onward.wiring import Onward
from tests.api.asking_hosts import fresh, made, pages, refuses_what_no_route_takes, shown
from tests.api.test_foundation import told
from tests.api.test_hosts import BAD_LISTS
from tests.proof_table import Tried
from tests.store.asking import until_blocked

JSON = "application/json"
CAREFUL: dict[str, Any] = {
    "needs_approval": True,
    "read_only": False,
    "timeout_s": 90.5,
    "max_retries": 0,
}


@pytest.fixture
def opened(shared: Onward) -> Onward:
    return shared


async def test_a_command_type_is_put_changed_and_deleted(client: httpx2.AsyncClient):
    name = fresh("TYPE")
    path = f"/command-types/{name}"
    told(await client.get(path), 404, "unknown-command-type")
    bold = {"needs_approval": False, "read_only": True, "timeout_s": 5, "max_retries": 1_000}
    program = {"argv": ["login", "--as={user}", "{{}}", ""], "masked": ["token", "pin"]}
    nothing: dict[str, Any] = {"argv": None, "masked": []}
    for body in (CAREFUL, {**bold, **program}, {**bold, **nothing}, bold):
        answer = await client.put(path, json=body)
        # What is run is no wish: a type that does not say so leaves it to its jobs.
        assert (answer.status_code, answer.json()) == (200, {"name": name, **nothing, **body})
        assert await shown(client, path) == answer.json()
    gone = await client.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    told(await client.delete(path), 404, "unknown-command-type")


async def test_a_change_that_names_what_was_seen_changes_only_that(client: httpx2.AsyncClient):
    path = f"/command-types/{fresh('TYPE')}"
    first = (await client.put(path, json=CAREFUL)).headers["etag"]
    assert (await client.get(path)).headers["etag"] == first
    assert (await client.get(path, headers={"If-None-Match": first})).status_code == 304
    bold = {**CAREFUL, "needs_approval": False}
    second = await client.put(path, json=bold, headers={"If-Match": first})
    assert second.status_code == 200
    assert second.headers["etag"] != first
    late = await client.put(path, json={**CAREFUL, "max_retries": 9}, headers={"If-Match": first})
    problem = told(late, 412, "stale")
    assert late.headers["etag"] == problem["etag"] == second.headers["etag"]
    assert (await shown(client, path))["max_retries"] == 0
    # What is said without having looked counts as before, and what is the same has the same tag.
    assert (await client.put(path, json=CAREFUL)).headers["etag"] == first


async def test_a_type_that_is_gone_is_not_made_again_by_who_has_seen_it(client: httpx2.AsyncClient):
    path = f"/command-types/{fresh('TYPE')}"
    seen = (await client.put(path, json=CAREFUL)).headers["etag"]
    await client.delete(path)
    told(await client.put(path, json=CAREFUL, headers={"If-Match": seen}), 412, "stale")
    told(await client.get(path), 404, "unknown-command-type")


@pytest.mark.parametrize("tag", ["*", "", '"1"', '"x', '"a", "b"', '"' + "a" * 33 + '"', "plan"])
async def test_what_is_no_tag_of_a_type_is_refused(client: httpx2.AsyncClient, tag: str):
    path = f"/command-types/{fresh('TYPE')}"
    await client.put(path, json=CAREFUL)
    body = {**CAREFUL, "max_retries": 9}
    told(await client.put(path, json=body, headers={"If-Match": tag}), 400, "if-match-malformed")
    assert (await shown(client, path))["max_retries"] == 0


async def test_a_weak_tag_of_a_type_never_matches(client: httpx2.AsyncClient):
    path = f"/command-types/{fresh('TYPE')}"
    seen = (await client.put(path, json=CAREFUL)).headers["etag"]
    weak = await client.put(path, json=CAREFUL, headers={"If-Match": f"W/{seen}"})
    told(weak, 412, "stale")


async def test_of_two_who_saw_the_same_type_one_is_told(client: httpx2.AsyncClient, opened: Onward):
    """Both have looked before either changes anything: forced by a lock, not slept for."""
    name = fresh("TYPE")
    path, pool = f"/command-types/{name}", opened.commands.pool
    seen = {"If-Match": (await client.put(path, json=CAREFUL)).headers["etag"]}
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM command_types WHERE name = $1 FOR UPDATE", name)
            changes = [
                asyncio.create_task(
                    client.put(path, json={**CAREFUL, "max_retries": n}, headers=seen)
                )
                for n in (1, 2)
            ]
            await until_blocked(watcher, by=holder.get_server_pid())
        answers = await asyncio.gather(*changes)
    won, lost = sorted(answers, key=lambda answer: answer.status_code)
    assert won.status_code == 200
    told(lost, 412, "stale")
    assert await shown(client, path) == won.json()


async def test_pages_of_command_types_follow_each_other(client: httpx2.AsyncClient):
    wanted = sorted(fresh("PAGED") for _ in range(5))
    for name in wanted[::-1]:
        await client.put(f"/command-types/{name}", json=CAREFUL)
    for limit in (1, 2, 1_000):
        found = await pages(client, "/command-types", limit=limit)
        names = [each["name"] for page in found for each in page]
        assert sorted(names) == sorted(set(names))
        assert [name for name in names if name in wanted] == wanted
        assert {"DEPLOY", "PING", "RESTART_SERVICE", "RUN_SCRIPT"} <= set(names)


async def test_a_job_that_is_there_keeps_what_it_took_of_its_type(client: httpx2.AsyncClient):
    host, name = await made(client), fresh("TYPE")
    await client.put(f"/command-types/{name}", json=CAREFUL)
    body = {"external_id": fresh("job"), "command_type": name, "selector": [host["name"]]}
    job = await client.post("/webhook/jobs", json=body)
    assert job.json()["approval_state"] == "WAIT_APPROVAL"
    await client.put(f"/command-types/{name}", json={**CAREFUL, "needs_approval": False})
    found = await shown(client, f"/jobs/{job.json()['job_id']}")
    assert (found["approval_state"], found["timeout_s"]) == ("WAIT_APPROVAL", 90.5)
    free = await client.post("/webhook/jobs", json={**body, "external_id": fresh("job")})
    assert free.json()["approval_state"] is None
    await client.delete(f"/command-types/{name}")
    late = await client.post("/webhook/jobs", json={**body, "external_id": fresh("job")})
    told(late, 422, "invalid")
    # What is there runs to its end without it, and a repeat still finds it.
    assert (await client.post("/webhook/jobs", json=body)).json()["duplicate"] is True


# And where the answer points to, if not to the field itself.
WRONG_PROGRAMS: dict[str, dict[str, list[Any]]] = {
    "/argv": {"argv": ["uptime", {}, True, [], ["x"] * 1_025]},
    "/argv/0": {"argv": [[""], [None], [1], ["{"], ["\x00"], ["\ud800"], ["x" * 4_097]]},
    "/argv/1": {"argv": [["a", "{token}"], ["a", "{}"], ["a", "b}"], ["a", ["b"]]]},
    "/masked": {"masked": [None, "token", {}, [f"m{n}" for n in range(65)]]},
    "/masked/0": {"masked": [[""], [1], ["a b"], ["1"], ["a-b"], ["\ud800"], ["x" * 256]]},
    "/masked/1": {"masked": [["a", "a"], ["token", "TOKEN"]]},
}

WRONG: dict[str, list[Any]] = {
    "needs_approval": [None, 0, 1, "true", "", []],
    "read_only": [None, 0, "false", {}],
    "timeout_s": [None, 0, -1, 0.01, 5e-324, 31_622_401, 1e300, "60", True, []],
    "max_retries": [None, -1, 1_001, 2**63, 1.5, 1.0, "3", True, []],
}


async def test_what_a_command_type_cannot_be_is_refused_and_nothing_is_changed(
    client: httpx2.AsyncClient, tried: Tried
):
    path = f"/command-types/{fresh('TYPE')}"
    before = (await client.put(path, json=CAREFUL)).json()
    cases = 0
    for field, values in WRONG.items():
        for value in values:
            problem = told(await client.put(path, json={**CAREFUL, field: value}), 422, "invalid")
            assert problem["errors"][0]["pointer"] == f"/{field}"  # type: ignore[index]
            cases += 1
        # A field that is left out would be a wish that nobody has made.
        body = {name: value for name, value in CAREFUL.items() if name != field}
        told(await client.put(path, json=body), 422, "invalid")
    for pointer, fields in WRONG_PROGRAMS.items():
        for field, values in fields.items():
            for value in values:
                body = {**CAREFUL, "masked": ["token"], field: value}
                # As text: a client would not send half of a surrogate pair.
                sent = json.dumps(body)
                answer = await client.put(path, content=sent, headers={"content-type": JSON})
                problem = told(answer, 422, "invalid")
                assert problem["errors"][0]["pointer"] == pointer  # type: ignore[index]
                cases += 1
    told(await client.put(path, json={**CAREFUL, "name": "OTHER"}), 422, "invalid")
    cases += await refuses_what_no_route_takes(client, "PUT", path)
    assert await shown(client, path) == before
    tried("bad bodies of command types", cases + 5, "all refused, nothing written")


@pytest.mark.parametrize(
    "name",
    ["A%20B", "%C3%A4", "-A", "_A", ".A", "A%0AB", "A%1B", "%E2%80%AEA", "x" * 256, "A,B", "A%3BB"],
)
async def test_a_name_that_could_not_stand_in_an_address_is_refused(
    client: httpx2.AsyncClient, name: str
):
    path = f"/command-types/{name}"
    for answer in (
        await client.get(path),
        await client.put(path, json=CAREFUL),
        await client.delete(path),
    ):
        told(answer, 422, "invalid")


async def test_addresses_of_command_types_that_mean_nothing_are_refused(
    client: httpx2.AsyncClient,
):
    for query in BAD_LISTS:
        told(await client.get(f"/command-types?{query}"), 422, "invalid")
    for cursor in (
        paging.encode("hosts", [1]),
        paging.encode("command types", [1]),
        paging.encode("command types", ["a", "b"]),
    ):
        told(await client.get("/command-types", params={"cursor": cursor}), 422, "invalid")
    told(await client.get("/command-types/a%2Fb"), 404, "not-found")
    told(await client.get("/command-types/A%00"), 400, "address-malformed")
    told(await client.get("/command-types/"), 404, "not-found")
