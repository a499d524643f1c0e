"""Executions: where each is and why, what was said about it, and what its host printed."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from onward.api.permissions import Role
from onward.channels.base import Delivery, Output, Report, Stream
from onward.fleet.output import LINE_MAX
from onward.store import logs, workers
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.api.test_jobs import BAD_IDS, get, pages
from tests.fleet.test_engine import QUICK, working
from tests.present import seen
from tests.proof_table import Tried

BOUND_S = 60.0
ROUTES = ("/executions/{}", "/executions/{}/why", "/executions/{}/timeline", "/executions/{}/logs")


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has a fleet of its own, so that the database can be shared."""
    return shared


async def test_an_execution_tells_how_it_went(fleet: Fleet, people: People):
    (host,) = await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    (claimed,) = await fleet.claim(job_id)
    path = f"/executions/{claimed.execution_id}"
    running = await get(people.vic, path)
    assert (running["status"], running["host"], running["job_id"]) == ("RUNNING", host, job_id)
    assert (running["attempt"], running["epoch"]) == (1, claimed.epoch)
    assert (running["worker_id"], running["due_at"]) == (fleet.worker, None)
    assert running["deadline_at"] > running["updated_at"]
    await fleet.say([claimed], "fail", cause="FAILED", exit_code=3, error="no space left")
    ended = await get(people.vic, path)
    assert (ended["status"], ended["cause"], ended["exit_code"]) == ("FAILED", "FAILED", 3)
    assert (ended["error"], ended["deadline_at"]) == ("no space left", None)
    assert ended["finished_at"]
    page = await get(people.vic, f"/jobs/{job_id}/executions")
    assert page == {"items": [ended], "next_cursor": None}


# Why


async def test_why_gives_one_reason_with_its_facts_and_how_it_came_there(
    fleet: Fleet, people: People
):
    (host,) = await fleet.hosts(1)
    first, second = await fleet.submit(people.ann), await fleet.submit(people.ann)
    (claimed,) = await fleet.claim(first)
    (queued,) = await fleet.queue(second)
    since = (await get(people.vic, f"/executions/{claimed.execution_id}"))["updated_at"]
    found = await get(people.vic, f"/executions/{queued}/why")
    assert (found["status"], found["reason"]) == ("QUEUED", "HOST_HELD")
    assert found["text"] == f"{host} is held by execution {claimed.execution_id} of job {first}."
    assert found["facts"] == {
        "since": since,
        "execution_id": claimed.execution_id,
        "job_id": first,
    }
    assert [event["event"] for event in found["timeline"]] == ["plan"]

    await fleet.say([claimed], "succeed")
    await workers.leave(fleet.pool, fleet.worker)
    for other in await fleet.pool.fetch("SELECT id FROM workers WHERE stopped_at IS NULL"):
        await workers.leave(fleet.pool, other["id"])
    assert (await get(people.vic, f"/executions/{queued}/why"))["reason"] == "NO_WORKER"
    present = await seen(people.ann, f"/jobs/{second}")
    await people.ann.post(f"/jobs/{second}/pause", headers=present)
    assert (await get(people.vic, f"/executions/{queued}/why"))["reason"] == "PAUSED"
    done = await get(people.vic, f"/executions/{claimed.execution_id}/why")
    assert (done["reason"], done["text"]) == ("ENDED", "It ended as SUCCESS after 1 attempt.")


async def test_why_comes_with_the_newest_of_a_long_history(fleet: Fleet, people: People):
    await fleet.hosts(1)
    (claimed,) = await fleet.claim(await fleet.submit(people.ann))
    for _ in range(3):
        await fleet.say([claimed] * 40, "plan")
    found = await get(people.vic, f"/executions/{claimed.execution_id}/why")
    assert len(found["timeline"]) == 100
    assert {event["verdict"] for event in found["timeline"]} == {"STALE"}


# The timeline


async def test_the_timeline_has_every_event_with_its_verdict(fleet: Fleet, people: People):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    (first,) = await fleet.claim(job_id)
    await fleet.say([first], "retry", cause="UNREACHABLE", costs=1)
    (second,) = await fleet.claim(job_id)
    await fleet.say([first], "succeed")
    await fleet.say([second], "timeout", cause="TIMED_OUT")
    await fleet.say([second], "succeed", exit_code=0)
    await fleet.say([second], "timeout")
    path = f"/executions/{first.execution_id}"
    items = (await get(people.vic, f"{path}/timeline"))["items"]
    assert [(i["event"], i["verdict"], i["from_status"], i["to_status"]) for i in items] == [
        ("plan", "OK", "NEW", "QUEUED"),
        ("claim", "OK", "QUEUED", "RUNNING"),
        ("retry", "OK", "RUNNING", "QUEUED"),
        ("claim", "OK", "QUEUED", "RUNNING"),
        ("succeed", "STALE_EPOCH", "RUNNING", "RUNNING"),
        ("timeout", "OK", "RUNNING", "TIMEOUT"),
        ("succeed", "TERMINAL", "TIMEOUT", "TIMEOUT"),
        ("timeout", "TERMINAL", "TIMEOUT", "TIMEOUT"),
    ]
    assert items[2]["detail"] == {"cause": "UNREACHABLE", "costs": 1}
    assert (items[4]["epoch"], items[4]["source"]) == (first.epoch, "worker")
    late = (await get(people.vic, path))["late_result"]
    assert (late["event"], late["exit_code"]) == ("succeed", 0)
    in_pages = await pages(people.vic, f"{path}/timeline?limit=3", "event")
    assert [len(page) for page in in_pages] == [3, 3, 2]
    assert [event for page in in_pages for event in page] == [item["event"] for item in items]


# Logs


class Talking:
    """A host that prints, waits to be heard, prints again and ends."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def deliver(self, _delivery: Delivery, output: Output) -> Report:
        output(Stream.STDOUT, "first\nsecond \x1b[31m\n")
        await self.heard.wait()
        output(Stream.STDERR, "x" * (LINE_MAX + 7) + "\n")
        output(Stream.STDOUT, "last")
        return Report(succeeded=True, exit_code=0)

    async def cancel(self, _delivery: Delivery) -> bool:
        return False


async def test_logs_are_read_in_order_while_it_runs_and_say_what_was_left_out(
    opened: Onward, fleet: Fleet, people: People
):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    (execution,) = (await get(people.vic, f"/jobs/{job_id}/executions"))["items"]
    path = f"/executions/{execution['execution_id']}/logs"
    assert await get(people.vic, path) == {"status": "NEW", "items": [], "next_cursor": None}
    channel = Talking()
    read: list[dict[str, Any]] = []

    async def follow(cursor: str, enough: int) -> str:
        """Read on from where the last page ended, until there is enough."""
        async with asyncio.timeout(BOUND_S):
            while len(read) < enough:
                page = await get(people.vic, f"{path}?limit=1{cursor}")
                read.extend(page["items"])
                if page["next_cursor"]:
                    cursor = f"&cursor={page['next_cursor']}"
                else:
                    await asyncio.sleep(0.01)
        return cursor

    async with working(opened, channel, QUICK):
        cursor = await follow("", 2)
        assert (await get(people.vic, path))["status"] == "RUNNING"
        channel.heard.set()
        await follow(cursor, 5)
    assert [(line["line"], line["stream"], line["text"]) for line in read] == [
        (1, "stdout", "first"),
        (2, "stdout", r"second \x1b[31m"),
        (3, "stderr", "x" * LINE_MAX),
        (4, "onward", "truncated: 7 more characters of the line above"),
        (5, "stdout", "last"),
    ]
    whole = await get(people.vic, path)
    assert (whole["status"], whole["items"]) == ("SUCCESS", read)
    after = await get(people.vic, f"{path}?cursor={whole['next_cursor']}")
    assert (after["items"], after["next_cursor"]) == ([], whole["next_cursor"])


async def test_the_lines_of_one_attempt_come_before_those_of_the_next(fleet: Fleet, people: People):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    (first,) = await fleet.claim(job_id)
    await fleet.say([first], "retry")
    (second,) = await fleet.claim(job_id)
    key = first.execution_id
    await logs.write(fleet.pool, [(key, second.epoch, n, "stdout", f"b{n}") for n in (2, 1)])
    await logs.write(fleet.pool, [(key, first.epoch, n, "stdout", f"a{n}") for n in (1, 2)])
    page = await get(people.vic, f"/executions/{key}/logs")
    assert [line["text"] for line in page["items"]] == ["a1", "a2", "b1", "b2"]


# Bad input, and who may


async def test_the_table_of_bad_input(fleet: Fleet, people: People, tried: Tried):
    await fleet.hosts(2)
    job_id = await fleet.submit(people.ann)
    one, two = await fleet.queue(job_id)
    await logs.write(fleet.pool, [(two, 1, n, "stdout", "x") for n in (1, 2)])
    await fleet.claim(job_id)
    count = 0
    for path in ROUTES:
        for bad in BAD_IDS:
            told(await people.vic.get(path.format(bad)), 422, "invalid")
        told(await people.vic.get(path.format(2**63 - 1)), 404, "unknown-execution")
        told(await people.vic.get(path.format("1%00")), 400, "address-malformed")
        told(await people.vic.post(path.format(one)), 405, "method-not-allowed")
        count += len(BAD_IDS) + 3
    for path in ROUTES[2:]:
        for query in ("limit=0", "limit=1001", "limit=x", "cursor=", "cursor=x", "cursor=%F0%9F"):
            status, code = (400, "address-malformed") if "%" in query else (422, "invalid")
            told(await people.vic.get(f"{path.format(one)}?{query}"), status, code)
            count += 1
        cursor = (await get(people.vic, f"{path.format(two)}?limit=1"))["next_cursor"]
        assert cursor
        told(await people.vic.get(f"{path.format(one)}?cursor={cursor}"), 422, "invalid")
        told(await people.vic.get(f"{path.format(two)}?cursor={cursor[:-1]}"), 422, "invalid")
    tried("bad requests about executions", count, "all refused in words")


async def test_every_role_of_the_fleet_may_look(
    fleet: Fleet, people: People, key_for: KeyFor, app: FastAPI
):
    await fleet.hosts(1)
    (execution_id,) = await fleet.queue(await fleet.submit(people.ann))
    for role in set(Role) - {Role.trader}:
        async with calling(app, await key_for(role)) as client:
            for path in ROUTES:
                assert (await client.get(path.format(execution_id))).status_code == 200
    async with calling(app) as nobody, calling(app, await key_for(Role.trader)) as trader:
        for path in ROUTES:
            told(await nobody.get(path.format(execution_id)), 401, "key-missing")
            told(await trader.get(path.format(execution_id)), 403, "permission-missing")


async def test_every_route_of_executions_is_in_these_tables(app: FastAPI):
    found = {getattr(route, "path", "").replace("{execution_id}", "{}") for route in app.routes}
    assert {path for path in found if path.startswith("/executions")} == set(ROUTES)


async def test_a_page_of_a_thousand_is_a_page(fleet: Fleet, client: httpx2.AsyncClient):
    await fleet.hosts(1_001)
    job_id = await fleet.submit(client)
    page = await get(client, f"/jobs/{job_id}/executions?limit=1000")
    assert (len(page["items"]), page["next_cursor"] is None) == (1_000, False)
