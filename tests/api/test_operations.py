"""For whoever keeps the service running: health, workers, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Message

from onward.api.permissions import GRANTS, Permission, Role
from onward.api.traffic import Traffic
from onward.core.lifecycles import EXECUTION
from onward.fleet.ready import STUCK_AFTER_S, Readiness
from onward.store import database, workers
from onward.store.database import Pool
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.proof_table import Tried
from tests.store.asking import BOUND_S


@pytest.fixture
async def nobody(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without a key."""
    async with calling(app) as found:
        yield found


# Health


async def test_a_process_that_answers_is_live(nobody: httpx2.AsyncClient):
    answer = await nobody.get("/health/live")
    assert (answer.status_code, answer.json()) == (200, {"live": True})


async def test_without_a_worker_nothing_gets_done(nobody: httpx2.AsyncClient):
    answer = await nobody.get("/health/ready")
    problem = told(answer, 503, "not-ready")
    assert (problem["ready"], problem["database"], problem["schema"]) == (False, True, True)
    assert problem["workers"] is False
    assert problem["missing"] == ["No worker is there; start one."]
    assert problem["detail"] == "No worker is there; start one."
    assert int(answer.headers["retry-after"]) > 0


async def test_a_process_that_only_takes_requests_is_ready_without_workers(
    nobody: httpx2.AsyncClient,
):
    answer = await nobody.get("/health/ready?api_only=true")
    assert answer.status_code == 200
    assert answer.json() == {
        "ready": True,
        "database": True,
        "schema": True,
        "workers": False,
        "missing": ["No worker is there; start one."],
    }


async def test_ready_is_a_worker_that_gets_on_and_not_one_that_only_breathes(
    nobody: httpx2.AsyncClient, pool: Pool
):
    worker = await workers.register(pool, "w")
    answer = await nobody.get("/health/ready")
    assert (answer.status_code, answer.json()["ready"], answer.json()["missing"]) == (200, True, [])
    await workers.beat(pool, worker, still_s=STUCK_AFTER_S + 1)
    problem = told(await nobody.get("/health/ready"), 503, "not-ready")
    assert problem["missing"] == ["No worker gets on with its work."]
    await workers.beat(pool, worker)
    assert (await nobody.get("/health/ready")).status_code == 200
    await pool.execute("UPDATE workers SET beat_at = now() - interval '1 hour'")
    problem = told(await nobody.get("/health/ready"), 503, "not-ready")
    assert problem["missing"] == ["No worker is there; start one."]
    await workers.register(pool, "another")
    assert (await nobody.get("/health/ready")).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE schema_revision SET version_num = '0001'",
        "UPDATE schema_revision SET version_num = '9999'",
        "DELETE FROM schema_revision",
        "ALTER TABLE workers DROP COLUMN progress_at",
        "DROP TABLE workers",
        "DROP SCHEMA onward CASCADE",
    ],
)
async def test_a_schema_of_another_program_is_not_ready(
    nobody: httpx2.AsyncClient, pool: Pool, change: str
):
    await pool.execute(change)
    for path in ("/health/ready", "/health/ready?api_only=true"):
        problem = told(await nobody.get(path), 503, "not-ready")
        assert (problem["database"], problem["schema"]) == (True, False)
    assert (await nobody.get("/health/live")).status_code == 200


async def test_a_database_that_is_gone_is_said_without_its_address(
    nobody: httpx2.AsyncClient, server_url: str, opened: Onward
):
    assert (await nobody.get("/health/ready?api_only=true")).status_code == 200
    await dropped(server_url, await opened.commands.pool.fetchval("SELECT current_database()"))
    answer = await nobody.get("/health/ready")
    problem = told(answer, 503, "not-ready")
    assert (problem["database"], problem["schema"]) == (False, False)
    assert problem["missing"] == ["The database does not answer."]
    assert "onward_test" not in answer.text
    assert (await nobody.get("/health/live")).status_code == 200


async def dropped(server_url: str, name: str) -> None:
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


async def test_a_database_that_hangs_is_not_waited_for(opened: Onward):
    """All connections are taken, and none comes back."""
    async with database.pooled(opened.database_url, size=1) as pool, pool.acquire():
        readiness = Readiness(pool, opened.settings, patience_s=0.05)
        async with asyncio.timeout(BOUND_S):
            assert not (await readiness.standing()).database


async def test_a_crowd_that_asks_costs_one_question(opened: Onward, pool: Pool):
    async with database.pooled(opened.database_url, size=1) as small:
        readiness = Readiness(small, opened.settings)
        async with small.acquire():
            asking = [asyncio.create_task(readiness.standing()) for _ in range(50)]
            # The one who leaves does not take the answer from the others.
            await pool.fetchval("SELECT 1")
            asking[0].cancel()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert len({id(each) for each in found[1:]}) == 1


# Workers


async def test_workers_are_listed_with_what_they_do(
    client: httpx2.AsyncClient, fleet: Fleet, people: People, pool: Pool
):
    gone = await workers.register(pool, "gone")
    await workers.leave(pool, gone)
    dead = await workers.register(pool, "dead")
    await pool.execute(
        "UPDATE workers SET beat_at = now() - interval '1 minute' WHERE id = $1", dead
    )
    long_ago = await workers.register(pool, "killed long ago")
    await pool.execute(
        "UPDATE workers SET beat_at = now() - interval '2 days' WHERE id = $1", long_ago
    )
    await fleet.hosts(3)
    await fleet.claim(await fleet.submit(people.ann), at_most=2)
    page = (await client.get("/workers")).json()
    assert page["next_cursor"] is None
    found = {each["worker_id"]: each for each in page["items"]}
    assert list(found) == sorted(found, reverse=True)
    assert long_ago not in found
    assert (found[fleet.worker]["running"], found[fleet.worker]["lives"]) == (2, True)
    assert (found[dead]["lives"], found[dead]["stopped_at"]) == (False, None)
    assert (found[gone]["lives"], found[gone]["running"]) == (False, 0)
    assert found[gone]["stopped_at"] is not None


async def test_workers_are_listed_page_by_page(client: httpx2.AsyncClient, pool: Pool):
    made = [await workers.register(pool, f"w{n}") for n in range(5)]
    found, cursor = [], ""
    for _ in range(3):
        page = (await client.get(f"/workers?limit=2{cursor}")).json()
        found += [each["worker_id"] for each in page["items"]]
        cursor = f"&cursor={page['next_cursor']}"
    assert (found, page["next_cursor"]) == (made[::-1], None)


# Metrics


async def scraped(client: httpx2.AsyncClient) -> dict[tuple[str, tuple[str, ...]], float]:
    """What Prometheus reads, by the name of the sample and the values of its labels, in order."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_the_gauges_say_how_things_stand(
    client: httpx2.AsyncClient, fleet: Fleet, people: People, pool: Pool
):
    await fleet.hosts(4)
    await pool.execute("UPDATE hosts SET state = 'DISABLED' WHERE id = (SELECT min(id) FROM hosts)")
    claimed = await fleet.claim(await fleet.submit(people.ann), at_most=3)
    await fleet.say(claimed[:1], "succeed")
    await fleet.submit(people.ann, command_type="deploy")
    await pool.execute("UPDATE runs SET deadline_at = now() - interval '1 minute'")
    await pool.execute("UPDATE workers SET refused = 7")
    found = await scraped(client)
    by_status = {
        labels[0]: value for (name, labels), value in found.items() if name == "onward_executions"
    }
    assert by_status.keys() == set(map(str, EXECUTION.states))
    assert by_status["SUCCESS"] == 1
    assert by_status["RUNNING"] == len(claimed) - 1
    assert sum(by_status.values()) == 2 * 3
    assert (found["onward_hosts", ("ACTIVE",)], found["onward_hosts", ("DISABLED",)]) == (3, 1)
    assert found["onward_jobs_waiting_for_approval", ()] == 1
    assert found["onward_workers", ()] == 1
    assert found["onward_messages_refused", ()] == 7
    assert found["onward_executions_overdue", ()] == len(claimed) - 1
    assert found["onward_outbox_size", ()] >= 0
    assert found["onward_outbox_oldest_seconds", ()] >= 0
    assert found["onward_event_streams", ()] == 0
    assert found["process_cpu_seconds_total", ()] > 0


async def test_requests_are_counted_by_the_template_of_their_route(client: httpx2.AsyncClient):
    for path in ("/jobs/1", "/jobs/2", "/jobs/x", "/nothing", "/nowhere", "/health/live"):
        await client.get(path)
    await client.head("/health/live")
    await client.request("BREW", "/health/live")
    await client.request("STEW", "/nothing")
    found = await scraped(client)
    counted = {labels: value for (name, labels), value in found.items() if name[-9:] == "sts_total"}
    assert counted["GET", "/jobs/{job_id}", "404"] == 2
    assert counted["GET", "/jobs/{job_id}", "422"] == 1
    assert counted["GET", "none", "404"] == 2
    assert counted["other", "none", "404"] == 1
    assert counted["GET", "/health/live", "200"] == 1
    assert counted["HEAD", "/health/live", "200"] == 1
    assert counted["other", "/health/live", "405"] == 1
    name = "onward_http_request_duration_seconds"
    assert found[f"{name}_count", ("GET", "/jobs/{job_id}")] == 3
    assert found[f"{name}_bucket", ("+Inf", "GET", "/jobs/{job_id}")] == 3
    assert found[f"{name}_sum", ("GET", "/jobs/{job_id}")] > 0
    again = await scraped(client)
    assert again["onward_http_requests_total", ("GET", "/metrics", "200")] == 1


def test_durations_fall_where_prometheus_expects_them():
    traffic = Traffic()
    for seconds in (0.0005, 0.001, 0.002, 0.3, 100.0):
        traffic.count({}, "GET", 200, seconds)
    durations = next(m for m in traffic.collect() if m.type == "histogram")
    found = {s.labels["le"]: s.value for s in durations.samples if s.name.endswith("_bucket")}
    assert (found["0.001"], found["0.0025"], found["0.25"]) == (2, 3, 3)
    assert (found["0.5"], found["10.0"], found["+Inf"]) == (4, 4, 5)


async def test_a_caller_who_leaves_is_counted_as_one_who_left(
    app: FastAPI, client: httpx2.AsyncClient
):
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/commands",
        "query_string": b"",
        "headers": [
            (b"authorization", client.headers["authorization"].encode()),
            (b"content-type", b"application/json"),
        ],
    }

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        raise AssertionError("nobody is there")

    await app(scope, gone, send)
    found = await scraped(client)
    assert found["onward_http_requests_total", ("POST", "/commands", "499")] == 1


# Bad input, and who may


async def test_the_table_of_bad_input(client: httpx2.AsyncClient, tried: Tried):
    bad = (
        "/workers?limit=0",
        "/workers?limit=1001",
        "/workers?limit=x",
        "/workers?cursor=x",
        "/workers?cursor=",
        "/health/ready?api_only=maybe",
        "/health/ready?api_only=",
        "/health/ready?api_only=%E2%98%83",
    )
    for path in bad:
        told(await client.get(path), 422, "invalid")
    for path in ("/workers", "/health/live", "/health/ready", "/metrics"):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            told(await client.request(method, path), 405, "method-not-allowed")
        told(await client.get(f"{path}/"), 404, "not-found")
        told(await client.get(f"{path}?a=%FF"), 400, "address-malformed")
    tried("bad requests about operations", len(bad) + 4 * 6, "all refused in words")


async def test_every_role_of_the_fleet_may_look_and_nobody_else(
    app: FastAPI, nobody: httpx2.AsyncClient, key_for: KeyFor
):
    for path in ("/workers", "/metrics"):
        told(await nobody.get(path), 401, "key-missing")
        async with calling(app, await key_for(Role.trader)) as trader:
            told(await trader.get(path), 403, "permission-missing")
        for role in set(Role) - {Role.trader}:
            assert Permission.READ in GRANTS[role]
            async with calling(app, await key_for(role)) as somebody:
                assert (await somebody.get(path)).status_code == 200
    assert (await nobody.get("/health/live")).status_code == 200


async def test_what_is_answered_is_described(client: httpx2.AsyncClient):
    described = (await client.get("/openapi.json")).json()["paths"]
    assert set(described["/metrics"]["get"]["responses"]["200"]["content"]) == {"text/plain"}
    assert "503" in described["/health/ready"]["get"]["responses"]
