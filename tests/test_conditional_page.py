"""The service on the page about conditional requests does what the page says, over real HTTP."""

from __future__ import annotations

import asyncio
import re
import types
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx2
import pytest
import uvicorn

from tests.reader import page, table
from tests.store.asking import until_blocked

PAGE = page("conditional.md")


@dataclass(frozen=True, slots=True)
class Served:
    """The service of the page, and the database behind it."""

    client: httpx2.AsyncClient
    database: asyncpg.Connection[Any]


def block(kind: str) -> str:
    found = re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture
async def served(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    """The service as the page has it, on a port of its own."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("REDIS_URL", redis_url)
    module = types.ModuleType("pages")
    exec(block("python pages.py"), module.__dict__)  # noqa: S102 - our own page
    database = await asyncpg.connect(database_url)
    await database.execute(block("sql"))
    await database.execute("INSERT INTO pages VALUES ('home', 'hello')")
    server = uvicorn.Server(uvicorn.Config(module.app, port=0, log_config=None))
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(30):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield Served(client, database)
    server.should_exit = True
    await serving
    await database.close()


async def test_the_service_of_the_page_answers_as_the_page_says(served: Served):
    client = served.client
    read = await client.get("/pages/home")
    assert (read.json(), read.headers["etag"]) == ("hello", '"1"')
    said = {
        "missing, or *": [{}, {"If-Match": "*"}],
        "several, not an ETag, or not one of this kind": [
            {"If-Match": '"1", "2"'},
            {"If-Match": "1"},
            {"If-Match": '"abc"'},
        ],
        "a weak ETag": [{"If-Match": 'W/"1"'}],
        "of another version": [{"If-Match": '"7"'}],
    }
    answers = {row[0]: row[1:] for row in table(PAGE, "If-Match", "status", "code")}
    for case, headers in said.items():
        status, code, besides = answers[case]
        for sent in headers:
            answer = await client.put("/pages/home", json="never", headers=sent)
            problem = answer.json()
            assert (f"{answer.status_code}", problem["code"]) == (status, code), sent
            assert answer.headers["content-type"] == "application/problem+json"
            if "ETag" in besides:
                assert answer.headers["etag"] == problem["etag"] == '"1"'
    assert (await client.get("/pages/home")).json() == "hello"
    changed = await client.put("/pages/home", json="changed", headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    gone = await client.put("/pages/gone", json="x", headers={"If-Match": 'W/"1"'})
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown-page")


async def test_whoever_comes_second_is_told_so_at_once(served: Served):
    """The first waits for the row, which somebody else holds; the second does not."""
    headers = {"If-Match": '"1"'}
    async with served.database.transaction():
        await served.database.execute("SELECT FROM pages FOR UPDATE")
        first = asyncio.create_task(served.client.put("/pages/home", json="first", headers=headers))
        await until_blocked(served.database, by=served.database.get_server_pid())
        second = await served.client.put("/pages/home", json="second", headers=headers)
    row = table(PAGE, "If-Match", "status", "code")[4]
    assert [f"{second.status_code}", second.json()["code"]] == row[1:3]
    assert second.headers["retry-after"] == "1"
    assert (await first).status_code == 200


async def test_of_many_changes_of_one_version_one_is_made(served: Served):
    headers = {"If-Match": '"1"'}
    answers = await asyncio.gather(
        *(served.client.put("/pages/home", json=f"{n}", headers=headers) for n in range(50))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses[0] == 200
    assert set(statuses[1:]) <= {409, 412}
    assert await served.database.fetchval("SELECT version FROM pages") == 2


async def test_the_description_of_the_service_says_what_the_guard_asks_for(served: Served):
    described = (await served.client.get("/openapi.json")).json()
    write = described["paths"]["/pages/{name}"]["put"]
    assert "If-Match" in {each["name"] for each in write["parameters"]}
    assert {"400", "409", "412", "428"} <= write["responses"].keys()
    assert "Problem" in described["components"]["schemas"]
