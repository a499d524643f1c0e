"""Intake: a webhook makes one job or none, and a repeat finds it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from onward.api.permissions import Role
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.proof_table import Tried

WEBHOOK, PLAN = "/webhook/jobs", "/jobs/plan"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has a fleet of its own, so that the database can be shared."""
    return shared


def detail(answer: httpx2.Response, code: str = "invalid") -> str:
    """The one thing that is wrong with a request, where it is and what."""
    errors: Any = told(answer, 422, code)["errors"]
    (error,) = errors
    return f"{error['pointer']}: {error['detail']}"


# A webhook makes one job


async def test_a_job_is_taken_with_all_its_executions(fleet: Fleet, people: People):
    await fleet.hosts(3)
    body = fleet.body(max_concurrency=2)
    answer = await people.ann.post(WEBHOOK, json=body)
    assert answer.status_code == 202, answer.text
    accepted = answer.json()
    job_id = accepted.pop("job_id")
    assert accepted == {
        "external_id": body["external_id"],
        "total": 3,
        "approval_state": None,
        "version": 1,
        "duplicate": False,
    }
    assert answer.headers["location"] == f"/jobs/{job_id}"
    assert answer.headers["etag"] == '"1"'
    assert "idempotent-replay" not in answer.headers
    job = (await people.vic.get(answer.headers["location"])).json()
    assert (job["counts"], job["requested_by"]) == ({"NEW": 3}, "ann")
    assert (job["params"], job["max_concurrency"]) == ({"a": 1}, 2)
    assert await fleet.pool.fetchval("SELECT count(*) FROM outbox WHERE job_id = $1", job_id) == 1


async def test_a_type_that_needs_approval_makes_a_job_that_waits(fleet: Fleet, people: People):
    await fleet.hosts(1)
    answer = await people.ann.post(WEBHOOK, json=fleet.body(command_type="deploy"))
    assert answer.json()["approval_state"] == "WAIT_APPROVAL"
    job_id = answer.json()["job_id"]
    assert await fleet.pool.fetchval("SELECT count(*) FROM outbox WHERE job_id = $1", job_id) == 0


async def test_every_form_of_a_selector_finds_its_hosts(fleet: Fleet, people: People):
    one, two, _ = await fleet.hosts(3)
    forms: list[tuple[object, int]] = [
        ([one, two, one], 2),
        ({"hostnames": [two]}, 1),
        ({"labels": {"of": fleet.tag}}, 3),
        ({"expression": f"of={fleet.tag} and not name={one}"}, 2),
        (f"name={fleet.tag}-*", 3),
    ]
    for selector, total in forms:
        answer = await people.ann.post(WEBHOOK, json=fleet.body(selector=selector))
        assert answer.json()["total"] == total, selector
    everybody = await people.ann.post(WEBHOOK, json=fleet.body(selector="all"))
    active = "SELECT count(*) FROM hosts WHERE state = 'ACTIVE'"
    assert everybody.json()["total"] == await fleet.pool.fetchval(active)


# A repeat finds it


async def test_a_repeat_finds_the_job_however_it_is_written(fleet: Fleet, people: People):
    await fleet.hosts(2)
    body = fleet.body(params={"x": 1, "y": [1e23, 0.1, -0.0], "z": {"b": None, "a": "ä"}})
    first = (await people.ann.post(WEBHOOK, json=body)).json()
    before = await fleet.written()
    again = dict(reversed(body.items())) | {"params": dict(reversed(body["params"].items()))}
    for text in (
        json.dumps(body),
        json.dumps(again, indent=4, ensure_ascii=False),
        json.dumps(body).replace('"x": 1,', '"x": 1.0,').replace("1e+23", "1E23"),
        json.dumps({**body, "selector": {"expression": body["selector"]}, "max_concurrency": None}),
    ):
        answer = await people.root.post(WEBHOOK, content=text.encode(), headers=JSON)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {**first, "duplicate": True}
        assert answer.headers["idempotent-replay"] == "true"
        assert answer.headers["location"] == f"/jobs/{first['job_id']}"
    assert await fleet.written() == before


async def test_a_repeat_is_one_whatever_became_of_the_fleet(fleet: Fleet, people: People):
    names = await fleet.hosts(2)
    body = fleet.body(selector=names)
    job_id = (await people.ann.post(WEBHOOK, json=body)).json()["job_id"]
    disable = "UPDATE hosts SET state = 'DISABLED' WHERE labels ->> 'of' = $1"
    await fleet.pool.execute(disable, fleet.tag)
    await fleet.pool.execute("DELETE FROM command_types WHERE name = 'noop'")
    try:
        again = await people.ann.post(WEBHOOK, json=body)
    finally:
        await fleet.pool.execute("INSERT INTO command_types (name) VALUES ('noop')")
    assert (again.status_code, again.json()["job_id"]) == (200, job_id)


async def test_a_repeat_of_what_was_edited_since_is_one(fleet: Fleet, people: People):
    await fleet.hosts(1)
    body = fleet.body(command_type="deploy")
    job_id = (await people.ann.post(WEBHOOK, json=body)).json()["job_id"]
    edited = await people.ann.patch(
        f"/jobs/{job_id}", json={"params": {"b": 2}}, headers={"If-Match": '"1"'}
    )
    assert edited.status_code == 200, edited.text
    again = await people.ann.post(WEBHOOK, json=body)
    assert (again.status_code, again.json()["version"]) == (200, 2)
    other = await people.ann.post(WEBHOOK, json=body | {"params": {"b": 2}})
    assert detail(other, "job-conflict").endswith("another params")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"params": {"a": True}}, "params"),
        ({"params": {"a": "1"}}, "params"),
        ({"params": {"a": 1, "b": None}}, "params"),
        ({"selector": "name=web-*"}, "selector"),
        ({"command_type": "look"}, "command_type"),
        ({"max_concurrency": 7}, "max_concurrency"),
        ({"max_concurrency": 7, "params": {}}, "max_concurrency and params"),
    ],
)
async def test_another_body_under_the_same_id_is_refused_with_what_differs(
    fleet: Fleet, people: People, change: dict[str, object], named: str
):
    await fleet.hosts(1)
    body = fleet.body()
    job_id = (await people.ann.post(WEBHOOK, json=body)).json()["job_id"]
    before = await fleet.written()
    answer = await people.ann.post(WEBHOOK, json=body | change)
    said = f"'{body['external_id']}' is job {job_id}, but with another {named}"
    assert detail(answer, "job-conflict") == f"/external_id: {said}"
    assert await fleet.written() == before


async def test_twenty_deliveries_of_one_webhook_at_once_make_one_job(
    fleet: Fleet, people: People, tried: Tried, *, proof: bool
):
    await fleet.hosts(5)
    rounds = 50 if proof else 5
    for _ in range(rounds):
        body = fleet.body()
        answers = await asyncio.gather(*(people.ann.post(WEBHOOK, json=body) for _ in range(20)))
        assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 19}
        (job_id,) = {answer.json()["job_id"] for answer in answers}
        made = "SELECT count(*) FROM executions WHERE job_id = $1"
        assert await fleet.pool.fetchval(made, job_id) == 5
    tried("webhooks delivered over HTTP twenty times at once", rounds, "one job each, no error")


async def test_of_two_bodies_under_one_id_at_once_one_is_taken_and_the_other_told(
    fleet: Fleet, people: People, tried: Tried, *, proof: bool
):
    await fleet.hosts(2)
    rounds = 50 if proof else 5
    for _ in range(rounds):
        body = fleet.body()
        bodies = [body | {"params": {"which": n % 2}} for n in range(20)]
        answers = await asyncio.gather(*(people.ann.post(WEBHOOK, json=each) for each in bodies))
        codes = [answer.status_code for answer in answers]
        winner = codes.index(202) % 2
        assert Counter(codes[winner::2]) == {202: 1, 200: 9}
        for loser in answers[1 - winner :: 2]:
            assert detail(loser, "job-conflict").endswith("but with another params")
    tried("webhooks with one of two bodies, twenty at once", rounds, "one job each, no error")


# What cannot run


async def test_hosts_that_cannot_be_had_are_listed_and_nothing_is_written(
    fleet: Fleet, people: People
):
    one, two = await fleet.hosts(2)
    await fleet.pool.execute("UPDATE hosts SET state = 'DISABLED' WHERE name = $1", two)
    many = [f"no-{n:03}" for n in range(150)]
    before = await fleet.written()
    for path, extra in ((WEBHOOK, {"external_id": "x"}), (PLAN, {})):
        for selector, said in (
            (
                [one, "gone", two, "a lost one"],
                f"no such hosts: a lost one, {two} (disabled), gone",
            ),
            (many, f"no such hosts: {', '.join(many[:100])} and more"),
            ("of=nobody", "no host matches it, so there would be nothing to do"),
            ([two], f"no such hosts: {two} (disabled)"),
        ):
            body = {"command_type": "noop", "selector": selector, **extra}
            assert detail(await people.ann.post(path, json=body)) == f"/selector: {said}"
    assert await fleet.written() == before


async def test_an_unknown_type_is_told_with_those_that_there_are(fleet: Fleet, people: People):
    await fleet.hosts(1)
    for path, extra in ((WEBHOOK, {"external_id": "y"}), (PLAN, {})):
        body = {"command_type": "dance", "selector": fleet.selector, **extra}
        said = detail(await people.ann.post(path, json=body))
        assert said.startswith("/command_type: 'dance' is not one of DEPLOY, PING, ")


# Bad input

GOOD: dict[str, object] = {"command_type": "noop", "selector": "all"}
BAD_FIELDS: dict[str, tuple[dict[str, object], str]] = {
    "no selector": ({"command_type": "noop"}, "/selector"),
    "no type": ({"selector": "all"}, "/command_type"),
    "an unknown field": (GOOD | {"is_admin": True}, "/is_admin"),
    "a type of spaces and a NUL": (GOOD | {"command_type": "a\0"}, "/command_type"),
    "a type with a newline": (GOOD | {"command_type": "noop\n"}, "/command_type"),
    "a type with a bidi override": (GOOD | {"command_type": "no\u202eop"}, "/command_type"),
    "a type that is a number": (GOOD | {"command_type": 1}, "/command_type"),
    "an empty type": (GOOD | {"command_type": ""}, "/command_type"),
    "a type of 256": (GOOD | {"command_type": "x" * 256}, "/command_type"),
    "params that are a list": (GOOD | {"params": []}, "/params"),
    "params that are null": (GOOD | {"params": None}, "/params"),
    "a NUL in params": (GOOD | {"params": {"a": "b\0"}}, "/params/a"),
    "a NUL in a key of params": (GOOD | {"params": {"a\0": 1}}, "/a key of params"),
    "a number of 65 bits in params": (GOOD | {"params": {"a": [2**64]}}, "/params/a/0"),
    "params that are too large": (GOOD | {"params": {"a": "x" * 300_000}}, "/params"),
    "params that are too deep": (GOOD | {"params": {"a": json.loads("[" * 70 + "]" * 70)}}, ""),
    "selector: null": (GOOD | {"selector": None}, "/selector"),
    "selector: a number": (GOOD | {"selector": 1}, "/selector"),
    "selector: true": (GOOD | {"selector": True}, "/selector"),
    "selector: nothing": (GOOD | {"selector": ""}, "/selector"),
    "selector: an empty list": (GOOD | {"selector": []}, "/selector"),
    "selector: an empty object": (GOOD | {"selector": {}}, "/selector"),
    "selector: no labels": (GOOD | {"selector": {"labels": {}}}, "/selector"),
    "selector: two forms": (GOOD | {"selector": {"all": True, "hostnames": ["a"]}}, "/selector"),
    "selector: an unknown form": (GOOD | {"selector": {"hosts": ["a"]}}, "/selector"),
    "selector: a list of numbers": (GOOD | {"selector": [1, 2]}, "/selector"),
    "selector: a NUL in a name": (GOOD | {"selector": ["a\0"]}, "/selector"),
    "selector: 10,001 names": (GOOD | {"selector": [f"n{n}" for n in range(10_001)]}, "/selector"),
    "selector: half an expression": (GOOD | {"selector": "role=web and"}, "/selector"),
    "selector: SQL": (GOOD | {"selector": "'; DROP TABLE jobs; --"}, "/selector"),
    "selector: parentheses": (GOOD | {"selector": "(" * 5_000}, "/selector"),
    "max_concurrency: zero": (GOOD | {"max_concurrency": 0}, "/max_concurrency"),
    "max_concurrency: negative": (GOOD | {"max_concurrency": -1}, "/max_concurrency"),
    "max_concurrency: a million and one": (GOOD | {"max_concurrency": 1_000_001}, ""),
    "max_concurrency: 2^63": (GOOD | {"max_concurrency": 2**63}, "/max_concurrency"),
    "max_concurrency: true": (GOOD | {"max_concurrency": True}, "/max_concurrency"),
    "max_concurrency: 1.0": (GOOD | {"max_concurrency": 1.0}, "/max_concurrency"),
    "max_concurrency: text": (GOOD | {"max_concurrency": "10"}, "/max_concurrency"),
}
BAD_IDS: dict[str, object] = {
    "missing": ...,
    "null": None,
    "a number": 1,
    "empty": "",
    "256 characters": "x" * 256,
    "a NUL": "a\0b",
    "a newline": "a\nb",
    "an escape": "\x1b[31m",
    "a look-alike": "dеploy",  # noqa: RUF001 - the letter is Cyrillic, and that is the point
    "a combined letter": "e\u0301",
    "a space at its end": "deploy ",
    "a space at its beginning": " deploy",
    "only spaces": "  ",
}


async def test_the_table_of_bad_input(fleet: Fleet, people: People, tried: Tried):
    """Every field of both routes; nothing is written, and the field is pointed at."""
    before = await fleet.written()
    for name, (body, pointer) in BAD_FIELDS.items():
        for path, extra in ((WEBHOOK, {"external_id": "bad"}), (PLAN, {})):
            answer = await people.ann.post(path, json=body | extra)
            said = detail(answer)
            assert said.startswith(pointer), (name, said)
    for name, external_id in BAD_IDS.items():
        body = GOOD if external_id is ... else GOOD | {"external_id": external_id}
        said = detail(await people.ann.post(WEBHOOK, json=body))
        assert said.startswith("/external_id: "), (name, said)
    assert await fleet.written() == before
    tried(
        "bad bodies for jobs and plans", 2 * len(BAD_FIELDS) + len(BAD_IDS), "all refused by name"
    )


async def test_a_body_that_is_no_strict_json_writes_nothing(fleet: Fleet, people: People):
    await fleet.hosts(1)
    before = await fleet.written()
    good = json.dumps(fleet.body())
    for text, status, code in (
        ("", 400, "json-malformed"),
        ("null", 422, "invalid"),
        ("[]", 422, "invalid"),
        (good[:-1], 400, "json-malformed"),
        (good.replace('{"a": 1}', '{"a": NaN}'), 400, "json-malformed"),
        (good.replace('{"a": 1}', '{"a": 1e400}'), 400, "json-malformed"),
        (good.replace('{"a": 1}', '{"a": 1, "a": 2}'), 400, "json-malformed"),
        (good.replace('{"a": 1}', r'{"a": "\ud800"}'), 422, "invalid"),
        ("[" * 100_000, 400, "json-malformed"),
    ):
        answer = await people.ann.post(WEBHOOK, content=text.encode(), headers=JSON)
        told(answer, status, code)
    plain = {"Content-Type": "text/plain"}
    told(
        await people.ann.post(WEBHOOK, content=good.encode(), headers=plain),
        415,
        "type-unsupported",
    )
    for query in ("named=-1", "named=1001", "named=x", "named=9223372036854775808"):
        told(await people.ann.post(f"{PLAN}?{query}", json=GOOD), 422, "invalid")
    assert await fleet.written() == before


async def test_texts_of_any_kind_come_back_as_they_were(fleet: Fleet, people: People):
    await fleet.hosts(1)
    params = {
        "shell": "$(reboot); `reboot` && reboot | sh",
        "sql": "'; DROP TABLE jobs; --",
        "template": "{{7*7}} ${jndi:ldap://x}",
        "lines": "a\r\nb\tc\x1b[31m",
        "scripts": "中文 עברית 🚀 e\u0301",
        "numbers": [0, -1, 2**63, 0.1, 1e-300],
        "nothing": [None, "", {}, []],
    }
    job_id = await fleet.submit(people.ann, params=params)
    assert (await people.vic.get(f"/jobs/{job_id}")).json()["params"] == params


# The description


def test_bodies_and_answers_are_described_with_examples(app: FastAPI):
    described = app.openapi()
    schemas = described["components"]["schemas"]
    for name in ("PlanRequest", "JobRequest", "Edit", "Retry", "Why"):
        for field, about in schemas[name]["properties"].items():
            assert about.get("examples"), f"{name}.{field}"
    for name in ("Accepted", "Plan", "Job", "Execution", "ExecutionEvent", "Explanation"):
        shown = [about for about in schemas[name]["properties"].values() if about.get("examples")]
        assert len(shown) >= 3, name
    guarded = {
        (method, path): parameter["required"]
        for path, methods in described["paths"].items()
        for method, about in methods.items()
        for parameter in about.get("parameters", ())
        if parameter["name"] == "If-Match" and about["tags"] == ["jobs"]
    }
    assert guarded == {
        ("post", "/webhook/jobs"): False,
        ("post", "/jobs/{job_id}/approve"): True,
        ("post", "/jobs/{job_id}/reject"): True,
        ("patch", "/jobs/{job_id}"): True,
        ("post", "/jobs/{job_id}/pause"): True,
        ("post", "/jobs/{job_id}/resume"): True,
    }


# Who may


async def test_who_may_send_jobs_and_who_may_look_at_plans(
    fleet: Fleet, key_for: KeyFor, app: FastAPI
):
    await fleet.hosts(1)
    may = {Role.viewer: False, Role.approver: False, Role.operator: True, Role.admin: True}
    async with calling(app, await key_for(Role.trader)) as trader:
        told(await trader.post(PLAN, json=GOOD), 403, "permission-missing")
        told(await trader.post(WEBHOOK, json=fleet.body()), 403, "permission-missing")
    for role, runs in may.items():
        async with calling(app, await key_for(role)) as client:
            plan = await client.post(PLAN, json=GOOD)
            assert plan.status_code == 200, role
            answer = await client.post(WEBHOOK, json=fleet.body())
            if runs:
                assert answer.status_code == 202
            else:
                assert told(answer, 403, "permission-missing")["permission"] == "run"
