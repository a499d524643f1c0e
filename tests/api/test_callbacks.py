"""What platforms call back: every callback has its verdict, one by one and line by line."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from standardwebhooks import Webhook

from onward.api.app import create_app
from onward.api.callbacks import _LINES_MAX
from onward.api.permissions import GRANTS, Permission, Role
from onward.api.services import Services
from onward.core.lifecycles import PLATFORM
from onward.fleet.commands import new_command_id
from onward.service.serving import services as services_for
from onward.store import commands as store
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.test_commands import JSON, LINES, make, raw_bodies, shown, written
from tests.api.test_foundation import told
from tests.conftest import settings_for
from tests.proof_table import Tried

TASKS = count(1)
CALLBACK = "/callbacks/platform"


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has tasks of its own, so that the database can be shared."""
    return shared


@pytest.fixture
async def operator(app: FastAPI, key_for: KeyFor) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that may make commands and speak about them."""
    async with calling(app, await key_for("operator")) as found:
        yield found


async def platform_command(
    client: httpx2.AsyncClient, *statuses: str, lifecycle: str = PLATFORM.name
) -> tuple[str, int]:
    """A task of device d, brought through `statuses` by callbacks; its id and its task."""
    task = next(TASKS)
    cmd_id = await make(client, lifecycle=lifecycle, task_id=task, node="d")
    for status in statuses:
        assert (await call_back(client, task, status))["changed"]
    return cmd_id, task


async def call_back(client: httpx2.AsyncClient, task: object, status: object) -> Any:
    answer = await client.post(CALLBACK, json={"task_id": task, "device_id": "d", "status": status})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("path", "late", "expected"),
    [
        (("SENT", "DELIVERED", "COMPLETED"), "DELIVERED", "TERMINAL"),
        (("SENT", "DELIVERED"), "DELIVERED", "DUPLICATE"),
        (("SENT", "DELIVERED"), "SENT", "STALE"),
        (("SENT",), "COMPLETED", "INVALID_STATE"),
        (("SENT",), "nonsense", "INVALID_STATE"),
        (("SENT",), 5, "INVALID_STATE"),
    ],
)
async def test_a_callback_that_does_not_fit_is_answered_with_its_verdict(
    operator: httpx2.AsyncClient, path: Sequence[str], late: object, expected: str
):
    cmd_id, task = await platform_command(operator, *path)
    found = await call_back(operator, task, late)
    assert (found["verdict"], found["changed"], found["status"]) == (expected, False, path[-1])
    assert found["cmd_id"] == cmd_id
    assert (await shown(operator, cmd_id))["status"] == path[-1]


async def test_a_callback_may_say_the_code_of_a_status(operator: httpx2.AsyncClient):
    _, task = await platform_command(operator)
    for code, status in ((3, "SENT"), (4, "DELIVERED"), (5, "COMPLETED")):
        assert (await call_back(operator, str(task), code))["status"] == status


async def test_a_callback_for_a_command_that_another_process_made(
    operator: httpx2.AsyncClient, services: Services
):
    """Nothing that this process remembers is needed."""
    cmd_id, task = await platform_command(operator)
    services.commands._tasks.clear()
    assert (await call_back(operator, task, "SENT"))["cmd_id"] == cmd_id
    services.commands._tasks.clear()
    assert (await call_back(operator, task, "DELIVERED"))["cmd_id"] == cmd_id


async def test_only_a_task_that_nobody_knows_is_404(operator: httpx2.AsyncClient):
    _, task = await platform_command(operator)
    for odd in (f"{task}x", "", None, True, 1.0, 1e300, [task], {"a": task}, "x" * 1_000, "a\x00"):
        for body in (
            {"task_id": odd, "device_id": "d", "status": "SENT"},
            {"task_id": task, "device_id": odd, "status": "SENT"},
        ):
            problem = told(await operator.post(CALLBACK, json=body), 404, "unknown-command")
            assert (problem["verdict"], problem["changed"]) == ("UNKNOWN_COMMAND", False)
    for odd in (None, True, 1.0, [], {}, "", "x" * 100_000, "\x00", 2**70, "\u202e"):
        assert (await call_back(operator, task, odd))["verdict"] == "INVALID_STATE"


async def test_many_callbacks_at_once_share_commits_and_are_all_answered(
    operator: httpx2.AsyncClient, services: Services
):
    tasks = [(await platform_command(operator))[1] for _ in range(40)]
    services.commands._tasks.clear()
    said = [(task, status) for status in ("SENT", "SENT") for task in tasks]
    verdicts = await asyncio.gather(*[call_back(operator, *each) for each in said])
    assert Counter(each["verdict"] for each in verdicts) == {"OK": 40, "DUPLICATE": 40}


async def test_lines_are_answered_line_by_line(operator: httpx2.AsyncClient):
    """What is wrong with one line is told on that line, and the others are taken."""
    first, task = await platform_command(operator)
    second, other = await platform_command(operator)
    lines: list[bytes] = [
        json.dumps({"task_id": task, "device_id": "d", "status": "SENT"}).encode(),
        b"{",
        b'{"task_id": 1, "task_id": 2, "device_id": "d", "status": "SENT"}',
        b'{"task_id": "\\ud800", "device_id": "d", "status": "SENT"}',
        b'{"task_id": 1, "device_id": "d"}',
        b'{"task_id": 1, "device_id": "d", "status": "SENT", "is_admin": true}',
        b"[1]",
        b"",
        b"\xff",
        b'{"task_id": NaN, "device_id": "d", "status": "SENT"}',
        b"[" * 10_000,
        b'{"task_id": "nobody", "device_id": "d", "status": "SENT"}',
        json.dumps({"task_id": other, "device_id": "d", "status": "SENT"}).encode() + b"\r",
        json.dumps({"task_id": task, "device_id": "d", "status": "SENT"}).encode(),
    ]
    for end in (b"", b"\n"):
        answer = await operator.post(CALLBACK, content=b"\n".join(lines) + end, headers=LINES)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/x-ndjson"
        found = [json.loads(line) for line in answer.text.splitlines()]
        assert len(found) == len(lines)
        codes = [each["problem"]["code"] if "problem" in each else None for each in found]
        malformed, invalid = "json-malformed", "invalid"
        assert codes == [
            None,
            *(malformed, malformed),
            *(invalid, invalid, invalid, invalid),
            *(malformed, malformed, malformed, malformed),
            *(None, None, None),
        ]
        verdicts = [(each["cmd_id"], each["verdict"]) for each in found if "problem" not in each]
        expected = ["OK", "OK", "DUPLICATE"] if end == b"" else ["DUPLICATE"] * 3
        assert verdicts == [
            (first, expected[0]),
            (None, "UNKNOWN_COMMAND"),
            (second, expected[1]),
            (first, expected[2]),
        ]


async def test_a_body_of_too_many_lines_is_refused_as_a_whole(
    operator: httpx2.AsyncClient, services: Services
):
    _, task = await platform_command(operator)
    before = await written(services.pool)
    line = json.dumps({"task_id": task, "device_id": "d", "status": "SENT"}).encode() + b"\n"
    answer = await operator.post(CALLBACK, content=line * (_LINES_MAX + 1), headers=LINES)
    told(answer, 413, "too-many-lines")
    assert await written(services.pool) == before


async def test_a_signed_callback_needs_no_key(opened: Onward):
    secret = f"whsec_{'c' * 44}"
    signing = settings_for(opened.database_url, webhook_secrets=secret)
    app = create_app(services_for(opened, settings=signing))
    async with calling(app) as nobody:
        task = next(TASKS)
        await opened.commands.create(
            store.NewCommand(new_command_id(), PLATFORM.name, "d", "", str(task), "{}", 60, "")
        )
        body = json.dumps({"task_id": task, "device_id": "d", "status": "SENT"})
        for kind, text in ((JSON, body), (LINES, f"{body}\n")):
            headers = {**kind, **signed(secret, text)}
            answer = await nobody.post(CALLBACK, content=text, headers=headers)
            assert answer.status_code == 200, answer.text
            told(await nobody.post(CALLBACK, content=text, headers=headers), 409, "replayed")
            forged = await nobody.post(CALLBACK, content=text.replace("SENT", "X"), headers=headers)
            told(forged, 401, "signature-wrong")


def signed(secret: str, body: str) -> dict[str, str]:
    name, at = new_command_id(), datetime.now(tz=UTC)
    return {
        "webhook-id": name,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(name, at, body),
    }


# Bad input, and who may

BAD_CALLBACKS: tuple[object, ...] = (
    {},
    [],
    None,
    "SENT",
    5,
    {"task_id": 1, "device_id": "d"},
    {"task_id": 1, "device_id": "d", "state": "SENT"},
    {"task_id": 1, "device_id": "d", "status": "SENT", "epoch": 1},
)


async def test_the_table_of_bad_input(
    operator: httpx2.AsyncClient, services: Services, tried: Tried
):
    before = await written(services.pool)
    for sent in BAD_CALLBACKS:
        answer = await operator.post(CALLBACK, content=json.dumps(sent), headers=JSON)
        assert told(answer, 422, "invalid")["errors"], sent
    for headers in ({**LINES, "Content-Encoding": "gzip"}, {"Content-Type": "application/x-ndjso"}):
        answer = await operator.post(CALLBACK, content=b"{}", headers=headers)
        told(answer, 415, "type-unsupported")
    count_ = len(BAD_CALLBACKS) + 2 + await raw_bodies(operator, CALLBACK)
    assert await written(services.pool) == before
    tried("bad callbacks", count_, "all refused in words")


async def test_only_who_may_report_calls_back(
    app: FastAPI, key_for: KeyFor, operator: httpx2.AsyncClient
):
    _, task = await platform_command(operator)
    body = {"task_id": task, "device_id": "d", "status": "INITIALIZED"}
    for role in Role:
        async with calling(app, await key_for(role)) as somebody:
            answer = await somebody.post(CALLBACK, json=body)
            if Permission.REPORT in GRANTS[role]:
                assert answer.json()["verdict"] == "DUPLICATE"
            else:
                told(answer, 403, "permission-missing")
    async with calling(app) as nobody:
        told(await nobody.post(CALLBACK, json=body), 401, "key-missing")


async def test_the_description_shows_what_a_callback_looks_like(client: httpx2.AsyncClient):
    described = (await client.get("/openapi.json")).json()
    operation = described["paths"][CALLBACK]["post"]
    content = operation["requestBody"]["content"]
    assert set(content) == {"application/json", "application/x-ndjson"}
    fields = content["application/json"]["schema"]["properties"]
    assert set(fields) == {"task_id", "device_id", "status"}
    assert all(field["examples"] for field in fields.values())
    assert {"webhook": []} in operation["security"]
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/Verdict"}
    names = [tag["name"] for tag in described["tags"]]
    assert names.index("jobs") < names.index("commands")
