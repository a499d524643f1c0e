"""Inventories over HTTP: imported whole or not at all, and every mistake is told with its line."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from onward.fleet.inventory import MISTAKES_SHOWN
from onward.store.database import Pool
from onward.wiring import Onward
from tests.api.asking_hosts import fresh, made, pages, shown, until_waiting
from tests.api.conftest import KeyFor, calling
from tests.api.test_foundation import told
from tests.fleet.test_inventory_bounds import BOMBS
from tests.proof_table import Tried

IMPORT = "/hosts/import"
CSV = {"Content-Type": "text/csv"}


@pytest.fixture
def opened(shared: Onward) -> Onward:
    return shared


@pytest.fixture
def pool(opened: Onward) -> Pool:
    return opened.commands.pool


async def sent(client: httpx2.AsyncClient, text: str | bytes, **params: Any) -> httpx2.Response:
    """The answer to a table, unless a format is named."""
    return await client.post(IMPORT, content=text, params=params, headers=CSV)


async def imported(client: httpx2.AsyncClient, text: str | bytes, **params: Any) -> dict[str, Any]:
    answer = await sent(client, text, **params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def fleet(client: httpx2.AsyncClient, wave: str) -> dict[str, dict[str, Any]]:
    found = await pages(client, "/hosts", selector=f"wave={wave}", limit=1_000)
    return {host["name"]: host for page in found for host in page}


async def everybody(pool: Pool) -> list[tuple[object, ...]]:
    rows = await pool.fetch("SELECT id, name, labels, channel, address, version FROM hosts")
    return sorted(tuple(row) for row in rows)


def table(names: Iterable[str], wave: str) -> str:
    return "name,wave\n" + "".join(f"{name},{wave}\n" for name in names)


# What is done.


async def test_an_import_makes_changes_and_leaves_alone(client: httpx2.AsyncClient):
    wave = fresh("wave")
    a, b, c, d = (fresh() for _ in range(4))
    first = await imported(client, table([a, b, c], wave))
    assert (first["created"], first["changed"], first["unchanged"]) == (3, 0, 0)
    before = await fleet(client, wave)
    again = await imported(client, f"name,wave,ip\n{a},{wave},\n{b},{wave},10.0.0.1\n{d},{wave},\n")
    assert again == {
        "dry_run": False,
        "created": 1,
        "changed": 1,
        "unchanged": 1,
        "created_names": None,
        "changed_names": None,
    }
    after = await fleet(client, wave)
    assert (after[a], after[c]) == (before[a], before[c])
    assert (after[b]["address"], after[b]["version"]) == ("10.0.0.1", 2)
    assert after[b]["host_id"] == before[b]["host_id"]
    assert list(after) == [a, b, c, d]


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    client: httpx2.AsyncClient, pool: Pool
):
    wave = fresh("wave")
    old = [fresh() for _ in range(3)]
    new = [fresh("new") for _ in range(150)]
    await imported(client, table(old, wave))
    before = await everybody(pool)
    text = f"{table(new, wave)}{old[0]},{wave}\n{old[1]},other\n"
    would = await imported(client, text, dry_run="true")
    assert (would["created"], would["changed"], would["unchanged"]) == (150, 1, 1)
    assert would["dry_run"] is True
    assert would["created_names"] == sorted(new)[:100]
    assert would["changed_names"] == [old[1]]
    assert await everybody(pool) == before
    done = await imported(client, text)
    assert {key: done[key] for key in ("created", "changed", "unchanged")} == {
        key: would[key] for key in ("created", "changed", "unchanged")
    }
    same = await imported(client, text, dry_run="true")
    assert (same["unchanged"], same["created_names"], same["changed_names"]) == (152, [], [])


@pytest.mark.parametrize("channel", ["simulated", "agent"])
async def test_a_host_that_names_no_channel_gets_the_one_that_is_asked_for(
    client: httpx2.AsyncClient, channel: str
):
    wave, a, b = fresh("wave"), fresh(), fresh()
    await imported(client, f"name,wave,channel\n{a},{wave},\n{b},{wave},mqtt\n", channel=channel)
    found = await fleet(client, wave)
    assert (found[a]["channel"], found[b]["channel"]) == (channel, "mqtt")


async def test_an_import_does_not_enable_a_host(client: httpx2.AsyncClient):
    host = await made(client)
    path = f"/hosts/{host['host_id']}"
    await client.patch(path, json={"state": "DISABLED"}, headers={"If-Match": '"1"'})
    await imported(client, f"name,zone\n{host['name']},eu\n")
    found = await shown(client, path)
    assert (found["state"], found["labels"], found["version"]) == ("DISABLED", {"zone": "eu"}, 3)


# What it is.


def written(form: str, name: str, wave: str) -> str:
    return {
        "csv": f"name,wave\n{name},{wave}\n",
        "json": json.dumps([{"name": name, "labels": {"wave": wave}}]),
        "ini": f"{name} wave={wave}\n",
        "yaml": f"all: {{hosts: {{{name}: {{wave: {wave}}}}}}}\n",
    }[form]


@pytest.mark.parametrize(
    ("form", "kind", "query"),
    [
        ("csv", "text/csv", ""),
        ("csv", "text/csv; charset=utf-8", ""),
        ("csv", 'TEXT/CSV;header=present; charset="UTF-8"', ""),
        ("json", "application/json", ""),
        ("json", "application/json;charset=utf-8", ""),
        ("yaml", "application/yaml", ""),
        ("yaml", "application/x-yaml", ""),
        ("yaml", "text/yaml", ""),
        ("ini", "text/plain", "?format=ini"),
        ("yaml", "text/plain", "?format=yaml"),
        ("csv", "text/plain; charset=utf-8", "?format=csv"),
        ("ini", "application/x-www-form-urlencoded", "?format=ini"),
        ("ini", "application/octet-stream", "?format=ini"),
        ("ini", None, "?format=ini"),
        # What is said outright counts.
        ("ini", "text/csv", "?format=ini"),
    ],
)  # fmt: skip
async def test_the_content_type_or_the_format_says_what_it_is(
    client: httpx2.AsyncClient, form: str, kind: str | None, query: str
):
    name, wave = fresh(), fresh("wave")
    answer = await client.post(
        f"{IMPORT}{query}",
        content=written(form, name, wave),
        headers={} if kind is None else {"Content-Type": kind},
    )
    assert (answer.status_code, answer.json().get("created")) == (200, 1), answer.text
    assert list(await fleet(client, wave)) == [name]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Content-Type", "text/plain")],
        [("Content-Type", "application/octet-stream")],
        [("Content-Type", "csv")],
        [("Content-Type", "")],
        [("Content-Type", "text/csv; charset=latin-1")],
        [("Content-Type", "text/csv; charset=utf-16")],
        [("Content-Type", "application/json"), ("Content-Type", "text/csv")],
        [("Content-Type", "text/csv"), ("Content-Encoding", "gzip")],
        [("Content-Type", "text/csv"), ("Content-Encoding", "identity, gzip")],
    ],
)
async def test_what_is_not_said_to_be_an_inventory_is_415(
    client: httpx2.AsyncClient, headers: list[tuple[str, str]]
):
    content = gzip.compress(b"name\na\n") if "gzip" in str(headers) else b"name\na\n"
    answer = await client.post(IMPORT, content=content, headers=headers)
    told(answer, 415, "type-unsupported")
    assert "text/csv" in answer.headers["accept"]


# What is refused.


async def test_every_mistake_is_told_with_its_line_and_nothing_is_imported(
    client: httpx2.AsyncClient, pool: Pool
):
    before = await everybody(pool)
    text = f"name,ip\n{fresh()},10.0.0.1\n-x,\n{fresh()},a b\n{fresh()}\n"
    for dry_run in ("false", "true"):
        problem = told(await sent(client, text, dry_run=dry_run), 422, "inventory-mistaken")
        errors: list[dict[str, Any]] = problem["errors"]  # type: ignore[assignment]
        assert [each["line"] for each in errors] == [3, 4, 5]
        assert all(each["pointer"] == "" and each["in"] == "body" for each in errors)
        assert "is not a host name" in errors[0]["detail"]
        assert "has spaces" in errors[1]["detail"]
        assert "has 2 cells" in errors[2]["detail"]
    assert await everybody(pool) == before


async def test_of_very_many_mistakes_the_first_are_listed(client: httpx2.AsyncClient):
    problem = told(await sent(client, "name\n" + "-\n" * 2_000), 422, "inventory-mistaken")
    assert len(problem["errors"]) == MISTAKES_SHOWN  # type: ignore[arg-type]
    assert "at least 2,000" in str(problem["detail"])


BAD: dict[str, tuple[str, bytes]] = {
    **{name: (form, text.encode()) for name, (form, text, _) in BOMBS.items()},
    "nothing": ("csv", b""),
    "a header alone": ("csv", b"name\n"),
    "no header": ("csv", b"web1,10.0.0.1\n"),
    "NUL": ("csv", b"name\na\0b\n"),
    "no UTF-8": ("csv", b"name\n\xff\n"),
    "UTF-16": ("csv", "name\na\n".encode("utf-16")),
    "an open quote": ("csv", b'name\n"a\n'),
    "a secret": ("csv", b"name,ansible_password\na,x\n"),
    "no JSON": ("json", b"{"),
    "a JSON text": ("json", b'"a"'),
    "NaN": ("json", b'[{"name": "a", "labels": {"x": NaN}}]'),
    "half a surrogate pair": ("json", b'[{"name": "\\ud800"}]'),
    "a NUL in JSON": ("json", b'[{"name": "a\\u0000"}]'),
    "a key twice": ("json", b'[{"name": "a", "name": "b"}]'),
    "an empty list": ("json", b"[]"),
    "a broken section": ("ini", b"[web\na\n"),
    "a circle": ("ini", b"[a]\nh\n[a:children]\nb\n[b:children]\na\n"),
    "YAML as INI": ("ini", b"all:\n  hosts:\n    a:\n"),
    "a Python object": ("yaml", b"all: {hosts: {a: {x: !!python/object/apply:os.getcwd []}}}\n"),
    "tabs": ("yaml", b"all:\n\thosts:\n"),
    "encrypted": ("yaml", b"$ANSIBLE_VAULT;1.1;AES256\n61\n"),
}


async def test_no_inventory_is_a_bug_of_ours(
    client: httpx2.AsyncClient, pool: Pool, tried: Tried, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("onward.fleet.inventory.gathering.MAX_STEPS", 400_000)
    before = await everybody(pool)
    for name, (form, content) in BAD.items():
        answer = await sent(client, content, format=form)
        problem = told(answer, 422, "inventory-mistaken")
        assert problem["errors"], name
        assert len(answer.content) < 40_000, name
    assert await everybody(pool) == before
    tried("bad inventories", len(BAD), "all refused, nothing written")


@pytest.mark.parametrize(
    "query",
    [
        "format=xml", "format=", "format=CSV", "channel=smoke", "channel=", "dry_run=maybe",
        "dry_run=", "dryrun=true", "dry-run=true", "dry_run=true&dry_run=false", "selector=all",
        "format=csv&format=csv", "limit=1",
    ],
)  # fmt: skip
async def test_a_parameter_that_is_not_meant_so_is_refused(
    client: httpx2.AsyncClient, pool: Pool, query: str
):
    before = await everybody(pool)
    answer = await client.post(f"{IMPORT}?{query}", content=f"name\n{fresh()}\n", headers=CSV)
    told(answer, 422, "invalid")
    assert await everybody(pool) == before


async def test_a_body_that_is_too_large_is_413(client: httpx2.AsyncClient):
    told(await sent(client, b"#" * (8 * 1024 * 1024 + 1)), 413, "body-too-large")


async def test_whoever_may_not_import_is_not_asked_for_the_body(app: FastAPI, key_for: KeyFor):
    asked = []

    async def body() -> AsyncIterator[bytes]:
        asked.append(True)
        yield b"name\n"

    for role in ("viewer", "approver"):
        async with calling(app, await key_for(role)) as caller:
            answer = await caller.post(IMPORT, content=body(), headers=CSV)
            told(answer, 403, "permission-missing")
    assert asked == []


# At once, and at large.


async def test_two_imports_at_once_leave_what_one_of_them_wanted(
    client: httpx2.AsyncClient, pool: Pool
):
    """Both are held up at the middle host, whatever order each names them in."""
    names = sorted(fresh("both") for _ in range(3))
    await imported(client, table(names, "zero"))
    held = "SELECT FROM hosts WHERE name = $1 FOR UPDATE"
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute(held, names[1])
            one = asyncio.create_task(imported(client, table(names, "one")))
            await until_waiting(watcher, 1)
            two = asyncio.create_task(imported(client, table(names[::-1], "two")))
            await until_waiting(watcher, 2)
        assert ((await one)["changed"], (await two)["changed"]) == (3, 3)
    assert sorted(await fleet(client, "two")) == names


async def test_twenty_imports_of_the_same_new_hosts_make_each_once(client: httpx2.AsyncClient):
    wave = fresh("wave")
    names = [fresh() for _ in range(50)]
    answers = await asyncio.gather(
        *(imported(client, table(names if n % 2 else names[::-1], wave)) for n in range(20))
    )
    assert sum(answer["created"] for answer in answers) == 50
    assert sum(answer["unchanged"] for answer in answers) == 19 * 50
    assert sorted(await fleet(client, wave)) == sorted(names)


async def test_a_change_during_an_import_is_not_lost(client: httpx2.AsyncClient, pool: Pool):
    """Whoever saw the host before the import is told that it is another one now."""
    host = await made(client)
    path = f"/hosts/{host['host_id']}"
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts WHERE id = $1 FOR UPDATE", host["host_id"])
            first = asyncio.create_task(imported(client, f"name,ip\n{host['name']},x\n"))
            await until_waiting(watcher, 1)
            late = asyncio.create_task(
                client.patch(path, json={"address": "y"}, headers={"If-Match": '"1"'})
            )
            await until_waiting(watcher, 2)
        assert (await first)["changed"] == 1
        told(await late, 412, "stale")
    assert (await shown(client, path))["address"] == "x"


async def test_a_configuration_of_openssh_is_hosts_over_ssh(client: httpx2.AsyncClient):
    name = fresh()
    text = f"Host {name}\n  HostName 10.0.0.7\n  User ann\n"
    done = await imported(client, text, format="ssh_config", channel="mqtt")
    assert done["created"] == 1
    (found,) = (await shown(client, f"/hosts?selector=name={name}"))["items"]
    assert (found["channel"], found["address"]) == ("ssh", "ann@10.0.0.7")
    told(await sent(client, f"{text}Include x\n", format="ssh_config"), 422, "inventory-mistaken")


@pytest.mark.parametrize("form", ["csv", "json", "ini", "yaml"])
async def test_a_large_fleet_is_imported_whole(
    client: httpx2.AsyncClient, form: str, tried: Tried, *, proof: bool
):
    count, wave = (100_000 if proof else 2_000), fresh("wave")
    names = [f"{wave}-{n:06}" for n in range(count)]
    text = {
        "csv": table(names, wave),
        "json": json.dumps([{"name": name, "labels": {"wave": wave}} for name in names]),
        "ini": f"[all:vars]\nwave={wave}\n[all]\n" + "\n".join(names),
        "yaml": f"all:\n vars: {{wave: {wave}}}\n hosts:\n" + "".join(f"  {n}:\n" for n in names),
    }[form]
    done = await imported(client, text, format=form)
    assert done["created"] == count
    again = await imported(client, text, format=form, dry_run="true")
    assert again["unchanged"] == count
    tried("hosts imported over HTTP", count, "made once")
