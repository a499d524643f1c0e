"""Hosts over HTTP: changed by whoever saw them last, deleted without a past, never half-made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from onward.api.app import create_app
from onward.api.permissions import GRANTS, Permission, Role
from onward.api.routing import Route
from onward.api.services import Services
from onward.core.lifecycles import EXECUTION
from onward.core.selectors import parse
from onward.store import jobs
from onward.store.database import Pool
from onward.store.jobs import NewJob
from onward.store.locks import Locks
from onward.wiring import Onward
from tests.api.asking_hosts import (
    fresh,
    made,
    pages,
    refuses_what_no_route_takes,
    shown,
    until_waiting,
)
from tests.api.conftest import KeyFor, calling
from tests.api.test_foundation import told
from tests.proof_table import Tried

FIRST, LAST = (str(EXECUTION.initial), str(EXECUTION.moves["cancel"].target))


@pytest.fixture
def opened(shared: Onward) -> Onward:
    return shared


@pytest.fixture
def pool(opened: Onward) -> Pool:
    return opened.commands.pool


async def submitted(pool: Pool, name: str) -> int:
    """A job on one host."""
    job = NewJob(fresh("job"), "PING", "{}", parse([name]))
    return (await jobs.submit(pool, job)).job_id


# Who may.

WHO: dict[tuple[str, str], Permission] = {
    ("GET", "/hosts"): Permission.READ,
    ("POST", "/hosts"): Permission.MANAGE,
    ("POST", "/hosts/import"): Permission.MANAGE,
    ("GET", "/hosts/{host_id}"): Permission.READ,
    ("PATCH", "/hosts/{host_id}"): Permission.MANAGE,
    ("DELETE", "/hosts/{host_id}"): Permission.MANAGE,
    ("GET", "/hosts/{host_id}/executions"): Permission.READ,
    ("GET", "/hosts/{host_id}/blocks"): Permission.READ,
    ("PUT", "/hosts/{host_id}/blocks/{command_type}"): Permission.MANAGE,
    ("DELETE", "/hosts/{host_id}/blocks/{command_type}"): Permission.MANAGE,
    ("POST", "/hosts/{host_id}/enrolment"): Permission.ADMIN,
    ("POST", "/hosts/{host_id}/key"): Permission.ADMIN,
    ("DELETE", "/hosts/{host_id}/key"): Permission.ADMIN,
    ("GET", "/blocks"): Permission.READ,
    ("POST", "/blocks"): Permission.MANAGE,
    ("POST", "/blocks/lift"): Permission.MANAGE,
    ("GET", "/command-types"): Permission.READ,
    ("GET", "/command-types/{name}"): Permission.READ,
    ("PUT", "/command-types/{name}"): Permission.ADMIN,
    ("DELETE", "/command-types/{name}"): Permission.ADMIN,
}


def test_the_table_of_who_may_is_whole(app: FastAPI):
    ours = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route) and route.path.startswith(("/hosts", "/blocks", "/command-typ"))
        for method in route.methods or ()
    }
    assert ours == WHO.keys()


@pytest.mark.parametrize("role", Role)
async def test_every_role_gets_where_it_may_and_nowhere_else(
    app: FastAPI, key_for: KeyFor, role: Role
):
    async with calling(app, await key_for(role)) as caller:
        for (method, path), permission in WHO.items():
            address = path.replace("{host_id}", "9999999").replace("{command_type}", "X")
            answer = await caller.request(method, address.replace("{name}", "NOBODY"))
            if permission in GRANTS[role]:
                assert answer.status_code in {200, 400, 404, 415, 428}, (method, path)
            else:
                assert told(answer, 403, "permission-missing")["permission"] == permission


async def test_an_operator_may_not_say_that_a_command_needs_no_approval(
    app: FastAPI, key_for: KeyFor, client: httpx2.AsyncClient
):
    bold = {"needs_approval": False, "read_only": True, "timeout_s": 60, "max_retries": 0}
    async with calling(app, await key_for("operator")) as operator:
        told(await operator.put("/command-types/DEPLOY", json=bold), 403, "permission-missing")
        told(await operator.delete("/command-types/DEPLOY"), 403, "permission-missing")
    assert (await shown(client, "/command-types/DEPLOY"))["needs_approval"] is True


# Making.


async def test_a_host_is_made_and_found_where_the_answer_says(client: httpx2.AsyncClient):
    body = {"name": fresh(), "labels": {"role": "web"}, "channel": "ssh", "address": "[::1]:22"}
    answer = await client.post("/hosts", json=body)
    assert answer.status_code == 201
    host = answer.json()
    assert {key: host[key] for key in body} == body
    assert (host["state"], host["version"]) == ("ACTIVE", 1)
    assert answer.headers["location"] == f"/hosts/{host['host_id']}"
    again = await client.get(answer.headers["location"])
    assert (again.json(), again.headers["etag"]) == (host, answer.headers["etag"])


async def test_a_host_needs_only_a_name(client: httpx2.AsyncClient):
    host = await made(client)
    assert (host["labels"], host["channel"], host["address"]) == ({}, "simulated", "")


async def test_a_name_that_is_taken_is_409_and_says_by_whom(client: httpx2.AsyncClient):
    host = await made(client)
    again = await client.post("/hosts", json={"name": host["name"], "labels": {"a": "b"}})
    problem = told(again, 409, "name-taken")
    assert problem["host_id"] == host["host_id"]
    assert str(host["host_id"]) in str(problem["detail"])
    assert await shown(client, f"/hosts/{host['host_id']}") == host


async def test_of_twenty_who_make_one_host_one_does(client: httpx2.AsyncClient):
    name = fresh()
    answers = await asyncio.gather(
        *(client.post("/hosts", json={"name": name, "address": str(n)}) for n in range(20))
    )
    (winner,) = [answer.json() for answer in answers if answer.status_code == 201]
    for answer in answers:
        if answer.status_code != 201:
            assert told(answer, 409, "name-taken")["host_id"] == winner["host_id"]


# Listing.


async def test_pages_of_hosts_follow_each_other(client: httpx2.AsyncClient):
    wave = fresh("wave")
    names = [(await made(client, labels={"wave": wave}))["name"] for _ in range(7)]
    found = await pages(client, "/hosts", limit=3, selector=f"wave={wave}")
    assert [len(page) for page in found] == [3, 3, 1]
    assert [host["name"] for page in found for host in page] == names
    assert len(await pages(client, "/hosts", limit=7, selector=f"wave={wave}")) == 1


async def test_a_selector_chooses_and_disabled_hosts_are_shown(client: httpx2.AsyncClient):
    wave = fresh("wave")
    web = await made(client, labels={"wave": wave, "role": "web"})
    db = await made(client, labels={"wave": wave, "role": "db"})
    await client.patch(
        f"/hosts/{db['host_id']}", json={"state": "DISABLED"}, headers={"If-Match": '"1"'}
    )
    for selector, wanted in (
        (f"wave={wave}", [web, db]),
        (f"wave={wave} and role=web", [web]),
        (f"wave={wave} and not role in (web, x)", [db]),
        (f"name={web['name']} or name={db['name']}", [web, db]),
        ("role=nobody", []),
    ):
        (found,) = await pages(client, "/hosts", selector=selector)
        assert [host["host_id"] for host in found] == [host["host_id"] for host in wanted]
    every = [
        host["name"] for page in await pages(client, "/hosts", selector="all") for host in page
    ]
    assert {web["name"], db["name"]} <= set(every)


async def test_hosts_are_found_by_a_part_of_their_name_and_counted(client: httpx2.AsyncClient):
    wave = fresh("wave")
    names = [f"{wave}-{part}" for part in ("Web-1", "web-2", "db_1", "db-1")]
    for name in names:
        await made(client, name=name, labels={"role": name[-1]})
    for query, wanted in (
        ({"search": wave}, names),
        ({"search": f"{wave}-WEB"}, names[:2]),
        ({"search": f"{wave}-web-2"}, names[1:2]),
        ({"search": "_1", "selector": f"name={wave}*"}, names[2:3]),
        ({"search": "%", "selector": f"name={wave}*"}, []),
        ({"search": wave, "selector": "role=1"}, [names[0], *names[2:]]),
        ({"search": f"{wave}-nobody"}, []),
        ({"selector": f"name={wave}*"}, names),
    ):
        (found,) = await pages(client, "/hosts", **query)
        assert [host["name"] for host in found] == wanted, query
        counted = (await client.get("/hosts", params={**query, "count": "true", "limit": 1})).json()
        assert (counted["count"], len(counted["items"])) == (len(wanted), min(len(wanted), 1))
    plain = (await client.get("/hosts", params={"search": wave})).json()
    assert set(plain) == {"items", "next_cursor"}
    one = (await client.get(f"/hosts/{plain['items'][0]['host_id']}")).json()
    assert plain["items"][0] == one


# Looking.


async def test_who_has_the_present_version_gets_304(client: httpx2.AsyncClient):
    host = await made(client)
    path = f"/hosts/{host['host_id']}"
    answer = await client.get(path, headers={"If-None-Match": '"1"'})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", '"1"')
    assert (await client.get(path, headers={"If-None-Match": '"2"'})).status_code == 200
    head = await client.head(path)
    assert (head.status_code, head.headers["etag"]) == (200, '"1"')


# Changing.


async def test_a_change_changes_what_it_names_and_nothing_else(client: httpx2.AsyncClient):
    host = await made(client, labels={"role": "web", "zone": "eu"}, address="a", channel="ssh")
    path = f"/hosts/{host['host_id']}"
    steps: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"address": "b"}, {"address": "b"}),
        ({"address": ""}, {"address": ""}),
        ({"labels": {"role": "db"}}, {"labels": {"role": "db"}}),
        ({"labels": {}}, {"labels": {}}),
        ({"channel": "mqtt", "state": "DISABLED"}, {"channel": "mqtt", "state": "DISABLED"}),
        ({"state": "ACTIVE"}, {"state": "ACTIVE"}),
    ]
    for version, (body, changed) in enumerate(steps, start=1):
        answer = await client.patch(path, json=body, headers={"If-Match": f'"{version}"'})
        assert answer.status_code == 200, answer.text
        assert answer.headers["etag"] == f'"{version + 1}"'
        host = {
            **host,
            **changed,
            "version": version + 1,
            "updated_at": answer.json()["updated_at"],
        }
        assert answer.json() == host == await shown(client, path)


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        (None, 428, "if-match-required"),
        ("*", 428, "if-match-required"),
        ("1", 400, "if-match-malformed"),
        ('"one"', 400, "if-match-malformed"),
        ('"1", "2"', 400, "if-match-malformed"),
        ('"99999999999999999999"', 400, "if-match-malformed"),
        ('W/"1"', 412, "stale"),
        ('"2"', 412, "stale"),
        ('"9223372036854775807"', 412, "stale"),
    ],
)
async def test_a_change_and_a_deletion_need_the_version_that_was_seen(
    client: httpx2.AsyncClient, given: str | None, status: int, code: str
):
    host = await made(client)
    path = f"/hosts/{host['host_id']}"
    headers = {} if given is None else {"If-Match": given}
    answers = [
        await client.patch(path, json={"address": "x"}, headers=headers),
        await client.delete(path, headers=headers),
    ]
    for answer in answers:
        told(answer, status, code)
        if status == 412 and given != 'W/"1"':
            assert (answer.headers["etag"], answer.json()["version"]) == ('"1"', 1)
    assert await shown(client, path) == host


async def test_of_two_changes_of_one_version_one_is_409_at_once(
    client: httpx2.AsyncClient, pool: Pool
):
    """The first is waiting for the row; nobody else has to."""
    host = await made(client)
    path, first = f"/hosts/{host['host_id']}", {"If-Match": '"1"'}
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts WHERE id = $1 FOR UPDATE", host["host_id"])
            change = client.patch(path, json={"address": "first"}, headers=first)
            waiting = asyncio.create_task(change)
            await until_waiting(watcher, 1)
            lost = await client.patch(path, json={"address": "second"}, headers=first)
            told(lost, 409, "locked")
            assert lost.headers["retry-after"] == "1"
        won = await waiting
    assert (won.status_code, won.headers["etag"]) == (200, '"2"')
    assert await shown(client, path) == won.json()


async def test_of_two_changes_that_no_lock_keeps_apart_one_is_412(
    client: httpx2.AsyncClient, services: Services, key_for: KeyFor, pool: Pool
):
    """Both are waiting for the row, one behind the other, when it becomes free."""
    host = await made(client)
    path, first = f"/hosts/{host['host_id']}", {"If-Match": '"1"'}
    elsewhere = create_app(replace(services, locks=Locks(None)))
    async with (
        calling(elsewhere, await key_for("admin")) as other,
        pool.acquire() as holder,
        pool.acquire() as watcher,
    ):
        changes = []
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts WHERE id = $1 FOR UPDATE", host["host_id"])
            for number, caller in enumerate((client, other)):
                change = caller.patch(path, json={"address": f"{number}"}, headers=first)
                changes.append(asyncio.create_task(change))
                await until_waiting(watcher, number + 1)
        won, lost = [await change for change in changes]
    assert (won.status_code, won.json()["address"]) == (200, "0")
    assert told(lost, 412, "stale")["version"] == 2
    assert lost.headers["etag"] == won.headers["etag"] == '"2"'
    assert await shown(client, path) == won.json()


# Deleting.


async def test_a_host_without_a_past_is_deleted_with_its_blocks(client: httpx2.AsyncClient):
    host = await made(client)
    path = f"/hosts/{host['host_id']}"
    seen = {"If-Match": '"1"'}
    blocked = await client.put(f"{path}/blocks/PING", json={"reason": "x"}, headers=seen)
    assert blocked.status_code == 200
    gone = await client.delete(path, headers={"If-Match": blocked.headers["etag"]})
    assert (gone.status_code, gone.content) == (204, b"")
    for answer in (
        await client.get(path),
        await client.get(f"{path}/executions"),
        await client.get(f"{path}/blocks"),
        await client.patch(path, json={"address": "x"}, headers={"If-Match": '"1"'}),
        await client.delete(path, headers={"If-Match": '"1"'}),
        await client.put(f"{path}/blocks/PING", json={"reason": "x"}, headers=seen),
        await client.delete(f"{path}/blocks/PING", headers=seen),
    ):
        told(answer, 404, "unknown-host")


async def test_a_host_with_a_past_is_to_be_disabled_instead(client: httpx2.AsyncClient, pool: Pool):
    host = await made(client)
    path = f"/hosts/{host['host_id']}"
    await submitted(pool, host["name"])
    answer = await client.delete(path, headers={"If-Match": '"1"'})
    assert "disable it instead" in str(told(answer, 409, "host-in-use")["detail"])
    disabled = await client.patch(
        path, json={"state": "DISABLED"}, headers={"If-Match": answer.headers["etag"]}
    )
    assert disabled.json()["state"] == "DISABLED"


async def test_a_change_that_comes_while_a_host_is_deleted_finds_none(
    client: httpx2.AsyncClient, pool: Pool
):
    host = await made(client)
    path = f"/hosts/{host['host_id']}"
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("DELETE FROM hosts WHERE id = $1", host["host_id"])
            late = asyncio.create_task(
                client.patch(path, json={"address": "x"}, headers={"If-Match": '"1"'})
            )
            await until_waiting(watcher, 1)
        told(await late, 404, "unknown-host")


# What ran there.


async def test_what_ran_on_a_host_is_listed_the_newest_first(
    client: httpx2.AsyncClient, pool: Pool
):
    host, other = await made(client), await made(client)
    path = f"/hosts/{host['host_id']}/executions"
    assert await pages(client, path) == [[]]
    wanted = [await submitted(pool, host["name"]) for _ in range(5)]
    await submitted(pool, other["name"])
    await jobs.cancel(pool, wanted[1], by="ann")
    found = await pages(client, path, limit=2)
    assert [len(page) for page in found] == [2, 2, 1]
    listed = [execution for page in found for execution in page]
    assert [execution["job_id"] for execution in listed] == wanted[::-1]
    assert {execution["host"] for execution in listed} == {host["name"]}
    (cancelled,) = await pages(client, path, status=LAST)
    assert [execution["job_id"] for execution in cancelled] == [wanted[1]]
    assert len((await pages(client, path, status=[FIRST, LAST]))[0]) == 5


async def test_a_cursor_of_another_host_is_refused(client: httpx2.AsyncClient, pool: Pool):
    host, other = await made(client), await made(client)
    for _ in range(2):
        await submitted(pool, host["name"])
    page = await shown(client, f"/hosts/{host['host_id']}/executions?limit=1")
    answer = await client.get(
        f"/hosts/{other['host_id']}/executions", params={"cursor": page["next_cursor"]}
    )
    told(answer, 422, "invalid")


# Bad input.

WRONG: dict[str, Any] = {
    "name": [
        None, 1, True, "", " ", "a b", "-a", "ä", "a\u0000b", "a\nb", "a/b", "x" * 256, [], {},
    ],
    "labels": [
        None, [], "a=b", {"a": None}, {"a": 1}, {"a": True}, {"a": {}}, {"a": "b\nc"}, {"": "x"},
        {"a": "x" * 256}, {"k" * 256: "x"}, {"ä": "x"}, {"name": "x"}, {"ansible_password": "x"},
        {"a\u0000": "x"}, {"a": "\u0000"}, {"a": "\u202e"}, {f"k{n}": "" for n in range(257)},
    ],
    "channel": [None, "", "smoke", "SSH", 1, True, []],
    "address": [None, 1, "a b", "-oX", "a\nb", "a\u0000b", "x" * 1_025, "\u202e", []],
    "state": [None, "", "active", "GONE", 1, True],
}  # fmt: skip


async def test_what_a_host_cannot_be_is_refused_and_nothing_is_made(
    client: httpx2.AsyncClient, pool: Pool, tried: Tried
):
    before = await pool.fetchval("SELECT count(*) FROM hosts")
    host = await made(client)
    path, seen = f"/hosts/{host['host_id']}", {"If-Match": '"1"'}
    cases = 0
    for field, values in WRONG.items():
        for value in values:
            body = {"name": fresh(), field: value}
            problem = told(await client.post("/hosts", json=body), 422, "invalid")
            assert str(problem["errors"][0]["pointer"]).startswith(f"/{field}")  # type: ignore[index]
            body = {field: value}
            told(await client.patch(path, json=body, headers=seen), 422, "invalid")
            cases += 2
    for body in ({}, {"name": "x"}, {"version": 2}, {"host_id": 1}):
        told(await client.patch(path, json=body, headers=seen), 422, "invalid")
    for body in ({}, {"name": fresh(), "state": "ACTIVE"}, {"name": fresh(), "version": 1}):
        told(await client.post("/hosts", json=body), 422, "invalid")
    cases += await refuses_what_no_route_takes(client, "POST", "/hosts")
    cases += await refuses_what_no_route_takes(client, "PATCH", path, seen)
    assert await pool.fetchval("SELECT count(*) FROM hosts") == before + 1
    assert await shown(client, path) == host
    tried("bad bodies of hosts", cases, "all refused, nothing written")


BAD_IDS = ["0", "-1", "+1", "01", "1.0", "one", "9223372036854775808", "1_0", "%EF%BC%91", "1e3"]
BAD_LISTS = [
    "limit=0", "limit=-1", "limit=1001", "limit=x", "limit=9223372036854775808", "cursor=",
    "cursor=x", "cursor=AAAA", "cursor=%F0%9F%9A%80", f"cursor={'A' * 5_000}",
]  # fmt: skip
BAD_SELECTORS = [
    "", " ", "role=", "=web", "role", "role=web and", "(role=web", "role=web,zone=eu or a=b",
    "a<b", "a&&b", "role='web", "not", "(" * 100 + "a=b" + ")" * 100, "a=" + "x" * 5_000, "ä=b",
    "role=a\x07b", "' OR 1=1 --",
]  # fmt: skip


async def test_addresses_that_mean_nothing_are_refused(client: httpx2.AsyncClient, tried: Tried):
    host = await made(client)
    for bad in BAD_IDS:
        for answer in (
            await client.get(f"/hosts/{bad}"),
            await client.get(f"/hosts/{bad}/executions"),
            await client.patch(f"/hosts/{bad}", json={"address": ""}, headers={"If-Match": '"1"'}),
            await client.delete(f"/hosts/{bad}", headers={"If-Match": '"1"'}),
        ):
            told(answer, 422, "invalid")
    lists = ["/hosts", f"/hosts/{host['host_id']}/executions"]
    for query in BAD_LISTS:
        for path in lists:
            told(await client.get(f"{path}?{query}"), 422, "invalid")
    for selector in BAD_SELECTORS:
        told(await client.get("/hosts", params={"selector": selector}), 422, "invalid")
    for status in ("", "queued", "GONE", "x" * 500):
        told(await client.get(lists[1], params={"status": status}), 422, "invalid")
    for query in ("search=", f"search={'x' * 256}", "count=x", "count="):
        told(await client.get(f"/hosts?{query}"), 422, "invalid")
    told(await client.get("/hosts?selector=a%00b"), 400, "address-malformed")
    told(await client.get("/hosts?selector=%FF"), 400, "address-malformed")
    cases = len(BAD_IDS) * 4 + len(BAD_LISTS) * 2 + len(BAD_SELECTORS) + 10
    tried("bad addresses of hosts", cases, "all refused")


async def test_every_body_is_described_with_an_example(app: FastAPI):
    async with calling(app) as nobody:
        described = (await nobody.get("/openapi.json")).json()
    schemas = described["components"]["schemas"]
    for method, path in WHO:
        operation = described["paths"][path][method.lower()]
        assert operation["summary"]
        assert operation["description"]
        if method in {"POST", "PUT", "PATCH"}:
            for kind, content in operation.get("requestBody", {"content": {}})["content"].items():
                # One that may be left out is described as one of two things.
                schema = content["schema"].get("anyOf", [content["schema"]])[0]
                name = schema.get("$ref", "").rpartition("/")[2]
                examples = [
                    each
                    for field in schemas[name]["properties"].values()
                    for each in (field, *field.get("anyOf", ()))
                    if "examples" in each
                ] if name else [content["example"]]  # fmt: skip
                assert examples, (method, path, kind)
