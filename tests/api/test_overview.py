"""How things stand as a whole: what is open, who works, what somebody should look at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from onward.api.overview import overview_of
from onward.api.services import Services
from onward.core.lifecycles import EXECUTION
from onward.core.retry import Backoff
from onward.fleet.overview import Overview
from onward.fleet.reap import reap
from onward.store import workers
from tests.api.conftest import calling
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.present import pause

LIVE = {"NEW": 0, "QUEUED": 0, "RUNNING": 0}


@pytest.fixture
def anew(app: FastAPI, services: Services) -> Callable[[], None]:
    """Forget what was last told, as a second does."""

    def forget() -> None:
        app.state.overview = Overview(services.pool, services.settings)

    return forget


Look = Callable[[], Any]


@pytest.fixture
def look(people: People, anew: Callable[[], None]) -> Look:
    """Ask how things stand, after the second in which an answer is kept."""

    async def ask() -> dict[str, Any]:
        anew()
        answer = await people.vic.get("/overview")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return ask


async def reaped(fleet: Fleet) -> None:
    await reap(fleet.pool, lost_after_s=60, backoff=Backoff(1.0, 1.0), chance=lambda: 0.5)


async def test_with_nothing_to_do_everything_is_zero(look: Look, fleet: Fleet):
    found = await look()
    assert found["executions"] == LIVE
    assert found["jobs"] == {"open": 0, "waiting": 0, "paused": 0}
    assert found["hosts"] == {"ACTIVE": 0, "DISABLED": 0}
    assert (found["blocks"], found["open"], found["waiting"]) == (0, [], [])
    assert [worker["worker_id"] for worker in found["workers"]] == [fleet.worker]
    assert found["attention"] == []


async def test_what_is_open_is_told_and_what_is_over_is_not(
    look: Look, fleet: Fleet, people: People
):
    names = await fleet.hosts(5)
    over = await fleet.submit(people.ann, selector=names[:2])
    await fleet.say(await fleet.claim(over), "succeed")
    running = await fleet.submit(people.ann)
    await fleet.claim(running, at_most=3)
    waiting = [await fleet.submit(people.ann, command_type="deploy") for _ in range(2)]
    held = await fleet.submit(people.ann, command_type="look", selector=names[:1])
    await pause(fleet.pool, held, paused=True)
    await reaped(fleet)
    found = await look()
    assert found["jobs"] == {"open": 4, "waiting": 2, "paused": 1}
    assert found["executions"] == {"NEW": 2 * 5 + 1, "QUEUED": 2, "RUNNING": 3}
    assert [job["job_id"] for job in found["open"]] == [held, *waiting[::-1], running]
    assert [job["job_id"] for job in found["waiting"]] == waiting
    assert found["open"][-1] == (await people.vic.get(f"/jobs/{running}")).json()
    assert found["workers"][0]["running"] == 3
    assert found["attention"] == []


async def test_a_job_that_was_turned_down_or_cancelled_waits_for_nobody(
    look: Look, fleet: Fleet, people: People
):
    await fleet.hosts(1)
    rejected, cancelled = [await fleet.submit(people.ann, command_type="deploy") for _ in range(2)]
    seen = {"If-Match": '"1"'}
    assert (await people.bob.post(f"/jobs/{rejected}/reject", headers=seen)).status_code == 200
    assert (await people.ann.post(f"/jobs/{cancelled}/cancel")).status_code == 200
    found = await look()
    assert (found["jobs"]["waiting"], found["waiting"]) == (0, [])
    assert found["executions"] == LIVE
    await reaped(fleet)
    assert (await look())["jobs"] == {"open": 0, "waiting": 0, "paused": 0}


async def test_jobs_are_listed_by_whether_they_are_open_and_who_asked(fleet: Fleet, people: People):
    await fleet.hosts(1)
    first, second = await fleet.submit(people.ann), await fleet.submit(people.root)
    await fleet.say(await fleet.claim(first), "succeed")
    await reaped(fleet)
    for query, expected in (
        ("", [second, first]),
        ("open=true", [second]),
        ("open=false", [first]),
        ("requested_by=ann", [first]),
        ("requested_by=root", [second]),
        ("requested_by=ann&open=true", []),
        ("requested_by=nobody", []),
    ):
        page = (await people.vic.get(f"/jobs?{query}")).json()
        assert [job["job_id"] for job in page["items"]] == expected, query
    ended = (await people.vic.get(f"/jobs/{first}")).json()
    last = (await people.vic.get(f"/jobs/{first}/executions")).json()["items"][0]
    assert ended["finished_at"] == last["finished_at"] != None  # noqa: E711 - in one line
    assert (await people.vic.get(f"/jobs/{second}")).json()["finished_at"] is None
    for query in ("open=maybe", "open=", f"requested_by={'x' * 256}"):
        told(await people.vic.get(f"/jobs?{query}"), 422, "invalid")


async def test_hosts_and_blocks_are_counted(look: Look, fleet: Fleet):
    names = await fleet.hosts(3)
    await fleet.pool.execute("UPDATE hosts SET state = 'DISABLED' WHERE name = $1", names[0])
    await fleet.block(names[1])
    await fleet.block(names[2], expires_in_s=600)
    await fleet.block(names[2], "look", expires_in_s=-1)
    found = await look()
    assert found["hosts"] == {"ACTIVE": 2, "DISABLED": 1}
    assert found["blocks"] == 2


async def test_what_ended_in_the_last_hour_is_told_minute_by_minute(
    look: Look, fleet: Fleet, people: People
):
    await fleet.hosts(3)
    claimed = await fleet.claim(await fleet.submit(people.ann))
    await fleet.say(claimed[:2], "succeed")
    await fleet.say(claimed[2:], "fail")
    found = await look()
    activity = found["activity"]
    assert activity["step_s"] == 60
    assert list(activity["statuses"]) == [s for s in EXECUTION.states if s in EXECUTION.terminal]
    assert {len(steps) for steps in activity["statuses"].values()} == {60}
    sums = {status: sum(steps) for status, steps in activity["statuses"].items() if sum(steps)}
    assert sums == {"SUCCESS": 2, "FAILED": 1}
    assert sum(sum(steps[-2:]) for steps in activity["statuses"].values()) == 3
    at, first = (datetime.fromisoformat(each) for each in (found["at"], activity["from"]))
    assert timedelta(minutes=59) <= at - first < timedelta(minutes=60)
    assert (first.second, first.microsecond) == (0, 0)


# What somebody should look at


async def kinds(look: Look) -> dict[str, tuple[int | None, int]]:
    found = (await look())["attention"]
    assert all(each["text"] for each in found)
    return {each["kind"]: (each["job_id"], each["count"]) for each in found}


async def test_a_worker_that_is_lost_and_one_that_left(look: Look, fleet: Fleet, people: People):
    await fleet.hosts(2)
    await fleet.submit(people.ann)
    await fleet.pool.execute("UPDATE workers SET beat_at = now() - interval '5 minutes'")
    assert await kinds(look) == {"NO_WORKER": (None, 2), "WORKER_LOST": (None, 1)}
    (lost,) = (await look())["workers"]
    assert (lost["worker_id"], lost["lives"]) == (fleet.worker, False)
    other = await workers.register(fleet.pool, "another")
    found = await look()
    assert [worker["worker_id"] for worker in found["workers"]] == [other, fleet.worker]
    assert [each["kind"] for each in found["attention"]] == ["WORKER_LOST"]
    await workers.leave(fleet.pool, other)
    await fleet.pool.execute("UPDATE workers SET beat_at = now() - interval '61 minutes'")
    assert await kinds(look) == {"NO_WORKER": (None, 2)}
    assert (await look())["workers"] == []


async def test_a_job_that_mostly_fails_is_pointed_at_while_it_is_open(
    look: Look, fleet: Fleet, people: People
):
    await fleet.hosts(101)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    await fleet.say(claimed[:90], "succeed")
    await fleet.say(claimed[90:95], "fail")
    await fleet.say(claimed[95:99], "timeout")
    assert await kinds(look) == {}, "nine of 99 are not ten"
    await fleet.say(claimed[99:100], "timeout")
    assert await kinds(look) == {"FAILING": (job_id, 10)}
    await fleet.say(claimed[100:], "succeed")
    await reaped(fleet)
    assert await kinds(look) == {}, "it is over"


async def test_ten_of_a_thousand_are_no_reason_to_look(look: Look, fleet: Fleet, people: People):
    await fleet.hosts(111)
    claimed = await fleet.claim(await fleet.submit(people.ann))
    await fleet.say(claimed[:10], "fail")
    await fleet.say(claimed[10:110], "succeed")
    assert await kinds(look) == {}


async def test_what_is_held_back_or_late_for_long_is_pointed_at(
    look: Look, fleet: Fleet, people: People
):
    await fleet.hosts(2)
    held, late, waiting, stopping = [
        await fleet.submit(people.ann, command_type=kind)
        for kind in ("look", "look", "deploy", "look")
    ]
    await fleet.claim(late)
    await fleet.claim(stopping, at_most=1)
    for job_id in (held, waiting, stopping):
        await pause(fleet.pool, job_id, paused=True)
    # It is over as soon as its host has stopped; nobody can let it go on.
    await people.ann.post(f"/jobs/{stopping}/cancel")
    await fleet.pool.execute("DELETE FROM outbox")
    assert await kinds(look) == {}
    await fleet.pool.execute(
        "UPDATE jobs SET paused_at = now() - interval '11 minutes' WHERE paused_at IS NOT NULL"
    )
    await fleet.pool.execute(
        "UPDATE runs r SET deadline_at = now() - interval '10 seconds' "
        "FROM executions e WHERE e.id = r.execution_id AND e.job_id = $1",
        late,
    )
    await fleet.pool.execute(
        "INSERT INTO outbox (topic, job_id, created_at) "
        "VALUES ('plan_job', $1, now() - interval '1 minute')",
        late,
    )
    assert await kinds(look) == {
        "OVERDUE": (late, 2),
        "OUTBOX_STUCK": (None, 1),
        "PAUSED": (held, 2),
    }


async def test_commands_that_only_an_event_can_move_on_are_pointed_at(
    look: Look, people: People, fleet: Fleet
):
    for number in range(3):
        made = await people.ann.post(
            "/commands", json={"lifecycle": "platform", "task_id": number, "node": "n"}
        )
        assert made.status_code == 201
    assert await kinds(look) == {}
    await fleet.pool.execute(
        "UPDATE commands SET due_at = now() - interval '1 s' WHERE task_id <> '0'"
    )
    assert await kinds(look) == {"DUE": (None, 2)}


# What it costs


async def test_a_crowd_of_pages_gets_one_answer(
    app: FastAPI, people: People, monkeypatch: pytest.MonkeyPatch
):
    looked = 0
    shared = overview_of(app)
    look = shared.look

    async def counting() -> Any:
        nonlocal looked
        looked += 1
        return await look()

    monkeypatch.setattr(shared, "look", counting)
    answers = await asyncio.gather(*(people.vic.get("/overview") for _ in range(30)))
    assert looked == 1
    assert len({answer.content for answer in answers}) == 1


async def test_nothing_that_is_over_is_read(services: Services, fleet: Fleet, people: People):
    """With thousands of finished jobs, neither they nor their counters are looked at."""
    await fleet.hosts(1)
    open_job = await fleet.submit(people.ann)
    await fleet.pool.execute(
        "INSERT INTO jobs (external_id, command_type, params, selector, read_only, timeout_s, "
        "max_retries, total, planned, finished_at) SELECT 'over-' || n, 'noop', '{}', '{}', "
        "true, 1, 0, 1, true, now() FROM generate_series(1, 3000) AS n"
    )
    await fleet.pool.execute(
        "INSERT INTO job_counts (job_id, status, n) "
        "SELECT id, 'SUCCESS', 1 FROM jobs WHERE finished_at IS NOT NULL"
    )
    await fleet.pool.execute("VACUUM ANALYZE jobs")
    await fleet.pool.execute("VACUUM ANALYZE job_counts")
    async with services.pool.acquire() as connection, connection.transaction():
        read = (
            "SELECT sum(seq_tup_read + idx_tup_fetch)::integer FROM pg_stat_xact_user_tables "
            "WHERE relname IN ('jobs', 'job_counts')"
        )
        before = await connection.fetchval(read)
        await reap(connection, lost_after_s=60, backoff=Backoff(1.0, 1.0), chance=lambda: 0.5)  # type: ignore[arg-type]  # as far as it is used here, a pool
        found = await Overview(connection, services.settings).look()  # type: ignore[arg-type]  # as above
        after = await connection.fetchval(read)
    assert [row["job_id"] for row in found.open] == [open_job]
    assert after - before < 50


async def test_what_is_masked_is_shown_to_nobody(look: Look, fleet: Fleet, people: People):
    await fleet.hosts(1)
    await fleet.pool.execute(
        "UPDATE command_types SET masked = ARRAY['token'] WHERE name = 'deploy'"
    )
    await fleet.submit(people.ann, command_type="deploy", params={"token": "s3cret-canary"})
    found = await look()
    assert found["open"][0]["params"] == found["waiting"][0]["params"] == {"token": "***"}
    assert "s3cret-canary" not in json.dumps(found)


async def test_only_who_may_read_is_told(app: FastAPI, people: People, client: httpx2.AsyncClient):
    async with calling(app) as nobody:
        told(await nobody.get("/overview"), 401, "key-missing")
    described = (await client.get("/openapi.json")).json()["paths"]["/overview"]["get"]
    assert described["x-permission"] == "read"
    assert (await people.vic.get("/overview")).status_code == 200
