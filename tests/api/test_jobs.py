"""Jobs as they are looked at: lists, timelines, the plan to be approved; bad input, and who may."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from onward.api.permissions import GRANTS, Permission, Role
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.present import seen
from tests.proof_table import Tried

SEEN = {"If-Match": '"1"'}


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has a fleet of its own, so that the database can be shared."""
    return shared


async def get(client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def waiting(fleet: Fleet, people: People, hosts: int = 2) -> int:
    """A job of ann's that waits for approval."""
    await fleet.hosts(hosts)
    return await fleet.submit(people.ann, command_type="deploy")


# The plan of a job


async def test_an_approver_sees_who_would_run_who_is_blocked_and_who_is_busy(
    fleet: Fleet, people: People
):
    free, busy, blocked, gone = await fleet.hosts(4)
    (running,) = await fleet.claim(await fleet.submit(people.ann, selector=[busy]))
    job_id = await fleet.submit(people.ann, command_type="deploy")
    await fleet.block(blocked, "deploy", reason="frozen", owner="eve")
    await fleet.pool.execute("UPDATE hosts SET state = 'DISABLED' WHERE name = $1", gone)
    answer = await people.bob.get(f"/jobs/{job_id}/plan")
    assert (answer.status_code, answer.headers["etag"]) == (200, '"1"')
    plan = answer.json()
    assert (plan["total"], plan["runs"], plan["blocked"], plan["busy"]) == (4, 2, 2, 1)
    assert [host["name"] for host in plan["hosts"]] == [free, busy]
    rules = [(host["name"], host["reason"], host["owner"]) for host in plan["blocked_hosts"]]
    assert rules == [(blocked, "frozen", "eve"), (gone, "the host is disabled", "")]
    assert [host["execution_id"] for host in plan["busy_hosts"]] == [running.execution_id]
    assert plan["job"] == await get(people.bob, f"/jobs/{job_id}")
    short = await get(people.bob, f"/jobs/{job_id}/plan?named=1")
    assert (len(short["hosts"]), len(short["blocked_hosts"]), short["total"]) == (1, 1, 4)


async def test_the_plan_of_a_job_holds_what_it_has_not_begun(fleet: Fleet, people: People):
    await fleet.hosts(3)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id, at_most=2)
    assert (await get(people.bob, f"/jobs/{job_id}/plan"))["total"] == 1
    await fleet.say(claimed, "succeed")
    await people.ann.post(f"/jobs/{job_id}/cancel")
    assert (await get(people.bob, f"/jobs/{job_id}/plan"))["total"] == 0


# Lists


@pytest.fixture
async def listed(fleet: Fleet, people: People) -> list[int]:
    """Seven jobs, of which the newest waits for approval."""
    await fleet.hosts(1)
    made = [await fleet.submit(people.ann) for _ in range(6)]
    return [*made, await fleet.submit(people.ann, command_type="deploy")]


async def pages(client: httpx2.AsyncClient, path: str, key: str) -> list[list[Any]]:
    """All pages of a list, each as the values of one field."""
    found, cursor = [], ""
    while True:
        page = await get(client, path + cursor)
        found.append([item[key] for item in page["items"]])
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


async def test_jobs_are_listed_page_by_page_the_newest_first(people: People, listed: list[int]):
    found = await pages(people.vic, "/jobs?limit=3", "job_id")
    assert all(len(page) == 3 for page in found[:-1])
    everything = [job_id for page in found for job_id in page]
    assert everything == sorted(everything, reverse=True)
    assert everything[:7] == listed[::-1]


async def test_a_job_that_comes_meanwhile_moves_no_page(
    fleet: Fleet, people: People, listed: list[int]
):
    page = await get(people.vic, "/jobs?limit=3")
    await fleet.submit(people.ann)
    after = await get(people.vic, f"/jobs?limit=3&cursor={page['next_cursor']}")
    assert [item["job_id"] for item in after["items"]] == listed[::-1][3:6]


async def test_jobs_are_found_by_what_is_known_of_them(people: People, listed: list[int]):
    job = await get(people.vic, f"/jobs/{listed[0]}")
    for query, expected in (
        (f"external_id={job['external_id']}", [listed[0]]),
        (f"external_id={job['external_id']}&command_type=deploy", []),
        ("approval_state=WAIT_APPROVAL&limit=1", [listed[-1]]),
        ("command_type=deploy&limit=1", [listed[-1]]),
        ("external_id=nobody", []),
    ):
        page = await get(people.vic, f"/jobs?{query}")
        assert [item["job_id"] for item in page["items"]] == expected, query
    assert (await get(people.vic, "/jobs?limit=1"))["items"][0] == await get(
        people.vic, f"/jobs/{listed[-1]}"
    )


async def test_the_executions_of_a_job_are_listed_by_host_and_status(fleet: Fleet, people: People):
    names = await fleet.hosts(5)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    await fleet.say(claimed[:2], "fail")
    path = f"/jobs/{job_id}/executions"
    assert await pages(people.vic, f"{path}?limit=2", "host") == [names[:2], names[2:4], names[4:]]
    assert await pages(people.vic, f"{path}?limit=1&status=FAILED", "host") == [
        names[:1],
        names[1:2],
    ]
    both = await get(people.vic, f"{path}?status=FAILED&status=RUNNING")
    assert len(both["items"]) == 5
    assert (await get(people.vic, f"{path}?status=NEW"))["items"] == []


async def test_the_timeline_of_a_job_has_pages(fleet: Fleet, people: People):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    for _ in range(2):
        for deed in ("pause", "resume"):
            headers = await seen(people.ann, f"/jobs/{job_id}")
            await people.ann.post(f"/jobs/{job_id}/{deed}", headers=headers)
    assert await pages(people.vic, f"/jobs/{job_id}/timeline?limit=2", "event") == [
        ["submit", "pause"],
        ["resume", "pause"],
        ["resume"],
    ]


# Bad input, and who may

ROUTES: dict[tuple[str, str], Permission] = {
    ("GET", "/jobs"): Permission.READ,
    ("GET", "/jobs/{}"): Permission.READ,
    ("GET", "/jobs/{}/plan"): Permission.READ,
    ("GET", "/jobs/{}/timeline"): Permission.READ,
    ("GET", "/jobs/{}/executions"): Permission.READ,
    ("GET", "/jobs/{}/grid"): Permission.READ,
    ("GET", "/jobs/{}/outputs"): Permission.READ,
    ("GET", "/jobs/{}/causes"): Permission.READ,
    ("POST", "/jobs/{}/approve"): Permission.APPROVE,
    ("POST", "/jobs/{}/reject"): Permission.APPROVE,
    ("PATCH", "/jobs/{}"): Permission.RUN,
    ("POST", "/jobs/{}/cancel"): Permission.RUN,
    ("POST", "/jobs/{}/pause"): Permission.RUN,
    ("POST", "/jobs/{}/resume"): Permission.RUN,
    ("POST", "/jobs/{}/retry"): Permission.RUN,
}
BAD_IDS = ("0", "-1", "+1", "01", "1.0", "one", "1_0", "9223372036854775808", "%EF%BC%91", "1%20")
BAD_QUERIES = {
    "/jobs": (
        *("limit=0", "limit=1001", "limit=x", "limit=1.5", "limit=9223372036854775808"),
        *("cursor=x", "cursor=", "cursor=%F0%9F%9A%80"),
        *("approval_state=MAYBE", "approval_state=", f"command_type={'x' * 256}"),
        f"external_id={'x' * 256}",
    ),
    "/jobs/{}/plan": ("named=-1", "named=1001", "named=x"),
    "/jobs/{}/timeline": ("limit=0", "limit=1001", "cursor=x"),
    "/jobs/{}/executions": (
        *("limit=0", "limit=1001", "cursor=x", "status=DONE", "status=new", "status="),
        "&".join(["status=NEW"] * 9),
    ),
}
BAD_BODIES: dict[tuple[str, str], tuple[object, ...]] = {
    ("POST", "/jobs/{}/approve"): (
        *([], "a", {"reason": 1}, {"reason": None}, {"reason": "a\0"}, {"reason": "x" * 256}),
        *({"by": "bob"}, {"reason": "", "state": "APPROVED"}),
    ),
    ("POST", "/jobs/{}/cancel"): ([], {"reason": 1}, {"reason": "x" * 256}, {"force": True}),
    ("PATCH", "/jobs/{}"): (
        *([], {}, {"params": None}, {"params": []}, {"params": {"a": "\0"}}),
        *({"max_concurrency": 0}, {"max_concurrency": True}, {"max_concurrency": 2**63}),
        *({"selector": "all"}, {"params": {"a": "x" * 300_000}}, {"params": {}, "version": 1}),
    ),
    ("POST", "/jobs/{}/retry"): (
        *([], {"statuses": []}, {"statuses": ["SUCCESS"]}, {"statuses": ["RUNNING"]}),
        *({"statuses": [1]}, {"statuses": "FAILED"}, {"statuses": ["FAILED"] * 9}),
        *({"external_id": ""}, {"external_id": "a\0"}, {"external_id": " a"}, {"hosts": []}),
    ),
}


async def asked(client: httpx2.AsyncClient, method: str, path: str) -> httpx2.Response:
    """A request that is right but for its address."""
    body: object = {"params": {}} if method == "PATCH" else None
    return await client.request(method, path, headers=SEEN, json=body)


async def test_the_table_of_bad_input(fleet: Fleet, people: People, tried: Tried):
    """Every route of jobs; nothing moves, and nothing is an error of ours."""
    job_id = await waiting(fleet, people, hosts=1)
    other_id = await waiting(fleet, people, hosts=1)
    before, written = await get(people.vic, f"/jobs/{job_id}"), await fleet.written()
    count = 0
    for method, path in ROUTES:
        for bad in BAD_IDS if "{}" in path else ():
            told(await asked(people.root, method, path.format(bad)), 422, "invalid")
            count += 1
        if "{}" in path:
            told(await asked(people.root, method, path.format(2**63 - 1)), 404, "unknown-job")
            told(await asked(people.root, method, path.format("1%00")), 400, "address-malformed")
    for path, queries in BAD_QUERIES.items():
        for query in queries:
            answer = await people.vic.get(f"{path.format(job_id)}?{query}")
            told(answer, 422, "invalid")
            count += 1
    for (method, path), bodies_ in BAD_BODIES.items():
        for body in bodies_:
            answer = await people.root.request(method, path.format(job_id), json=body, headers=SEEN)
            told(answer, 422, "invalid")
            count += 1
        text = {"Content-Type": "application/json", **SEEN}
        answer = await people.root.request(
            method, path.format(job_id), content=b'{"a":1,"a":2}', headers=text
        )
        told(answer, 400, "json-malformed")
    foreign = await get(people.vic, f"/jobs/{other_id}/executions?limit=1")
    assert foreign["next_cursor"] is not None
    stolen = f"/jobs/{job_id}/executions?cursor={foreign['next_cursor']}"
    told(await people.vic.get(stolen), 422, "invalid")
    assert await get(people.vic, f"/jobs/{job_id}") == before
    assert await fleet.written() == written
    tried("bad requests about jobs", count, "all refused in words")


async def test_every_role_does_what_it_may_and_nothing_else(
    fleet: Fleet, people: People, key_for: KeyFor, app: FastAPI
):
    await fleet.hosts(1)
    for role in Role:
        async with calling(app, await key_for(role, person=f"one {role}")) as client:
            for (method, path), permission in ROUTES.items():
                job_id = await fleet.submit(people.ann, command_type="deploy")
                answer = await asked(client, method, path.format(job_id))
                if permission in GRANTS[role]:
                    assert answer.status_code in {200, 409}, (role, method, path, answer.text)
                else:
                    told(answer, 403, "permission-missing")
                    assert (await get(people.vic, f"/jobs/{job_id}"))["version"] == 1


async def test_every_route_of_jobs_is_in_these_tables(app: FastAPI):
    found = {
        (method, getattr(route, "path", "").replace("{job_id}", "{}"))
        for route in app.routes
        for method in getattr(route, "methods", ())
        if getattr(route, "path", "").startswith("/jobs")
    }
    assert found - {("POST", "/jobs/plan")} == set(ROUTES)
