"""Commands over HTTP: made once, moved by verdicts, looked at."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from onward.api.permissions import GRANTS, Permission, Role
from onward.api.services import Services
from onward.api.verdicts import Verdict, verdict, verdict_json
from onward.core.lifecycles import LIFECYCLES, NODE, PLATFORM
from onward.core.verdicts import Transition, TransitionResult
from onward.fleet.commands import new_command_id
from onward.store import commands as store
from onward.store.database import Pool
from onward.store.transitions import CommandState
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.test_foundation import told
from tests.proof_table import Tried

TASKS = count(1)
LINES = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}
NOBODY = "019a9433-7c3e-7d61-8b5e-3f1f3f0c2a77"


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has commands of its own, so that the database can be shared."""
    return shared


@pytest.fixture
async def operator(app: FastAPI, key_for: KeyFor) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that may make commands and speak about them."""
    async with calling(app, await key_for("operator")) as found:
        yield found


async def make(client: httpx2.AsyncClient, **wanted: object) -> str:
    """Make a command; its id."""
    answer = await client.post("/commands", json=wanted)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == f"/commands/{made['cmd_id']}"
    return str(made["cmd_id"])


async def say(client: httpx2.AsyncClient, cmd_id: str, event: str, **more: object) -> Any:
    """Say something about a command; the verdict, which is told whatever it is."""
    answer = await client.post(f"/commands/{cmd_id}/events", json={"event": event, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def shown(client: httpx2.AsyncClient, cmd_id: str) -> Any:
    answer = await client.get(f"/commands/{cmd_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def written(pool: Pool) -> tuple[int, ...]:
    """How much there is of what a command could leave behind."""
    found = await pool.fetchrow(
        "SELECT (SELECT count(*) FROM commands), (SELECT count(*) FROM timeline)"
    )
    assert found is not None
    return tuple(found)


# Making


async def test_a_command_is_made_and_shown_as_it_was_asked_for(operator: httpx2.AsyncClient):
    wanted = {
        "cmd_id": new_command_id(),
        "type": "set_relay",
        "params": {"relay": 3, "on": True, "name": "ü"},
        "node": "greenhouse-7",
        "lifecycle": NODE.name,
        "timeout_s": 12.5,
    }
    answer = await operator.post("/commands", json=wanted)
    assert answer.status_code == 201
    made = answer.json()
    assert (made["verdict"], made["changed"], made["version"]) == ("OK", True, 1)
    assert (made["cmd_id"], made["status"]) == (wanted["cmd_id"], NODE.initial)
    found = await shown(operator, made["cmd_id"])
    assert {name: found[name] for name in wanted} == wanted
    assert found["allowed"] == list(NODE.allowed(NODE.initial))
    assert (found["result"], found["late_result"], found["finished_at"]) == (None, None, None)


async def test_an_id_is_made_where_none_is_given_and_later_ones_sort_later(
    operator: httpx2.AsyncClient,
):
    ids = [await make(operator) for _ in range(5)]
    assert ids == sorted(ids)


async def test_the_same_command_again_is_a_duplicate(operator: httpx2.AsyncClient):
    wanted = {"cmd_id": new_command_id(), "node": "n"}
    await make(operator, **wanted, params={"b": [1, {"c": None}], "a": 1})
    answer = await operator.post(
        "/commands", json={**wanted, "params": {"a": 1.0, "b": [1, {"c": None}]}}
    )
    assert answer.status_code == 200
    assert (answer.json()["verdict"], answer.json()["changed"]) == ("DUPLICATE", False)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"params": {"a": 2}}, ["params"]),
        ({"params": {"a": True}}, ["params"]),
        ({"node": "other", "type": "other"}, ["node", "type"]),
        ({"lifecycle": PLATFORM.name}, ["lifecycle"]),
        ({"timeout_s": 7.0}, ["timeout_s"]),
        ({"task_id": "t"}, ["task_id"]),
    ],
    ids=str,
)
async def test_another_command_under_the_same_id_is_a_conflict_that_says_what_differs(
    operator: httpx2.AsyncClient, change: dict[str, object], differs: list[str]
):
    wanted = {"cmd_id": new_command_id(), "params": {"a": 1}, "node": "n"}
    cmd_id = await make(operator, **wanted)
    before = await shown(operator, cmd_id)
    problem = told(
        await operator.post("/commands", json={**wanted, **change}), 422, "command-conflict"
    )
    assert (problem["verdict"], problem["changed"], problem["differs"]) == (
        "CONFLICT",
        False,
        differs,
    )
    assert await shown(operator, cmd_id) == before


async def test_a_task_of_a_node_belongs_to_one_command(operator: httpx2.AsyncClient):
    task = f"task {next(TASKS)}"
    await make(operator, lifecycle=PLATFORM.name, task_id=task, node="d")
    await make(operator, lifecycle=PLATFORM.name, task_id=task, node="e")
    answer = await operator.post(
        "/commands", json={"lifecycle": PLATFORM.name, "task_id": task, "node": "d"}
    )
    problem = told(answer, 422, "command-conflict")
    assert problem["differs"] == ["task_id"]
    assert "task" in str(problem["detail"])


async def test_of_many_who_make_one_command_at_once_one_does(operator: httpx2.AsyncClient):
    wanted = {"cmd_id": new_command_id(), "params": {"a": 1}}
    answers = await asyncio.gather(*[operator.post("/commands", json=wanted) for _ in range(20)])
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 19}


# Saying


async def test_a_command_goes_its_way_and_keeps_what_was_said(operator: httpx2.AsyncClient):
    cmd_id = await make(operator, node="n")
    assert (await say(operator, cmd_id, "send"))["status"] == "SENT"
    assert (await say(operator, cmd_id, "ack"))["status"] == "ACK"
    done = await say(
        operator, cmd_id, "done", duration_ms=1_000, result_code=0, result={"relay": "on"}
    )
    assert (done["verdict"], done["changed"], done["status"]) == ("OK", True, "DONE")
    assert done["meaning"] == TransitionResult.OK.meaning
    found = await shown(operator, cmd_id)
    assert (found["duration_ms"], found["result_code"], found["result"]) == (
        1_000,
        "0",
        {"relay": "on"},
    )
    assert (found["allowed"], found["deadline_at"]) == ([], None)
    assert found["finished_at"] is not None


async def test_what_went_wrong_is_kept(operator: httpx2.AsyncClient):
    cmd_id = await make(operator)
    await say(operator, cmd_id, "fail", error_code="E42", error_message="no\nwater", result_code=2)
    found = await shown(operator, cmd_id)
    assert (found["status"], found["error_code"], found["error_message"], found["result_code"]) == (
        "ERROR",
        "E42",
        "no\nwater",
        "2",
    )


async def test_every_verdict_but_one_is_an_ordinary_answer(operator: httpx2.AsyncClient):
    cmd_id = await make(operator)
    epoch = (await say(operator, cmd_id, "ack"))["epoch"]
    assert (await say(operator, cmd_id, "ack"))["verdict"] == "DUPLICATE"
    assert (await say(operator, cmd_id, "send"))["verdict"] == "STALE"
    assert (await say(operator, cmd_id, "send_fail"))["verdict"] == "INVALID_STATE"
    assert (await say(operator, cmd_id, "made up"))["verdict"] == "INVALID_STATE"
    stale = await say(operator, cmd_id, "done", epoch=epoch - 1)
    assert (stale["verdict"], stale["changed"], stale["status"]) == ("STALE_EPOCH", False, "ACK")
    assert (await say(operator, cmd_id, "done", epoch=epoch))["verdict"] == "OK"
    assert (await say(operator, cmd_id, "ack"))["verdict"] == "TERMINAL"
    unknown = await operator.post(f"/commands/{new_command_id()}/events", json={"event": "ack"})
    problem = told(unknown, 404, "unknown-command")
    assert (problem["verdict"], problem["changed"]) == ("UNKNOWN_COMMAND", False)


async def test_a_late_send_cannot_undo_an_ack(operator: httpx2.AsyncClient):
    cmd_id = await make(operator)
    await say(operator, cmd_id, "ack")
    late = await say(operator, cmd_id, "send")
    assert (late["verdict"], late["status"]) == ("STALE", "ACK")
    assert (await shown(operator, cmd_id))["status"] == "ACK"


async def test_a_result_after_the_timeout_is_kept_beside_it(operator: httpx2.AsyncClient):
    cmd_id = await make(operator)
    await say(operator, cmd_id, "timeout")
    await say(operator, cmd_id, "done", duration_ms=7)
    found = await shown(operator, cmd_id)
    assert found["status"] == "TIMEOUT"
    assert (found["late_result"]["event"], found["late_result"]["duration_ms"]) == ("done", 7)


async def test_many_events_are_answered_each_in_its_place(operator: httpx2.AsyncClient):
    first, second = await make(operator), await make(operator)
    nobody = new_command_id()
    answer = await operator.post(
        "/commands/events",
        json={
            "events": [
                {"cmd_id": second, "event": "ack"},
                {"cmd_id": first, "event": "send"},
                {"cmd_id": nobody, "event": "ack"},
                {"cmd_id": first, "event": "done", "duration_ms": 5},
                {"cmd_id": second, "event": "ack"},
            ]
        },
    )
    assert answer.status_code == 200
    found = [
        (each["cmd_id"], each["verdict"], each["status"]) for each in answer.json()["verdicts"]
    ]
    assert found == [
        (second, "OK", "ACK"),
        (first, "OK", "SENT"),
        (None, "UNKNOWN_COMMAND", None),
        (first, "OK", "DONE"),
        (second, "DUPLICATE", "ACK"),
    ]
    assert (await shown(operator, first))["duration_ms"] == 5


async def test_one_wrong_field_keeps_the_whole_batch_out_and_is_pointed_at(
    operator: httpx2.AsyncClient, services: Services
):
    cmd_id = await make(operator)
    before = await written(services.pool)
    for wrong, pointer in (
        ({"duration_ms": -1}, "/events/1/duration_ms"),
        ({"result": {"deep": ["\x00"]}}, "/events/1/result/deep/0"),
        ({"source": "a\nb"}, "/events/1/source"),
        ({"epoch": 2**63}, "/events/1/epoch"),
    ):
        bad = {"cmd_id": cmd_id, "event": "done", **wrong}
        answer = await operator.post(
            "/commands/events", json={"events": [{"cmd_id": cmd_id, "event": "ack"}, bad]}
        )
        errors: Any = told(answer, 422, "invalid")["errors"]
        assert [error["pointer"] for error in errors] == [pointer]
    assert await written(services.pool) == before


async def test_who_spoke_is_the_key_unless_somebody_else_is_named(operator: httpx2.AsyncClient):
    cmd_id = await make(operator)
    await say(operator, cmd_id, "send")
    await say(operator, cmd_id, "ack", source="edge-2")
    events = (await operator.get(f"/commands/{cmd_id}/timeline")).json()["items"]
    assert [event["source"] for event in events] == [
        "operator of a test",
        "operator of a test",
        "edge-2",
    ]


# Looking


async def test_a_command_that_has_not_changed_is_not_sent_again(operator: httpx2.AsyncClient):
    cmd_id = await make(operator)
    first = await operator.get(f"/commands/{cmd_id}")
    tag = first.headers["etag"]
    again = await operator.get(f"/commands/{cmd_id}", headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    await say(operator, cmd_id, "ack")
    changed = await operator.get(f"/commands/{cmd_id}", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')


async def test_what_is_not_there_is_404(operator: httpx2.AsyncClient):
    for path in (f"/commands/{NOBODY}", f"/commands/{NOBODY}/timeline"):
        told(await operator.get(path), 404, "unknown-command")


async def test_an_id_may_be_written_as_people_write_it(operator: httpx2.AsyncClient):
    cmd_id = await make(operator)
    for written_ in (
        cmd_id.upper(),
        cmd_id.replace("-", ""),
        f"{{{cmd_id}}}",
        f"urn:uuid:{cmd_id}",
    ):
        assert (await shown(operator, written_))["cmd_id"] == cmd_id


async def pages(client: httpx2.AsyncClient, path: str, **query: object) -> list[list[Any]]:
    """All pages of a list."""
    found: list[list[Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await client.get(path, params={**query, **cursor})  # type: ignore[dict-item]
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found.append(page["items"])
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}
        assert len(found) < 1_000


async def test_commands_are_listed_page_by_page_the_newest_first(operator: httpx2.AsyncClient):
    node = f"listed {next(TASKS)}"
    ids = [
        await make(operator, node=node, lifecycle=NODE.name if n % 3 else PLATFORM.name)
        for n in range(7)
    ]
    found = await pages(operator, "/commands", limit=3, node=node)
    assert [len(page) for page in found] == [3, 3, 1]
    assert [each["cmd_id"] for page in found for each in page] == ids[::-1]
    assert "params" not in found[0][0]
    (platform,) = await pages(operator, "/commands", node=node, lifecycle=PLATFORM.name)
    assert [each["cmd_id"] for each in platform] == [ids[6], ids[3], ids[0]]
    await operator.post(f"/commands/{ids[1]}/events", json={"event": "ack"})
    for status, wanted in (("QUEUED", [5, 4, 2]), ("ACK", [1]), ("INITIALIZED", [6, 3, 0])):
        (there,) = await pages(operator, "/commands", node=node, status=status)
        assert [each["cmd_id"] for each in there] == [ids[n] for n in wanted]
    (there,) = await pages(
        operator, "/commands", node=node, status="INITIALIZED", lifecycle=PLATFORM.name
    )
    assert len(there) == 3
    everything = await pages(operator, "/commands", limit=1_000)
    assert [each["cmd_id"] for page in everything for each in page][:7] == ids[::-1]


async def test_a_filter_that_fits_little_goes_a_bounded_way_at_a_time(
    operator: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store, "_LOOKED_AT", 4)
    node = f"rare {next(TASKS)}"
    rare = []
    for n in range(10):
        made = await make(operator, node=node if n % 9 == 0 else "common")
        rare += [made] if n % 9 == 0 else []
    found = await pages(operator, "/commands", limit=3, node=node)
    assert [each["cmd_id"] for page in found for each in page] == rare[::-1]
    assert [] in found
    none = await pages(operator, "/commands", limit=3, node=f"nobody {next(TASKS)}")
    assert all(page == [] for page in none)


async def test_a_timeline_is_read_page_by_page_with_what_moved_nothing(
    operator: httpx2.AsyncClient,
):
    cmd_id = await make(operator)
    for event in ("send", "ack", "ack", "send", "nonsense", "done"):
        await say(operator, cmd_id, event)
    found = await pages(operator, f"/commands/{cmd_id}/timeline", limit=3)
    assert [len(page) for page in found] == [3, 3, 1]
    assert [(each["event"], each["verdict"]) for page in found for each in page] == [
        ("create", "OK"),
        ("send", "OK"),
        ("ack", "OK"),
        ("ack", "DUPLICATE"),
        ("send", "STALE"),
        ("nonsense", "INVALID_STATE"),
        ("done", "OK"),
    ]


async def test_what_was_said_about_nobody_is_evidence_too(operator: httpx2.AsyncClient):
    nobody = new_command_id()
    assert (
        await operator.post(f"/commands/{nobody}/events", json={"event": "done"})
    ).status_code == 404
    (page,) = await pages(operator, f"/commands/{nobody}/timeline")
    assert [(each["event"], each["verdict"]) for each in page] == [("done", "UNKNOWN_COMMAND")]


async def test_the_cursor_of_one_list_does_not_fit_another(operator: httpx2.AsyncClient):
    first, second = await make(operator), await make(operator)
    for cmd_id in (first, second):
        await say(operator, cmd_id, "ack")
    cursor = (await operator.get(f"/commands/{first}/timeline?limit=1")).json()["next_cursor"]
    told(await operator.get(f"/commands/{second}/timeline?cursor={cursor}"), 422, "invalid")
    told(await operator.get(f"/commands?cursor={cursor}"), 422, "invalid")


def test_what_is_written_fast_is_what_the_model_says():
    states = [None] + [
        CommandState(NOBODY, table.name, str(status), 7, 2)
        for table in LIFECYCLES.values()
        for status in table.states
    ]
    for result in TransitionResult:
        for state in states:
            answer = Transition(state, result, changed=result is TransitionResult.OK)
            assert Verdict.model_validate_json(verdict_json(answer)) == verdict(answer)
            assert json.loads(verdict_json(answer)) == json.loads(verdict(answer).model_dump_json())


# Bad input

BAD_IDS = ("1", "x", NOBODY[:-1], NOBODY[:8], f"{NOBODY}0", "%20", "null", "{}")
BAD_EVENTS: tuple[dict[str, object], ...] = (
    {},
    {"event": ""},
    {"event": 1},
    {"event": None},
    {"event": "a\nb"},
    {"event": "a\x00b"},
    {"event": "x" * 256},
    {"event": "ack", "epoch": -1},
    {"event": "ack", "epoch": 2**63},
    {"event": "ack", "epoch": "1"},
    {"event": "ack", "epoch": True},
    {"event": "ack", "epoch": 1.0},
    {"event": "ack", "source": "x" * 256},
    {"event": "ack", "source": "\x1b[31m"},
    {"event": "ack", "source": None},
    {"event": "done", "duration_ms": -1},
    {"event": "done", "duration_ms": 2**63},
    {"event": "done", "duration_ms": "5"},
    {"event": "done", "duration_ms": 1.5},
    {"event": "done", "result_code": 1.5},
    {"event": "done", "result_code": []},
    {"event": "done", "result_code": True},
    {"event": "fail", "error_message": 5},
    {"event": "fail", "error_message": "\x00"},
    {"event": "fail", "error_message": "x" * 300_000},
    {"event": "done", "result": {"a": "\x00"}},
    {"event": "done", "result": {"a": 2**64}},
    {"event": "done", "result": "x" * 300_000},
    {"event": "ack", "status": "DONE"},
    {"event": "ack", "is_admin": True},
)
BAD_COMMANDS: tuple[dict[str, object], ...] = (
    {"cmd_id": "1"},
    {"cmd_id": 1},
    {"cmd_id": ""},
    {"type": 1},
    {"type": "x" * 256},
    {"type": "a\nb"},
    {"node": None},
    {"node": "a\x00b"},
    {"node": "\u202e"},
    {"lifecycle": "nonsense"},
    {"lifecycle": ""},
    {"lifecycle": None},
    {"task_id": ""},
    {"task_id": True},
    {"task_id": 1.5},
    {"task_id": "x" * 256},
    {"params": []},
    {"params": "{}"},
    {"params": None},
    {"params": {"a": "\x00"}},
    {"params": {"a": 2**64}},
    {"params": {"\x00": 1}},
    {"params": {"a": "x" * 300_000}},
    {"timeout_s": 0},
    {"timeout_s": -1},
    {"timeout_s": "5"},
    {"timeout_s": 1e300},
    {"timeout_s": True},
    {"status": "DONE"},
    {"epoch": 5},
)
BAD_BATCHES: tuple[object, ...] = ({}, [], {"events": []}, {"events": {}}, None)
BAD_QUERIES = {
    "/commands": (
        "limit=0",
        "limit=1001",
        "limit=x",
        "cursor=x",
        "cursor=",
        "lifecycle=nonsense",
        "lifecycle=",
        "status=nonsense",
        "status=",
        "status=queued",
        f"lifecycle={NODE.name}&status=INITIALIZED",
        f"node={'x' * 256}",
        "node=%0A",
        f"cursor={'A' * 2_000}",
    ),
    "/commands/{}/timeline": ("limit=0", "limit=1001", "cursor=x", "cursor=AAAA", "limit=1e3"),
}


async def test_the_table_of_bad_input(
    operator: httpx2.AsyncClient, services: Services, tried: Tried
):
    """Every route of commands; nothing is written, and nothing is an error of ours."""
    cmd_id = await make(operator)
    before, count_ = await written(services.pool), 0
    refused = {"invalid", "unknown-lifecycle"}
    for bad in BAD_IDS:
        for method, path in (("GET", ""), ("GET", "/timeline"), ("POST", "/events")):
            body = {"event": "ack"} if method == "POST" else None
            answer = await operator.request(method, f"/commands/{bad}{path}", json=body)
            told(answer, 422, "invalid")
            count_ += 1
    bodies: list[tuple[str, object]] = [
        *(("/commands", body) for body in BAD_COMMANDS),
        *((f"/commands/{cmd_id}/events", body) for body in BAD_EVENTS),
        *(("/commands/events", {"events": [{"cmd_id": cmd_id, **body}]}) for body in BAD_EVENTS),
        *(
            ("/commands/events", {"events": [{"event": "ack", **body}]})
            for body in BAD_COMMANDS[:3]
        ),
        *(("/commands/events", body) for body in BAD_BATCHES),
    ]
    for path, sent in bodies:
        answer = await operator.post(path, content=json.dumps(sent), headers=JSON)
        assert (answer.status_code, answer.json()["code"] in refused) == (422, True), (path, sent)
        assert answer.json()["errors"], (path, sent)
        count_ += 1
    for path, queries in BAD_QUERIES.items():
        for query in queries:
            answer = await operator.get(f"{path.format(cmd_id)}?{query}")
            assert (answer.status_code, answer.json()["code"] in refused) == (422, True), query
            count_ += 1
    taking = ("/commands", f"/commands/{cmd_id}/events", "/commands/events")
    count_ += await raw_bodies(operator, *taking)
    for path in taking:
        told(await operator.post(path, content=b"{}\n", headers=LINES), 415, "type-unsupported")
    assert await written(services.pool) == before
    tried("bad requests about commands", count_, "all refused in words")


async def raw_bodies(operator: httpx2.AsyncClient, *paths: str) -> int:
    """What is not strict JSON, or does not say that it is; how much of it there was."""
    malformed = (b"", b"{", b"\xff", b'{"a":1,"a":2}', b'{"a":NaN}', b"[" * 100_000, b'{"a":1e400}')
    for path in paths:
        for body in malformed:
            told(await operator.post(path, content=body, headers=JSON), 400, "json-malformed")
        half = rb'{"event": "\ud800"}'
        told(await operator.post(path, content=half, headers=JSON), 422, "invalid")
        for headers in (
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/jsonl"},
            {**JSON, "Content-Encoding": "gzip"},
            {},
        ):
            told(await operator.post(path, content=b"{}", headers=headers), 415, "type-unsupported")
    return len(paths) * (len(malformed) + 5)


# Who may


async def test_every_role_does_what_it_may_and_nothing_else(
    app: FastAPI, key_for: KeyFor, client: httpx2.AsyncClient
):
    cmd_id = await make(client, lifecycle=PLATFORM.name)
    event = {"event": "initialize"}
    asked: list[tuple[Permission, str, str, object]] = [
        (Permission.RUN, "POST", "/commands", {}),
        (Permission.READ, "GET", "/commands", None),
        (Permission.READ, "GET", f"/commands/{cmd_id}", None),
        (Permission.READ, "GET", f"/commands/{cmd_id}/timeline", None),
        (Permission.REPORT, "POST", f"/commands/{cmd_id}/events", event),
        (Permission.REPORT, "POST", "/commands/events", {"events": [{"cmd_id": cmd_id, **event}]}),
    ]
    for role in Role:
        async with calling(app, await key_for(role)) as somebody:
            for permission, method, path, body in asked:
                answer = await somebody.request(method, path, json=body)
                if permission in GRANTS[role]:
                    assert answer.status_code in {200, 201}, (role, path, answer.text)
                else:
                    problem = told(answer, 403, "permission-missing")
                    assert problem["permission"] == permission
