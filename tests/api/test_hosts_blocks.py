"""Blocks over HTTP: on one host, on all that a selector matches, and never on a misspelt type."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from onward.api import paging
from onward.store.database import Pool
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
from tests.api.test_foundation_conditional import IF_MATCH
from tests.api.test_hosts import BAD_IDS, BAD_LISTS, BAD_SELECTORS
from tests.present import seen
from tests.proof_table import Tried

FIRST = {"If-Match": '"1"'}


@pytest.fixture
def opened(shared: Onward) -> Onward:
    return shared


@pytest.fixture
def pool(opened: Onward) -> Pool:
    return opened.commands.pool


def ahead(**span: float) -> str:
    return (datetime.now(UTC) + timedelta(**span)).isoformat()


async def blocked_on(client: httpx2.AsyncClient, host: dict[str, Any]) -> list[str]:
    found = await shown(client, f"/hosts/{host['host_id']}/blocks")
    return [block["command_type"] for block in found["items"]]


async def block(client: httpx2.AsyncClient, path: str, **rule: Any) -> httpx2.Response:
    """What is answered to a block by somebody who has just looked at the host."""
    headers = await seen(client, path.partition("/blocks")[0])
    return await client.put(path, json={"reason": "x", **rule}, headers=headers)


# On one host.


async def test_a_block_stands_until_it_is_taken_back(
    client: httpx2.AsyncClient, app: FastAPI, key_for: KeyFor
):
    host = await made(client)
    path = f"/hosts/{host['host_id']}/blocks"
    async with calling(app, await key_for("operator", person="olga")) as operator:
        answer = await operator.put(
            f"{path}/DEPLOY", json={"reason": "its disk is replaced"}, headers=FIRST
        )
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    assert (await client.get(f"/hosts/{host['host_id']}")).headers["etag"] == '"2"'
    block = answer.json()
    assert (block["host_id"], block["host_name"]) == (host["host_id"], host["name"])
    assert (block["command_type"], block["reason"]) == ("DEPLOY", "its disk is replaced")
    assert (block["owner"], block["expires_at"], block["in_force"]) == ("olga", None, True)
    assert await shown(client, path) == {"items": [block], "next_cursor": None}
    second, third = {"If-Match": '"2"'}, {"If-Match": '"3"'}
    told(await client.delete(f"{path}/PING", headers=second), 404, "unknown-block")
    gone = await client.delete(f"{path}/DEPLOY", headers=second)
    assert (gone.status_code, gone.content, gone.headers["etag"]) == (204, b"", '"3"')
    told(await client.delete(f"{path}/DEPLOY", headers=third), 404, "unknown-block")
    assert await shown(client, path) == {"items": [], "next_cursor": None}


async def test_whoever_saw_the_host_before_neither_blocks_nor_lifts(client: httpx2.AsyncClient):
    host = await made(client)
    path = f"/hosts/{host['host_id']}/blocks/PING"
    await block(client, path)
    for late in (
        await client.put(path, json={"reason": "late"}, headers=FIRST),
        await client.delete(path, headers=FIRST),
    ):
        assert told(late, 412, "stale")["version"] == 2
        assert late.headers["etag"] == '"2"'
    (left,) = (await shown(client, f"/hosts/{host['host_id']}/blocks"))["items"]
    assert left["reason"] == "x"


async def test_the_table_of_if_match_for_the_blocks_of_a_host(
    client: httpx2.AsyncClient, pool: Pool
):
    host = await made(client)
    await pool.execute("UPDATE hosts SET version = 5 WHERE id = $1", host["host_id"])
    path = f"/hosts/{host['host_id']}/blocks/PING"
    for name, (values, status, code) in IF_MATCH.items():
        headers = [(b"if-match", value) for value in values]
        for answer in (
            await client.put(path, json={"reason": "x"}, headers=headers),
            await client.delete(path, headers=headers),
        ):
            told(answer, status, code)
            assert answer.headers.get("etag") == ('"5"' if status == 412 else None), name
    assert await blocked_on(client, host) == []


async def test_a_second_block_takes_the_place_of_the_first(client: httpx2.AsyncClient):
    path = f"/hosts/{(await made(client))['host_id']}/blocks"
    until = ahead(days=1)
    await block(client, f"{path}/PING", reason="a", expires_at=until)
    second = await block(client, f"{path}/PING", reason="b", owner="bob")
    assert (second.json()["owner"], second.json()["expires_at"]) == ("bob", None)
    assert (await shown(client, path))["items"] == [second.json()]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("2031-05-01T18:00:00Z", "2031-05-01T18:00:00Z"),
        ("2031-05-01t18:00:00z", "2031-05-01T18:00:00Z"),
        ("2031-05-01T18:00:00+02:00", "2031-05-01T16:00:00Z"),
        ("2031-05-01T18:00:00.25-05:30", "2031-05-01T23:30:00.250000Z"),
        ("2031-05-01 18:00:00-00:00", "2031-05-01T18:00:00Z"),
        ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
    ],
)
async def test_a_block_ends_at_the_moment_that_was_meant(
    client: httpx2.AsyncClient, given: str, meant: str
):
    path = f"/hosts/{(await made(client))['host_id']}/blocks/PING"
    answer = await block(client, path, expires_at=given)
    assert (answer.status_code, answer.json()["expires_at"]) == (200, meant)


async def test_a_block_that_has_expired_is_shown_and_not_in_force(
    client: httpx2.AsyncClient, pool: Pool
):
    host = await made(client)
    path = f"/hosts/{host['host_id']}/blocks"
    await block(client, f"{path}/PING", expires_at=ahead(hours=1))
    await pool.execute(
        "UPDATE host_command_blocks SET expires_at = now() WHERE host_id = $1", host["host_id"]
    )
    (expired,) = (await shown(client, path))["items"]
    assert expired["in_force"] is False


async def test_a_block_on_a_misspelt_type_is_refused_with_those_that_there_are(
    client: httpx2.AsyncClient,
):
    host = await made(client)
    for answer in (
        await block(client, f"/hosts/{host['host_id']}/blocks/DEPLOI"),
        await client.post(
            "/blocks", json={"selector": "all", "command_type": "DEPLOI", "reason": "x"}
        ),
    ):
        problem = told(answer, 422, "invalid")
        assert "'DEPLOI' is not one of DEPLOY, PING" in str(problem["detail"])
    assert await blocked_on(client, host) == []


async def test_a_block_outlives_its_type_and_can_be_taken_back(client: httpx2.AsyncClient):
    host, kind = await made(client), fresh("TYPE")
    body = {"needs_approval": False, "read_only": False, "timeout_s": 1, "max_retries": 0}
    await client.put(f"/command-types/{kind}", json=body)
    path = f"/hosts/{host['host_id']}/blocks/{kind}"
    blocked = await block(client, path)
    assert blocked.status_code == 200
    await client.delete(f"/command-types/{kind}")
    assert await blocked_on(client, host) == [kind]
    seen_now = {"If-Match": blocked.headers["etag"]}
    assert (await client.delete(path, headers=seen_now)).status_code == 204


async def test_a_host_that_is_deleted_while_it_is_blocked_is_not_there(
    client: httpx2.AsyncClient, pool: Pool
):
    """The block waits for the deletion, and then finds nobody; the other one is blocked."""
    gone, kept = await made(client), await made(client)
    names = [gone["name"], kept["name"]]
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("DELETE FROM hosts WHERE id = $1", gone["host_id"])
            one = asyncio.create_task(
                client.put(
                    f"/hosts/{gone['host_id']}/blocks/PING", json={"reason": "x"}, headers=FIRST
                )
            )
            await until_waiting(watcher, 1)
            many = asyncio.create_task(
                client.post(
                    "/blocks", json={"selector": names, "command_type": "PING", "reason": "x"}
                )
            )
            await until_waiting(watcher, 2)
        told(await one, 404, "unknown-host")
        assert (await many).json()["blocked"] == 1
    assert await blocked_on(client, kept) == ["PING"]


async def test_a_host_that_is_blocked_while_it_is_deleted_goes_with_its_block(
    client: httpx2.AsyncClient, pool: Pool
):
    """The deletion waits for the block, and takes it along."""
    host = await made(client)
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute(
                "INSERT INTO host_command_blocks (host_id, command_type) VALUES ($1, 'PING')",
                host["host_id"],
            )
            late = asyncio.create_task(
                client.delete(f"/hosts/{host['host_id']}", headers={"If-Match": '"1"'})
            )
            await until_waiting(watcher, 1)
        assert (await late).status_code == 204
    left = "SELECT count(*) FROM host_command_blocks WHERE host_id = $1"
    assert await pool.fetchval(left, host["host_id"]) == 0


# On many hosts.


async def test_a_type_is_blocked_on_all_that_a_selector_matches_and_lifted_again(
    client: httpx2.AsyncClient,
):
    wave = fresh("wave")
    web = [await made(client, labels={"wave": wave, "role": "web"}) for _ in range(3)]
    db = await made(client, labels={"wave": wave, "role": "db"})
    # A disabled host may be enabled again, and is then still not to be touched.
    await client.patch(
        f"/hosts/{web[0]['host_id']}", json={"state": "DISABLED"}, headers={"If-Match": '"1"'}
    )
    body = {
        "selector": f"wave={wave} and role=web",
        "command_type": "DEPLOY",
        "reason": "frozen",
        "owner": "the release crew",
        "expires_at": ahead(days=2),
    }
    answer = await client.post("/blocks", json=body)
    assert answer.status_code == 200
    assert answer.json() == {
        "selector": f"hosts where wave={wave} and role=web",
        "command_type": "DEPLOY",
        "blocked": 3,
    }
    for host in web:
        (block,) = (await shown(client, f"/hosts/{host['host_id']}/blocks"))["items"]
        assert (block["reason"], block["owner"]) == ("frozen", "the release crew")
        assert block["in_force"] is True
    assert await blocked_on(client, db) == []

    again = await client.post("/blocks", json={**body, "owner": None, "selector": f"wave={wave}"})
    assert again.json()["blocked"] == 4
    lift = {"selector": {"labels": {"wave": wave}}, "command_type": "DEPLOY"}
    lifted = (await client.post("/blocks/lift", json=lift)).json()
    assert (lifted["matched"], lifted["lifted"]) == (4, 4)
    assert (await client.post("/blocks/lift", json=lift)).json()["lifted"] == 0
    for host in [*web, db]:
        assert await blocked_on(client, host) == []


@pytest.mark.parametrize("path", ["/blocks", "/blocks/lift"])
async def test_hosts_that_are_not_there_are_listed_and_nothing_is_changed(
    client: httpx2.AsyncClient, path: str
):
    host = await made(client)
    await block(client, f"/hosts/{host['host_id']}/blocks/DEPLOY")
    kind = "PING" if path == "/blocks" else "DEPLOY"
    body = {"command_type": kind, **({"reason": "x"} if path == "/blocks" else {})}
    for selector, said in (
        ([host["name"], "nobody-b", "nobody-a"], "no such hosts: nobody-a, nobody-b"),
        ({"hostnames": ["nobody"]}, "no such hosts: nobody"),
        ("role=nobody", "no host matches it"),
        ({"labels": {"role": "nobody"}}, "no host matches it"),
    ):
        answer = await client.post(path, json={**body, "selector": selector})
        problem = told(answer, 422, "invalid")
        assert said in str(problem["detail"])
    assert await blocked_on(client, host) == ["DEPLOY"]


async def test_of_very_many_hosts_that_are_not_there_some_are_listed(client: httpx2.AsyncClient):
    names = [f"nobody-{n:04}" for n in range(5_000)]
    body = {"selector": names, "command_type": "PING", "reason": "x"}
    problem = told(await client.post("/blocks", json=body), 422, "invalid")
    assert "nobody-0099" in str(problem["detail"])
    assert "nobody-0100" not in str(problem["detail"])


@pytest.mark.parametrize("first", ["/blocks", "/blocks/lift"])
@pytest.mark.parametrize("second", ["/blocks", "/blocks/lift"])
async def test_blocks_and_lifts_of_the_same_hosts_do_not_wait_in_a_circle(
    client: httpx2.AsyncClient, pool: Pool, first: str, second: str
):
    """Both come to the middle host while it is held, one from either end if they could."""
    hosts = [await made(client) for _ in range(3)]
    names = [host["name"] for host in hosts]
    wanted = {"command_type": "PING", "selector": names}
    await client.post("/blocks", json={**wanted, "reason": "x"})

    def ask(path: str, chosen: list[str]) -> asyncio.Task[httpx2.Response]:
        body = {**wanted, "selector": chosen, **({"reason": "y"} if path == "/blocks" else {})}
        return asyncio.create_task(client.post(path, json=body))

    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute(
                "SELECT FROM host_command_blocks WHERE host_id = $1 FOR UPDATE", hosts[1]["host_id"]
            )
            one = ask(first, names)
            await until_waiting(watcher, 1)
            two = ask(second, names[::-1])
            await until_waiting(watcher, 2)
        assert {(await one).status_code, (await two).status_code} == {200}
    left = [await blocked_on(client, host) for host in hosts]
    assert left == [["PING"] if second == "/blocks" else []] * 3


# Lists.


async def test_pages_of_blocks_follow_each_other(client: httpx2.AsyncClient):
    hosts = [await made(client) for _ in range(3)]
    for host in hosts:
        for kind in ("PING", "DEPLOY"):
            await block(client, f"/hosts/{host['host_id']}/blocks/{kind}")
    ours = {host["host_id"] for host in hosts}
    listed = [block for page in await pages(client, "/blocks", limit=2) for block in page]
    wanted = [(host["host_id"], kind) for host in hosts for kind in ("DEPLOY", "PING")]
    assert [
        (block["host_id"], block["command_type"]) for block in listed if block["host_id"] in ours
    ] == wanted
    found = await pages(client, f"/hosts/{hosts[0]['host_id']}/blocks", limit=1)
    assert [block["command_type"] for page in found for block in page] == ["DEPLOY", "PING"]


async def test_a_cursor_of_another_list_is_refused(client: httpx2.AsyncClient):
    host = await made(client)
    other = paging.encode("hosts", [1])
    positions: list[list[int | str]] = [[1], ["a", "b"], [1, "a", 2], []]
    forged = [paging.encode("blocks", position) for position in positions]
    for path in ("/blocks", f"/hosts/{host['host_id']}/blocks"):
        for cursor in (other, *forged):
            told(await client.get(path, params={"cursor": cursor}), 422, "invalid")


# Bad input.

WRONG: dict[str, list[Any]] = {
    "reason": [None, "", 1, True, "a\u0000b", "x" * 256, [], {}],
    "owner": ["", 1, True, "a\nb", "\u202e", "a\u0000", "x" * 256, []],
    "expires_at": [
        "", "tomorrow", 0, 1e11, True, [], "2031-05-01", "2031-05-01T18:00:00", "2031-05-01T18:00Z",
        "2031-02-29T00:00:00Z", "2031-05-01T24:00:01Z", "2031-05-01T23:59:60Z",
        "2031-05-01T18:00:00+25:00", "2031-W18-4T00:00:00Z", "20310501T180000Z",
        "2001-05-01T18:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59",
        "infinity", "-infinity", "now", "\uff12031-05-01T18:00:00Z", "2031-05-01T18:00:00Z\n",
        "2031-05-01T18:00:00.1234567Z", "x" * 5_000, "2031-05-01T18:00:00\u0000Z",
    ],
}  # fmt: skip
WRONG_MANY: dict[str, list[Any]] = {
    "selector": [None, 1, True, [], {}, [1], [""], {"all": False}, {"hostnames": []}, {"x": 1},
                 {"labels": {}}, {"labels": {"a": 1}}, {"all": True, "labels": {"a": "b"}},
                 ["x" * 256], ["a\u0000b"], ["h"] * 10_001, *BAD_SELECTORS],
    "command_type": [None, 1, True, "", " ", "A B", "ä", "-A", "a/b", "A\u0000", "x" * 256, []],
}  # fmt: skip


async def test_what_a_block_cannot_be_is_refused_and_nothing_is_blocked(
    client: httpx2.AsyncClient, tried: Tried
):
    host = await made(client)
    one = f"/hosts/{host['host_id']}/blocks/PING"
    many = {"selector": [host["name"]], "command_type": "PING", "reason": "x"}
    cases = 0
    for field, values in {**WRONG, **WRONG_MANY}.items():
        for value in values:
            answers = [await client.post("/blocks", json={**many, field: value})]
            if field in WRONG:
                body = {"reason": "x", field: value}
                answers.append(await client.put(one, json=body, headers=FIRST))
            else:
                lift = {"selector": [host["name"]], "command_type": "PING", field: value}
                answers.append(await client.post("/blocks/lift", json=lift))
            for answer in answers:
                told(answer, 422, "invalid")
                cases += 1
    for field in ("selector", "command_type", "reason"):
        body = {name: value for name, value in many.items() if name != field}
        told(await client.post("/blocks", json=body), 422, "invalid")
    for method, path in (("PUT", one), ("POST", "/blocks"), ("POST", "/blocks/lift")):
        cases += await refuses_what_no_route_takes(client, method, path, FIRST)
    assert await blocked_on(client, host) == []
    tried("bad bodies of blocks", cases + 3, "all refused, nothing written")


async def test_a_block_of_the_far_future_is_refused(client: httpx2.AsyncClient):
    path = f"/hosts/{(await made(client))['host_id']}/blocks/PING"
    near = await block(client, path, expires_at=ahead(days=3_659))
    assert near.status_code == 200
    far = await block(client, path, expires_at=ahead(days=3_661))
    told(far, 422, "invalid")
    past = await block(client, path, expires_at=ahead(seconds=-1))
    told(past, 422, "invalid")


async def test_addresses_of_blocks_that_mean_nothing_are_refused(client: httpx2.AsyncClient):
    host = await made(client)
    for bad in BAD_IDS:
        told(await client.get(f"/hosts/{bad}/blocks"), 422, "invalid")
        told(await client.put(f"/hosts/{bad}/blocks/PING", json={"reason": "x"}), 422, "invalid")
        told(await client.delete(f"/hosts/{bad}/blocks/PING"), 422, "invalid")
    for bad in ("A%20B", "%C3%A4", "-A", ".A", "A%0AB", "%E2%80%AEA", "x" * 256):
        path = f"/hosts/{host['host_id']}/blocks/{bad}"
        told(await client.put(path, json={"reason": "x"}, headers=FIRST), 422, "invalid")
        told(await client.delete(path, headers=FIRST), 422, "invalid")
    told(await client.delete(f"/hosts/{host['host_id']}/blocks/a%2Fb"), 404, "not-found")
    for query in BAD_LISTS:
        told(await client.get(f"/blocks?{query}"), 422, "invalid")
        told(await client.get(f"/hosts/{host['host_id']}/blocks?{query}"), 422, "invalid")
