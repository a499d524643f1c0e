"""Every execution of a job at a glance, and the stream that goes on from there."""

from __future__ import annotations

from itertools import chain
from typing import Any

import httpx2
import pytest

from onward.api.services import Services
from onward.core.lifecycles import EXECUTION
from onward.store import grid
from onward.store.database import Pool
from onward.store.grid import ORDER, Grid
from onward.wiring import Onward
from tests.api.fleet import Fleet, People
from tests.api.test_jobs import get
from tests.proof_table import Tried
from tests.store.test_changes import settled


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has a fleet of its own, so that the database can be shared."""
    return shared


def spread(runs: list[list[int]]) -> list[int]:
    """All numbers of runs."""
    return list(chain.from_iterable(range(first, first + count) for first, count in runs))


def unfolded(found: dict[str, Any]) -> list[tuple[int, int, str, bool]]:
    """A grid as rows: host, execution, status, and whether its host was late."""
    statuses = [found["order"][int(cell)] for cell in found["statuses"]]
    late = [place in found["late"] for place in range(len(statuses))]
    both = spread(found["hosts"]), spread(found["executions"])
    return list(zip(*both, statuses, late, strict=True))


async def stored(fleet: Fleet, job_id: int) -> list[tuple[int, int, str, bool]]:
    rows = await fleet.pool.fetch(
        "SELECT host_id, id, status, late_result IS NOT NULL FROM executions "
        "WHERE job_id = $1 ORDER BY host_id",
        job_id,
    )
    return [tuple(row) for row in rows]


def test_a_digit_is_enough_for_a_status():
    assert tuple(EXECUTION.states) == ORDER
    assert len(ORDER) <= 10


async def test_the_grid_shows_every_execution_where_it_is(fleet: Fleet, people: People):
    await fleet.hosts(8)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id, at_most=5)
    await fleet.say(claimed[:1], "succeed")
    await fleet.say(claimed[1:2], "fail")
    await fleet.say(claimed[2:4], "timeout")
    await fleet.say(claimed[3:4], "succeed")
    seen = await get(people.vic, f"/jobs/{job_id}/grid")
    assert unfolded(seen) == await stored(fleet, job_id)
    assert (seen["job_id"], seen["order"]) == (job_id, list(ORDER))
    assert [ORDER[int(cell)] for cell in seen["statuses"]] == [
        *("SUCCESS", "FAILED", "TIMEOUT", "TIMEOUT", "RUNNING"),
        *("QUEUED", "QUEUED", "QUEUED"),
    ]
    assert seen["late"] == [3]
    assert (len(seen["hosts"]), len(seen["executions"])) == (1, 1)


async def test_numbers_that_do_not_follow_on_each_other_are_told_as_they_are(
    fleet: Fleet, people: People
):
    """Hosts of others come between, and jobs that are made at once mix their executions."""
    first = await fleet.hosts(4)
    await (await Fleet.made(fleet.pool)).hosts(2)
    later = await fleet.hosts(3)
    job_id = await fleet.submit(people.ann, selector=[first[0], *first[2:]])
    # In the opposite order: no two of them follow on each other.
    await fleet.pool.execute(
        "INSERT INTO executions (job_id, host_id, read_only, timeout_s, status) "
        "SELECT $1, id, true, 1, 'NEW' FROM hosts WHERE name = ANY ($2) ORDER BY id DESC",
        job_id,
        later,
    )
    seen = await get(people.vic, f"/jobs/{job_id}/grid")
    assert unfolded(seen) == await stored(fleet, job_id)
    assert [count for _, count in seen["hosts"]] == [1, 2, 3]
    assert [count for _, count in seen["executions"]] == [3, 1, 1, 1]


async def test_the_stream_goes_on_from_the_grid(fleet: Fleet, people: People, services: Services):
    await fleet.hosts(2)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    await settled(services.pool)
    seen = await get(people.vic, f"/jobs/{job_id}/grid")
    await fleet.say(claimed[:1], "succeed")
    await settled(services.pool)
    page = await get(people.vic, f"/events/page?job_id={job_id}&after={seen['position']}")
    heard = [(item["execution_id"], item["status"]) for item in page["items"]]
    assert heard == [(claimed[0].execution_id, "SUCCESS")]


async def test_what_changes_as_soon_as_the_grid_was_read_is_told_by_the_stream(
    fleet: Fleet, people: People, monkeypatch: pytest.MonkeyPatch
):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    read = grid.of_job

    async def changed_since(pool: Pool, job_id: int) -> Grid | None:
        found = await read(pool, job_id)
        await fleet.queue(job_id)
        await settled(pool)
        return found

    monkeypatch.setattr(grid, "of_job", changed_since)
    seen = await get(people.vic, f"/jobs/{job_id}/grid")
    assert [ORDER[int(cell)] for cell in seen["statuses"]] == ["NEW"]
    page = await get(people.vic, f"/events/page?job_id={job_id}&after={seen['position']}")
    assert [item["status"] for item in page["items"] if item["kind"] == "execution"] == ["QUEUED"]


async def test_ten_thousand_hosts_are_a_byte_each(fleet: Fleet, people: People, tried: Tried):
    await fleet.pool.execute(
        "INSERT INTO hosts (name, labels) SELECT $1 || n, jsonb_build_object('of', $1::text) "
        "FROM generate_series(1, 10000) AS n",
        fleet.tag,
    )
    job_id = await fleet.submit(people.ann)
    answer = await people.vic.get(f"/jobs/{job_id}/grid")
    assert len(answer.content) < 11_000
    assert len(answer.json()["statuses"]) == 10_000
    tried("bytes for a grid of 10,000 hosts", len(answer.content))


async def test_the_grid_is_described(client: httpx2.AsyncClient):
    described = (await client.get("/openapi.json")).json()
    answer = described["paths"]["/jobs/{job_id}/grid"]["get"]["responses"]["200"]["content"]
    assert answer["application/json"]["schema"] == {"$ref": "#/components/schemas/Grid"}
    shown = {
        name: field["examples"][0]
        for name, field in described["components"]["schemas"]["Grid"]["properties"].items()
        if "examples" in field
    }
    assert len(unfolded({**shown, "late": []})) == 4
