"""Types that say what is run, and parameters that nobody is to see, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from onward.api.services import Services
from onward.fleet.attempt_ids import row_id
from onward.store import executions, hosts
from onward.store.commands import NewCommand
from onward.store.transitions import Event
from onward.wiring import Onward
from tests.api.asking_hosts import fresh
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.api.test_jobs import SEEN, get
from tests.present import TESTER
from tests.proof_table import Tried

SECRET = "hunter22-canary"  # noqa: S105 - looked for in answers, where it must not be
LOGIN: dict[str, Any] = {
    "needs_approval": False,
    "read_only": False,
    "timeout_s": 60,
    "max_retries": 0,
    "argv": ["login", "{user}"],
    "masked": ["token"],
}
PARAMS: dict[str, Any] = {"user": "ann", "token": SECRET}
SHOWN: dict[str, Any] = {"user": "ann", "token": "***"}


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has a fleet and types of its own, so that the database can be shared."""
    return shared


async def put(people: People, name: str | None = None, **changes: Any) -> str:
    """A type that logs somebody in; returns its name."""
    name = name or fresh("LOGIN")
    answer = await people.root.put(f"/command-types/{name}", json={**LOGIN, **changes})
    assert answer.status_code == 200, answer.text
    return name


async def test_a_job_takes_what_is_run_from_its_type_and_keeps_it(
    fleet: Fleet, people: People, services: Services
):
    await fleet.hosts(1)
    name = await put(people)
    job_id = await fleet.submit(people.ann, command_type=name, params=PARAMS)
    await put(people, name, argv=["logout"], masked=[])
    job = await get(people.vic, f"/jobs/{job_id}")
    assert (job["argv"], job["masked"], job["params"]) == (["login", "{user}"], ["token"], SHOWN)
    (errand,) = await executions.errands(services.pool, [job_id])
    assert (errand.argv, errand.masked) == (["login", "{user}"], ["token"])
    assert json.loads(errand.params) == PARAMS
    other = await fleet.submit(people.ann, command_type="noop")
    job = await get(people.vic, f"/jobs/{other}")
    assert (job["argv"], job["masked"]) == (None, [])
    (errand,) = await executions.errands(services.pool, [other])
    assert (errand.argv, errand.masked) == (None, [])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "/params/user"),
    ({"usr": "ann"}, "/params/user"),
    ({"user": None}, "/params/user"),
    ({"user": {"a": 1}}, "/params/user"),
    ({"user": ["ann", []]}, "/params/user/1"),
    ({"user": "ann", "token": [SECRET]}, "/params/token"),
    ({"user": "ann", "token": {"deep": SECRET}}, "/params/token"),
    ({"user": "ann", "token": "***"}, "/params/token"),
]


async def test_parameters_that_do_not_fill_the_arguments_are_refused_by_name_and_write_nothing(
    fleet: Fleet, people: People, tried: Tried
):
    await fleet.hosts(1)
    name = await put(people)
    # Before and after the type is known to the process that takes the jobs.
    for _ in range(2):
        before = await fleet.written()
        for params, pointer in WRONG:
            body = fleet.body(command_type=name, params=params)
            plan = {key: body[key] for key in ("command_type", "params", "selector")}
            for answer in (
                await people.ann.post("/webhook/jobs", json=body),
                await people.ann.post("/jobs/plan", json=plan),
            ):
                problem: Any = told(answer, 422, "invalid")
                assert problem["errors"][0]["pointer"] == pointer
                assert SECRET not in answer.text
        assert await fleet.written() == before
        await fleet.submit(people.ann, command_type=name, params=PARAMS)
    tried("parameters that no argument can hold", 4 * len(WRONG), "all refused by name")


async def test_a_job_is_judged_by_its_type_as_it_is_now_whatever_it_was(
    fleet: Fleet, people: People
):
    await fleet.hosts(1)
    name = await put(people)

    async def taken(params: dict[str, Any]) -> list[str] | None:
        answer = await people.ann.post(
            "/webhook/jobs", json=fleet.body(command_type=name, params=params)
        )
        if answer.status_code == 422:
            return None
        found: list[str] = (await get(people.ann, answer.headers["location"]))["argv"]
        return found

    assert await taken({"user": "ann"}) == ["login", "{user}"]
    await put(people, name, argv=["login", "{person}"])
    assert await taken({"user": "ann"}) is None
    assert await taken({"person": "ann"}) == ["login", "{person}"]
    await put(people, name, argv=["login", "{user}"])
    # It suits the type that is remembered and not the one that is there, and the other way round.
    assert await taken({"person": "ann"}) is None
    assert await taken({"user": "ann"}) == ["login", "{user}"]
    await put(people, name, argv=None, masked=[])
    answer = await people.ann.post("/webhook/jobs", json=fleet.body(command_type=name))
    assert (await get(people.ann, answer.headers["location"]))["argv"] is None


async def test_a_repeat_is_a_repeat_by_the_real_values_whatever_has_become_of_the_type(
    fleet: Fleet, people: People
):
    await fleet.hosts(1)
    name = await put(people)
    body = fleet.body(command_type=name, params=PARAMS)
    first = await people.ann.post("/webhook/jobs", json=body)
    other = {**body, "params": {**PARAMS, "token": "other"}}
    for _ in range(2):
        again = await people.ann.post("/webhook/jobs", json=body)
        assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])
        answer = await people.ann.post("/webhook/jobs", json=other)
        told(answer, 422, "job-conflict")
        assert SECRET not in answer.text
        await put(people, name, argv=["login", "{someone_else}"])


async def test_a_plan_stands_for_what_its_type_runs(fleet: Fleet, people: People):
    await fleet.hosts(1)
    name = await put(people)
    body = fleet.body(command_type=name, params=PARAMS)
    plan = {key: body[key] for key in ("command_type", "params", "selector")}
    seen = (await people.ann.post("/jobs/plan", json=plan)).headers["etag"]
    await put(people, name, argv=["logout", "{user}"])
    late = await people.ann.post("/webhook/jobs", json=body, headers={"If-Match": seen})
    told(late, 412, "plan-changed")


async def test_a_masked_value_is_in_no_answer_about_a_job(
    fleet: Fleet, people: People, services: Services
):
    await fleet.hosts(1)
    name = await put(people, needs_approval=True)
    body = fleet.body(command_type=name, params=PARAMS)
    made = await people.ann.post("/webhook/jobs", json=body)
    path = made.headers["location"]
    edited = {"user": "bob", "token": f"{SECRET}-2", "extra": 1}
    answers = [
        made,
        await people.vic.get(path),
        await people.vic.get(f"{path}/plan"),
        await people.vic.get("/jobs", params={"external_id": body["external_id"]}),
        await people.ann.patch(path, json={"params": edited}, headers=SEEN),
        await people.ann.patch(path, json={"params": edited}, headers=SEEN),  # stale
        await people.vic.get(f"{path}/timeline"),
        await people.ann.post("/webhook/jobs", json=body),
        await people.ann.post("/webhook/jobs", json={**body, "params": edited}),
        await people.bob.post(f"{path}/approve", headers={"If-Match": '"2"'}),
        await people.bob.post(f"{path}/approve", headers={"If-Match": '"3"'}),  # decided before
        await people.ann.post(f"{path}/pause", headers={"If-Match": '"3"'}),
        await people.ann.post(f"{path}/resume", headers={"If-Match": '"4"'}),
        await people.ann.post(f"{path}/cancel"),
        await people.ann.post(f"{path}/retry"),
        await people.vic.get("/events/page"),
        await people.vic.get("/overview"),
        await people.vic.get(f"{path}/outputs"),
    ]
    assert [answer.status_code for answer in answers] == [
        *(202, 200, 200, 200, 200, 412, 200, 200, 422, 200, 409, 200, 200, 200, 409, 200),
        *(200, 200),
    ]
    for answer in answers:
        assert SECRET not in answer.text, answer.request.url
    for number in (1, 4, 9, 11, 12, 13):
        assert "***" in answers[number].json()["params"].values()
    assert answers[2].json()["job"]["params"] == SHOWN
    edit = next(each for each in answers[6].json()["items"] if each["event"] == "edit")
    assert edit["detail"] == {"params": {"user": "bob", "token": "***", "extra": 1}}
    noted = await services.pool.fetch("SELECT detail::text FROM job_timeline")
    assert not any(SECRET in (row["detail"] or "") for row in noted)


async def test_a_masked_value_that_comes_back_as_it_was_shown_stays_what_it_was(
    fleet: Fleet, people: People, services: Services
):
    await fleet.hosts(1)
    name = await put(people, needs_approval=True)
    job_id = await fleet.submit(people.ann, command_type=name, params=PARAMS)
    path = f"/jobs/{job_id}"
    seen = (await get(people.ann, path))["params"]
    wanted = {"params": {**seen, "user": "bob"}}
    answer = await people.ann.patch(path, json=wanted, headers=SEEN)
    assert answer.json()["params"] == {"user": "bob", "token": "***"}
    (errand,) = await executions.errands(services.pool, [job_id])
    assert json.loads(errand.params) == {"user": "bob", "token": SECRET}
    # It can be taken away, and then there is nothing that it could stay.
    second = {"If-Match": '"2"'}
    answer = await people.ann.patch(path, json={"params": {"user": "bob"}}, headers=second)
    assert answer.json()["params"] == {"user": "bob"}
    third = {"If-Match": '"3"'}
    problem: Any = told(await people.ann.patch(path, json=wanted, headers=third), 422, "invalid")
    assert problem["errors"][0]["pointer"] == "/params/token"


async def test_an_edit_has_to_fill_the_arguments_that_the_job_was_made_with(
    fleet: Fleet, people: People
):
    await fleet.hosts(1)
    name = await put(people, needs_approval=True)
    job_id = await fleet.submit(people.ann, command_type=name, params=PARAMS)
    await put(people, name, argv=None, masked=[])
    for params, pointer in WRONG[:-1]:
        answer = await people.ann.patch(f"/jobs/{job_id}", json={"params": params}, headers=SEEN)
        problem: Any = told(answer, 422, "invalid")
        assert problem["errors"][0]["pointer"] == pointer
    job = await get(people.ann, f"/jobs/{job_id}")
    assert (job["version"], job["params"]) == (1, SHOWN)


async def test_a_retry_runs_what_was_run_and_shows_nothing_that_was_masked(
    fleet: Fleet, people: People, services: Services
):
    await fleet.hosts(1)
    name = await put(people)
    job_id = await fleet.submit(people.ann, command_type=name, params=PARAMS)
    await fleet.say(await fleet.claim(job_id), "fail", cause="FAILED")
    await put(people, name, argv=["logout", "{user}"], masked=["whom"])
    answer = await people.ann.post(f"/jobs/{job_id}/retry")
    assert answer.status_code == 202, answer.text
    again = await get(people.ann, answer.headers["location"])
    assert (again["argv"], again["params"]) == (["login", "{user}"], SHOWN)
    assert sorted(again["masked"]) == ["token", "whom"]
    (errand,) = await executions.errands(services.pool, [again["job_id"]])
    assert json.loads(errand.params) == PARAMS
    # Asked twice, it finds the same one.
    assert (await people.ann.post(f"/jobs/{job_id}/retry")).status_code == 200


async def command(client: httpx2.AsyncClient, **fields: Any) -> str:
    """Make a command; returns where it is."""
    answer = await client.post("/commands", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.headers["location"]


async def test_a_command_is_shown_without_what_its_type_masks_and_what_its_node_repeats(
    people: People,
):
    name = await put(people, argv=None)
    path = await command(people.root, type=name, params=PARAMS, node="n1")
    said = {
        "event": "done",
        "result": {"said": f"{SECRET} is good", SECRET: 1},
        "error_message": f"not {SECRET}",
    }
    assert (await people.root.post(f"{path}/events", json=said)).json()["changed"] is True
    late = await people.root.post(f"{path}/events", json={**said, "event": "error"})
    assert late.json()["changed"] is False
    shown, timeline = await get(people.vic, path), await get(people.vic, f"{path}/timeline")
    assert shown["params"] == SHOWN
    assert shown["result"] == {"said": "*** is good", "***": 1}
    assert shown["error_message"] == "not ***"
    assert SECRET not in json.dumps([shown, timeline])
    assert len(timeline["items"]) == 3
    conflict = {"type": name, "params": {"token": f"{SECRET}!"}, "cmd_id": shown["cmd_id"]}
    answer = await people.root.post("/commands", json=conflict)
    assert told(answer, 422, "command-conflict")["differs"] == ["node", "params"]
    assert SECRET not in answer.text
    # Others are shown as they are.
    path = await command(people.root, type="another", params=PARAMS)
    assert (await get(people.vic, path))["params"] == PARAMS


async def test_the_command_of_an_attempt_stays_masked_without_its_type(
    fleet: Fleet, people: People, services: Services
):
    await fleet.hosts(1)
    name = await put(people, argv=None)
    job_id = await fleet.submit(people.ann, command_type=name, params=PARAMS)
    (claimed,) = await fleet.claim(job_id)
    cmd_id = row_id(str(claimed.execution_id), claimed.epoch)
    new = NewCommand(cmd_id, "node", "n1", name, None, json.dumps(PARAMS), 5.0, "test")
    await services.commands.create(new)
    await services.commands.record(Event(cmd_id, "done", data=json.dumps({"result": [SECRET]})))
    await hosts.delete_type(services.pool, name, by=TESTER)
    shown = await get(people.vic, f"/commands/{cmd_id}")
    assert (shown["params"], shown["result"]) == (SHOWN, ["***"])
    assert SECRET not in (await people.vic.get(f"/commands/{cmd_id}/timeline")).text
