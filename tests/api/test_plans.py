"""A plan can be seen first, and a job be sent that is taken as its plan said or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onward.wiring import Onward
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.api.test_intake import PLAN, WEBHOOK


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has a fleet of its own, so that the database can be shared."""
    return shared


async def test_a_plan_says_who_runs_who_is_blocked_by_what_and_who_is_busy(
    fleet: Fleet, people: People
):
    free, busy, blocked, expired = await fleet.hosts(4)
    await fleet.block(blocked, reason="disk is full", owner="eve", expires_in_s=600)
    await fleet.block(expired, expires_in_s=-1)
    (running,) = await fleet.claim(await fleet.submit(people.ann, selector=[busy]))
    before = await fleet.written()
    answer = await people.vic.post(
        PLAN, json={"command_type": "noop", "selector": fleet.selector, "max_concurrency": 1}
    )
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert (plan["total"], plan["runs"], plan["blocked"], plan["busy"]) == (4, 3, 1, 1)
    assert [host["name"] for host in plan["hosts"]] == [free, busy, expired]
    (rule,) = plan["blocked_hosts"]
    assert (rule["name"], rule["reason"], rule["owner"]) == (blocked, "disk is full", "eve")
    assert rule["expires_at"]
    (held,) = plan["busy_hosts"]
    assert (held["name"], held["execution_id"]) == (busy, running.execution_id)
    assert plan["selector"] == f"hosts where of={fleet.tag}"
    assert plan["needs_approval"] is False
    assert answer.headers["etag"] == plan["etag"]
    assert await fleet.written() == before


async def test_a_plan_names_some_and_counts_all(fleet: Fleet, people: People):
    names = await fleet.hosts(5)
    await fleet.block(names[0], "look")
    body = {"command_type": "look", "selector": fleet.selector}
    plan = (await people.vic.post(f"{PLAN}?named=2", json=body)).json()
    assert (plan["total"], plan["runs"], len(plan["hosts"])) == (5, 4, 2)
    none = (await people.vic.post(f"{PLAN}?named=0", json=body)).json()
    assert (none["total"], none["hosts"], none["blocked_hosts"]) == (5, [], [])
    assert none["etag"] == plan["etag"]


async def test_whoever_may_share_a_host_finds_it_busy_only_with_what_may_not(
    fleet: Fleet, people: People
):
    shared, alone = await fleet.hosts(2)
    await fleet.claim(await fleet.submit(people.ann, selector=[shared], command_type="look"))
    await fleet.claim(await fleet.submit(people.ann, selector=[alone], command_type="noop"))
    for command_type, busy in (("look", [alone]), ("noop", [shared, alone])):
        body = {"command_type": command_type, "selector": fleet.selector}
        plan = (await people.vic.post(PLAN, json=body)).json()
        assert [host["name"] for host in plan["busy_hosts"]] == busy


Change = Callable[[Fleet, list[str]], Awaitable[Any]]


async def a_host_comes(fleet: Fleet, _: list[str]) -> None:
    await fleet.hosts(1)


async def a_host_goes(fleet: Fleet, names: list[str]) -> None:
    await fleet.pool.execute("DELETE FROM hosts WHERE name = $1", names[0])


async def a_host_is_disabled(fleet: Fleet, names: list[str]) -> None:
    await fleet.pool.execute("UPDATE hosts SET state = 'DISABLED' WHERE name = $1", names[0])


async def a_host_is_labelled_otherwise(fleet: Fleet, names: list[str]) -> None:
    await fleet.pool.execute("UPDATE hosts SET labels = '{}' WHERE name = $1", names[0])


async def a_host_is_replaced_by_another_of_its_name(fleet: Fleet, names: list[str]) -> None:
    await fleet.pool.execute("DELETE FROM hosts WHERE name = $1", names[0])
    await fleet.pool.execute(
        "INSERT INTO hosts (name, labels) VALUES ($1, jsonb_build_object('of', $2::text))",
        names[0],
        fleet.tag,
    )


async def a_block_comes(fleet: Fleet, names: list[str]) -> None:
    await fleet.block(names[0])


async def a_block_goes(fleet: Fleet, names: list[str]) -> None:
    await fleet.pool.execute(
        "DELETE FROM host_command_blocks b USING hosts h WHERE h.id = b.host_id AND h.name = $1",
        names[1],
    )


async def a_block_expires(fleet: Fleet, names: list[str]) -> None:
    await fleet.pool.execute(
        "UPDATE host_command_blocks b SET expires_at = now() FROM hosts h "
        "WHERE h.id = b.host_id AND h.name = $1",
        names[1],
    )


@pytest.mark.parametrize(
    "change",
    [
        *(a_host_comes, a_host_goes, a_host_is_disabled, a_host_is_labelled_otherwise),
        *(a_host_is_replaced_by_another_of_its_name, a_block_comes, a_block_goes, a_block_expires),
    ],
)
async def test_a_job_is_taken_as_its_plan_said_or_not_at_all(
    fleet: Fleet, people: People, change: Change
):
    names = await fleet.hosts(3)
    await fleet.block(names[1])
    body = fleet.body()
    planned = {key: body[key] for key in ("command_type", "params", "selector")}
    seen = (await people.ann.post(PLAN, json=planned)).headers["etag"]
    await change(fleet, names)
    before = await fleet.written()

    refused = await people.ann.post(WEBHOOK, json=body, headers={"If-Match": seen})

    problem = told(refused, 412, "plan-changed")
    assert await fleet.written() == before
    present = (await people.ann.post(PLAN, json=planned)).headers["etag"]
    assert refused.headers["etag"] == problem["etag"] == present != seen
    taken = await people.ann.post(WEBHOOK, json=body, headers={"If-Match": present})
    assert taken.status_code == 202, taken.text


async def test_what_changes_nothing_about_who_runs_leaves_the_plan_as_it_is(
    fleet: Fleet, people: People
):
    names = await fleet.hosts(2)
    body = fleet.body()
    planned = {key: body[key] for key in ("command_type", "selector")}
    seen = (await people.ann.post(PLAN, json=planned)).headers["etag"]
    await fleet.block(names[0], "look")
    await fleet.block(names[0], expires_in_s=-1)
    await fleet.claim(await fleet.submit(people.ann))
    taken = await people.ann.post(WEBHOOK, json=body, headers={"If-Match": seen})
    assert taken.status_code == 202, taken.text


async def test_a_plan_that_needed_no_approval_is_not_the_one_that_needs_it(
    fleet: Fleet, people: People
):
    await fleet.hosts(1)
    name = f"type-{fleet.tag}"
    await fleet.pool.execute("INSERT INTO command_types (name) VALUES ($1)", name)
    body = fleet.body(command_type=name)
    planned = {key: body[key] for key in ("command_type", "selector")}
    seen = (await people.ann.post(PLAN, json=planned)).headers["etag"]
    await fleet.pool.execute("UPDATE command_types SET needs_approval = true WHERE name = $1", name)
    refused = await people.ann.post(WEBHOOK, json=body, headers={"If-Match": seen})
    told(refused, 412, "plan-changed")


async def test_a_repeat_is_found_although_its_plan_is_an_old_one(fleet: Fleet, people: People):
    await fleet.hosts(1)
    body = fleet.body()
    planned = {key: body[key] for key in ("command_type", "selector")}
    seen = {"If-Match": (await people.ann.post(PLAN, json=planned)).headers["etag"]}
    assert (await people.ann.post(WEBHOOK, json=body, headers=seen)).status_code == 202
    await fleet.hosts(1)
    assert (await people.ann.post(WEBHOOK, json=body, headers=seen)).status_code == 200


async def test_the_table_of_if_match_with_a_job(fleet: Fleet, people: People):
    await fleet.hosts(1)
    body = fleet.body()
    planned = {key: body[key] for key in ("command_type", "selector")}
    good = (await people.ann.post(PLAN, json=planned)).headers["etag"]
    other = '"plan-' + "0" * 32 + '"'
    before = await fleet.written()
    for values, status, code in (
        ([other], 412, "plan-changed"),
        ([f"W/{good}"], 412, "plan-changed"),
        (["*"], 400, "if-match-malformed"),
        (['"1"'], 400, "if-match-malformed"),
        ([""], 400, "if-match-malformed"),
        ([good.strip('"')], 400, "if-match-malformed"),
        ([good.upper()], 400, "if-match-malformed"),
        ([f"{good}, {other}"], 400, "if-match-malformed"),
        ([good, good], 400, "if-match-malformed"),
        (["x" * 10_000], 400, "if-match-malformed"),
    ):
        headers = [("If-Match", value) for value in values]
        answer = await people.ann.post(WEBHOOK, json=body, headers=headers)
        told(answer, status, code)
        if status == 412:
            assert answer.headers["etag"] == good
    assert await fleet.written() == before


async def test_a_plan_says_what_its_type_runs_and_which_parameters_nobody_is_to_see(
    fleet: Fleet, people: People
):
    await fleet.hosts(1)
    name = f"type-{fleet.tag}"
    await fleet.pool.execute(
        "INSERT INTO command_types (name, argv, masked) VALUES ($1, $2, $3)",
        name,
        '["login", "{user}"]',
        ["token"],
    )
    body = {"command_type": name, "selector": fleet.selector}
    params = {"user": "ann", "token": "s3cret-word"}
    answer = await people.vic.post(PLAN, json={**body, "params": params})
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert (plan["argv"], plan["masked"]) == (["login", "{user}"], ["token"])
    assert "s3cret-word" not in answer.text
    free = (await people.vic.post(PLAN, json={**body, "command_type": "noop"})).json()
    assert (free["argv"], free["masked"]) == (None, [])
