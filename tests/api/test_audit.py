"""Who did what: one row for each deed, in its own transaction, and none for what was refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

import onward
from onward.api.app import create_app
from onward.api.first_key import first_key
from onward.api.permissions import Permission, needs
from onward.api.resources import RESOURCES
from onward.api.routing import router
from onward.api.services import Services, Serving
from onward.service.serving import services as services_for
from onward.store import audit
from onward.store.audit import KINDS, Doer, Kind, Position
from onward.wiring import Onward
from tests.api.asking_hosts import fresh, made, pages
from tests.api.asking_routes import Answer, Operation, ask
from tests.api.conftest import KeyFor, calling
from tests.api.fleet import Fleet, People
from tests.api.judge import Judge
from tests.api.test_foundation import told
from tests.api.world import TRADER
from tests.conftest import settings_for
from tests.present import seen
from tests.proof_table import Tried
from tests.reader import page as document
from tests.reader import table

RULE: Final = {"reason": "its disk is being replaced"}
CARE: Final = {"needs_approval": False, "read_only": True, "timeout_s": 5.0, "max_retries": 0}

# What is written down elsewhere, with who said it: in the timeline of a command, in the ledger.
ELSEWHERE: Final = {
    *("POST /commands", "POST /commands/events", "POST /commands/{cmd_id}/events"),
    *("POST /callbacks/platform", "POST /callbacks/platform/{platform}"),
    *("POST /api/v1/billing/deposit", "POST /api/v1/billing/withdraw"),
    *(
        f"POST /api/v1/trading/{side}-orders{which}"
        for side in ("purchase", "sell")
        for which in ("", "/{order_id}/cancel")
    ),
}


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test looks at deeds of its own people only."""
    return shared


@pytest.fixture
def person() -> str:
    """Somebody whom no other test knows."""
    return fresh("person-")


@pytest.fixture
async def admin(app: FastAPI, key_for: KeyFor, person: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Their client, with the key of an admin."""
    async with calling(app, await key_for("admin", person=person)) as found:
        yield found


async def deeds(client: httpx2.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    """What was done, the oldest first."""
    return [each for page in await pages(client, "/audit", **query) for each in page][::-1]


async def names(client: httpx2.AsyncClient, **query: Any) -> list[tuple[str, str]]:
    """The same, in short."""
    return [(each["kind"], each["deed"]) for each in await deeds(client, **query)]


async def test_what_only_admins_may_know_is_told_to_them_alone(
    app: FastAPI, key_for: KeyFor, admin: httpx2.AsyncClient, person: str
):
    host = await made(admin, fresh("host-"))
    other = await admin.post("/keys", json={"name": "of a test", "person": "zoe", "role": "viewer"})
    assert other.status_code == 201
    assert await names(admin, by=person) == [("host", "make"), ("key", "make")]
    async with calling(app, await key_for("viewer")) as vic:
        assert await names(vic, by=person) == [("host", "make")]
        assert await names(vic, kind=["key", "session", "item"]) == []
        assert await names(vic, kind=["host", "key"], subject=str(host["host_id"])) == [
            ("host", "make")
        ]


# One for each deed


class Auditor:
    """Asks every route for what it is there for, and looks at what was written down of it."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.pool = judge.services.pool
        self.left = 0
        self.wrong: list[str] = []

    async def look(self, operation: Operation, kind: str | None) -> None:
        """Whatever a request changes has to leave one row that says who it was."""
        await self.judge.world.renew()
        before = await self.pool.fetchrow(
            "SELECT (SELECT coalesce(max(seq), 0) FROM audit), "
            "       (SELECT coalesce(max(seq), 0) FROM job_timeline)"
        )
        assert before is not None
        answer = await self.asked(operation, kind)
        changed = await self.judge.world.changed()
        rows = await self.pool.fetch(
            "SELECT by, request_id FROM audit WHERE seq > $1 UNION ALL "
            "SELECT by, NULL FROM job_timeline WHERE seq > $2 AND by <> ''",
            *before,
        )
        found = self._found(operation, answer, changed, [tuple(row) for row in rows])
        self.wrong += [f"{operation} {kind or ''}: {answer.status} {found}"] * bool(found)
        self.left += len(rows)

    async def asked(self, operation: Operation, kind: str | None, request_id: str = "x") -> Answer:
        draft = self.judge.fresh(operation, kind).with_headers(b"x-request-id", request_id.encode())
        key = f"Bearer {self.judge.key}".encode()
        return await ask(self.judge.app, draft, (b"authorization", key))

    def _found(
        self, operation: Operation, answer: Answer, changed: list[str], rows: list[Any]
    ) -> str:
        if answer.status >= 400:
            return "is refused" * (operation.route.path != "/health/ready")
        if str(operation) in ELSEWHERE:
            return f"left {rows} besides what is written elsewhere" * bool(rows)
        if len(rows) != bool(changed):
            return f"changed {changed}, and left {rows}"
        by = "agent" if operation.route.path == "/agents/enrol" else TRADER
        # Which request it was is known of all but jobs, which know it of themselves.
        return f"left {rows}" * any(row not in {(by, "x"), (by, None)} for row in rows)


@pytest.fixture(scope="module")
async def judge(shared: Onward, *, proof: bool) -> Judge:
    """Somebody who may do everything, in a world in which the examples of all routes are true."""
    services = services_for(shared)
    return await Judge.made(create_app(services), services, proof=proof)


async def test_whatever_a_route_changes_leaves_exactly_one_row(judge: Judge, tried: Tried):
    """Every route there is, and those that are added later."""
    auditor = Auditor(judge)
    asked = 0
    for operation, kind in auditor.judge.ways():
        await auditor.look(operation, kind)
        asked += 1
    assert not auditor.wrong, "\n".join(auditor.wrong)
    assert auditor.left > 25
    tried("routes whose deeds were looked for", asked, f"{auditor.left} written down")


async def test_a_route_that_writes_nothing_down_is_found(judge: Judge):
    silent = router("/silent", "silent")

    @silent.post("", **needs(Permission.MANAGE))
    async def change_silently(services: Serving) -> None:
        await services.pool.execute("UPDATE hosts SET address = address")

    app = create_app(judge.services, routers=[*RESOURCES, silent])
    auditor = Auditor(replace(judge, app=app))
    (operation,) = [each for each in auditor.judge.operations() if each.route.path == "/silent"]
    await auditor.look(operation, None)
    assert auditor.wrong == ["POST /silent : 200 changed ['hosts'], and left []"]


async def test_what_cannot_be_written_down_is_not_done(judge: Judge, tried: Tried):
    """The deed and its row are one transaction, whatever the route."""
    auditor, world, pool = Auditor(judge), judge.world, judge.services.pool
    await pool.execute(
        "ALTER TABLE audit ADD CONSTRAINT closed CHECK (request_id <> 'closed') NOT VALID"
    )
    undone = 0
    try:
        for operation, kind in judge.ways():
            await world.renew()
            answer = await auditor.asked(operation, kind, "closed")
            changed = await world.changed()
            if answer.status == 500:
                undone += 1
                assert not changed, (operation, changed)
            else:
                assert not set(changed) & {"hosts", "host_command_blocks", "command_types"}
                assert not set(changed) & {"api_keys", "sessions", "enrolments"}
    finally:
        await pool.execute("ALTER TABLE audit DROP CONSTRAINT closed")
    assert undone >= 17
    tried("deeds that could not be written down", undone, "none done")


Told = tuple[str, str, str, object]  # kind, deed, subject, detail


async def test_everything_that_people_do_is_told_with_what_it_was(
    app: FastAPI, admin: httpx2.AsyncClient, person: str
):
    """Each deed once, as it is told, and the page about the API names all of them."""
    done = [
        *await done_with_hosts(admin),
        *await done_with_blocks(admin),
        *await done_with_agents(admin),
        *await done_with_keys(app, admin, person),
        *await done_with_items(admin, person),
    ]
    found = await deeds(admin, by=person)
    assert [(e["kind"], e["deed"], e["subject"], utc(e["detail"])) for e in found] == [
        (*rest, utc(detail)) for *rest, detail in done
    ]
    assert all(each["request_id"] for each in found)
    assert [each["at"] for each in found] == sorted(each["at"] for each in found)
    elsewhere = {("agent", "enrol"), *(("job", deed) for deed in JOB_DEEDS)}
    assert documented() == {(kind, deed) for kind, deed, *_ in done} | elsewhere


async def done_with_hosts(admin: httpx2.AsyncClient) -> list[Told]:
    name, other = fresh("host-"), fresh("host-")
    new = {"labels": {"of": name}, "channel": "mqtt", "address": "a"}
    host = await made(admin, name, **new)
    path, subject = f"/hosts/{host['host_id']}", str(host["host_id"])
    change = {"state": "DISABLED", "labels": {"of": name, "role": "db"}}
    await taken(admin.patch(path, json=change, headers=await seen(admin, path)))
    content, csv = f"name,of\n{name},{name}\n{other},{name}\n", {"Content-Type": "text/csv"}
    await taken(admin.post("/hosts/import", content=content, headers=csv))
    await taken(admin.delete(path, headers=await seen(admin, path)))
    return [
        ("host", "make", subject, {"name": name, **new}),
        ("host", "change", subject, {"name": name, **change}),
        ("host", "import", "", {"created": 1, "changed": 1, "unchanged": 0}),
        ("host", "delete", subject, {"name": name}),
    ]


async def done_with_blocks(admin: httpx2.AsyncClient) -> list[Told]:
    host, type_ = await made(admin, labels={"of": (tag := fresh())}), fresh("type-")
    name, subject = host["name"], str(host["host_id"])
    path = f"/hosts/{subject}"
    await taken(admin.put(f"/command-types/{type_}", json={**CARE, "argv": ["true"]}))
    rule = {**RULE, "owner": "eve", "expires_at": "2031-05-01T18:00:00+02:00"}
    block = f"{path}/blocks/{type_}"
    await taken(admin.put(block, json=rule, headers=await seen(admin, path)))
    await taken(admin.delete(block, headers=await seen(admin, path)))
    many = {"selector": f"of={tag}", "command_type": type_}
    await taken(admin.post("/blocks", json={**many, **rule}))
    await taken(admin.post("/blocks/lift", json=many))
    many["selector"] = f"hosts where of={tag}"
    await taken(admin.delete(f"/command-types/{type_}"))
    new = {"labels": {"of": tag}, "channel": "simulated", "address": ""}
    return [
        ("host", "make", subject, {"name": name, **new}),
        ("command_type", "put", type_, {**CARE, "argv": ["true"], "masked": []}),
        ("block", "block", subject, {"host": name, "command_type": type_, **rule}),
        ("block", "unblock", subject, {"host": name, "command_type": type_}),
        ("block", "block_many", "", {**many, "hosts": 1, **rule}),
        ("block", "lift_many", "", {**many, "hosts": 1}),
        ("command_type", "delete", type_, None),
    ]


async def done_with_agents(admin: httpx2.AsyncClient) -> list[Told]:
    host = await made(admin, channel="mqtt")
    name, subject = host["name"], str(host["host_id"])
    token = (await taken(admin.post(f"/hosts/{subject}/enrolment"))).json()
    key = (await taken(admin.post(f"/hosts/{subject}/key"))).json()
    await taken(admin.delete(f"/hosts/{subject}/key"))
    await refuse_secrets(admin, token["token"], key["key"])
    new = {"labels": {}, "channel": "mqtt", "address": ""}
    return [
        ("host", "make", subject, {"name": name, **new}),
        ("agent", "make_token", subject, {"host": name, "expires_at": token["expires_at"]}),
        ("agent", "make_node_key", subject, {"host": name}),
        ("agent", "take_key", subject, {"host": name}),
    ]


async def done_with_keys(app: FastAPI, admin: httpx2.AsyncClient, person: str) -> list[Told]:
    wanted = {"name": "laptop", "person": person, "role": "viewer"}
    key = (await taken(admin.post("/keys", json=wanted))).json()
    async with calling(app) as browser:
        begun = await taken(browser.post("/session", json={"key": key["key"]}))
        secret = begun.cookies["onward_session"]
        await taken(browser.delete("/session", headers={"X-Onward-Page": "1"}))
    await taken(admin.delete(f"/keys/{key['id']}"))
    await refuse_secrets(admin, key["key"], secret)
    return [
        ("key", "make", str(key["id"]), wanted),
        ("session", "log_in", str(key["id"]), {"name": "laptop"}),
        ("session", "log_out", str(key["id"]), {"name": "laptop"}),
        ("key", "revoke", str(key["id"]), wanted),
    ]


async def done_with_items(admin: httpx2.AsyncClient, person: str) -> list[Told]:
    issue = {"user_id": person, "item_id": 7, "quantity": 3}
    issued = (await taken(admin.post("/api/v1/trading/items", json=issue))).json()
    pieces = {"user_id": person, "quantity": 3, "operation_id": issued["operation_id"]}
    return [("item", "issue", "7", pieces)]


async def refuse_secrets(admin: httpx2.AsyncClient, *secrets: str) -> None:
    """What was shown once is nowhere in the list."""
    newest = (await admin.get("/audit")).text
    assert newest.count('"deed"') > 3
    for secret in (*secrets, admin.headers["authorization"].removeprefix("Bearer ")):
        assert secret not in newest


JOB_DEEDS: Final = ("submit", "edit", "approve", "reject", "pause", "resume", "cancel")


def documented() -> set[tuple[str, str]]:
    """The kinds and deeds that the page about the API names."""
    rows = table(document("api.md"), "kind", "deed")
    return {(kind, deed) for kind, cell, *_ in rows for deed in cell.split(", ")}


async def taken(asking: Any) -> httpx2.Response:
    answer: httpx2.Response = await asking
    assert answer.status_code < 400, answer.text
    return answer


def utc(detail: Any) -> Any:
    """The same moment may be written in several ways."""
    if isinstance(detail, dict) and detail.get("expires_at"):
        at = datetime.fromisoformat(detail["expires_at"]).astimezone(UTC)
        return {**detail, "expires_at": at}
    return detail


async def test_an_agent_that_enrols_is_told_once(
    nobody: httpx2.AsyncClient, admin: httpx2.AsyncClient
):
    host = await made(admin, channel="agent")
    token = (await admin.post(f"/hosts/{host['host_id']}/enrolment")).json()["token"]
    wanted = {"token": token, "nonce": "a nonce of an agent"}
    # Its answer may be lost, so it may ask again: that is no second deed.
    for _ in range(2):
        await taken(nobody.post("/agents/enrol", json=wanted))
    about = {"kind": "agent", "subject": str(host["host_id"])}
    *_, enrolled = found = await deeds(admin, **about)
    assert [each["deed"] for each in found] == ["make_token", "enrol"]
    assert (enrolled["by"], enrolled["detail"]) == ("agent", {"host": host["name"]})


@pytest.fixture
async def nobody(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody without a key."""
    async with calling(app) as found:
        yield found


async def test_what_people_do_with_jobs_is_in_the_same_list(fleet: Fleet, people: People):
    await fleet.hosts(1)
    one, two = [await fleet.submit(people.ann, command_type="deploy") for _ in range(2)]
    path = f"/jobs/{one}"
    edit = {"params": {"a": 2}}
    await taken(people.root.patch(path, json=edit, headers=await seen(people.root, path)))
    for client, deed, why in (
        (people.bob, "approve", {"reason": "fine"}),
        (people.ann, "pause", None),
        (people.ann, "resume", None),
        (people.ann, "cancel", {"reason": "not today"}),
    ):
        await taken(
            client.post(f"{path}/{deed}", json=why, headers=await seen(client, path))
            if why
            else client.post(f"{path}/{deed}", headers=await seen(client, path))
        )
    refused = await seen(people.bob, f"/jobs/{two}")
    await taken(people.bob.post(f"/jobs/{two}/reject", headers=refused))
    found = await deeds(people.vic, kind="job", subject=str(one))
    assert [(each["deed"], each["by"]) for each in found] == [
        ("submit", "ann"),
        ("edit", "root"),
        ("approve", "bob"),
        ("pause", "ann"),
        ("resume", "ann"),
        ("cancel", "ann"),
    ]
    assert found[2]["detail"]["reason"] == "fine"
    other = await deeds(people.vic, kind="job", subject=str(two))
    assert [each["deed"] for each in other] == ["submit", "reject"]
    assert {each["deed"] for each in found + other} == set(JOB_DEEDS)
    # What the engine does by itself is nobody's deed.
    engine = "INSERT INTO job_timeline (job_id, event, by) VALUES ($1, 'replan', '')"
    await fleet.pool.execute(engine, one)
    assert await deeds(people.vic, kind="job", subject=str(one)) == found


async def test_what_is_refused_or_changes_nothing_leaves_no_row(
    app: FastAPI, admin: httpx2.AsyncClient, nobody: httpx2.AsyncClient, person: str, fleet: Fleet
):
    (name,) = await fleet.hosts(1)
    await fleet.submit(admin)
    hosts = (await admin.get("/hosts", params={"selector": fleet.selector})).json()["items"]
    path = f"/hosts/{hosts[0]['host_id']}"
    key = (await admin.get("/me")).json()["key_id"]
    _, other = await app.state.services.keys.make(
        "x", person=fresh("person-"), role="viewer", by=Doer(fresh("person-"))
    )
    issue = {"user_id": person, "item_id": 7, "quantity": 3}
    once = {"Idempotency-Key": "once"}
    await admin.post("/api/v1/trading/items", json=issue, headers=once)
    before = await deeds(admin, by=person)
    stale = {"If-Match": '"99"'}
    csv = {"Content-Type": "text/csv"}
    known, unknown = f"name,of\n{name},{fleet.tag}\n", f"name\n{fresh('host-')}\n"
    block = {"selector": "of=nobody-at-all", "command_type": "noop"}
    gone = {"Authorization": f"Bearer {other}", "X-Onward-Page": "1"}
    for status, asking in (
        (409, admin.post("/hosts", json={"name": name})),
        (412, admin.patch(path, json={"address": "x"}, headers=stale)),
        (412, admin.delete(path, headers=stale)),
        (409, admin.delete(path, headers=await seen(admin, path))),
        (404, admin.delete(f"{path}/blocks/noop", headers=await seen(admin, path))),
        (412, admin.put(f"{path}/blocks/noop", json=RULE, headers=stale)),
        (422, admin.post("/blocks", json={**block, **RULE})),
        (422, admin.post("/blocks/lift", json=block)),
        (200, admin.post("/blocks/lift", json={**block, "selector": fleet.selector})),
        (200, admin.post("/hosts/import", content=known, headers=csv)),
        (200, admin.post("/hosts/import?dry_run=true", content=unknown, headers=csv)),
        (404, admin.delete(f"/command-types/{fresh('type-')}")),
        (404, admin.delete("/keys/999999999")),
        (404, admin.post("/hosts/999999999/enrolment")),
        (404, admin.delete("/hosts/999999999/key")),
        (409, admin.post(f"{path}/key")),
        (202, admin.post("/api/v1/trading/items", json=issue, headers=once)),
        (401, nobody.post("/session", json={"key": f"onw_{'a' * 43}"})),
        (204, nobody.delete("/session", headers=gone)),
        (403, nobody.post("/agents/enrol", json={"token": "none", "nonce": "a" * 16})),
    ):
        answer = await asking
        assert answer.status_code == status, answer.text
    assert await deeds(admin, by=person) == before
    # Of two who revoke a key one does it.
    keys = {"name": "gone", "person": person, "role": "viewer"}
    made_ = (await admin.post("/keys", json=keys)).json()
    for _ in range(2):
        await taken(admin.delete(f"/keys/{made_['id']}"))
    assert (await names(admin, by=person))[len(before) :] == [("key", "make"), ("key", "revoke")]
    assert key != made_["id"]


async def test_the_first_key_and_that_of_the_environment_are_written_down(database_url: str):
    first, second = ("0123456789-of-the-environment-" + each for each in ("first", "second"))
    async with onward.open(settings_for(database_url)) as opened:
        pool = opened.commands.pool
        for key in (first, first, second, first):
            await first_key(pool, opened.settings.model_copy(update={"admin_key": SecretStr(key)}))
        found = (await audit.page(pool, limit=100))[::-1]
    assert {(each.by, each.kind) for each in found} == {("environment", "key")}
    assert [each.deed for each in found] == ["make", "make", "revoke", "make", "revoke"]
    assert first not in str(found)


async def test_what_is_long_is_left_out_of_a_detail(admin: httpx2.AsyncClient, person: str):
    argv = ["echo", "x" * 4_000]
    type_ = fresh("type-")
    await taken(admin.put(f"/command-types/{type_}", json={**CARE, "argv": argv}))
    (found,) = await deeds(admin, by=person)
    assert found["detail"] == {**CARE, "argv": "…", "masked": []}


# The list


async def fill(services: Services, person: str, number: int) -> None:
    """Deeds of somebody, many of them at the same moment, of both sources."""
    async with services.pool.acquire() as connection:
        # The numbers of the two sources have nothing to do with each other.
        await connection.execute(
            "SELECT setval(pg_get_serial_sequence('onward.job_timeline', 'seq'), 1000000)"
        )
        for _ in range(number):
            async with connection.transaction():
                for kind in ("host", "block", "key"):
                    by = Doer(person)
                    await audit.note(connection, by, kind=kind, deed="make", subject=person)
                await connection.execute(
                    "INSERT INTO job_timeline (job_id, event, by) "
                    "VALUES (4711, 'pause', $1), (4712, 'resume', $1), (4712, 'replan', '')",
                    person,
                )


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"kind": ["host"]},
        {"kind": ["job", "key"]},
        {"kind": list(KINDS)},
        {"subject": "4711"},
        {"subject": "4712", "kind": ["job"]},
    ],
)
async def test_pages_of_any_size_are_the_whole_list(
    services: Services, admin: httpx2.AsyncClient, person: str, query: dict[str, Any]
):
    await fill(services, person, 7)
    query = {"by": person, **query}
    (whole,) = await pages(admin, "/audit", **query, limit=1_000)
    kinds, subject = query.get("kind", KINDS), query.get("subject")
    rows = await services.pool.fetch(
        "SELECT at, 2 AS source, seq, kind, subject FROM audit WHERE by = $1 UNION ALL "
        "SELECT at, 1, seq, 'job', job_id::text FROM job_timeline WHERE by = $1 "
        "ORDER BY 1 DESC, 2 DESC, 3 DESC",
        person,
    )
    expected = [
        (row["kind"], row["subject"])
        for row in rows
        if row["kind"] in kinds and subject in {None, row["subject"]}
    ]
    assert [(each["kind"], each["subject"]) for each in whole] == expected
    assert expected
    for limit in (1, 2, 3, 5, len(expected)):
        found = await pages(admin, "/audit", **query, limit=limit)
        assert [each for page in found for each in page] == whole, limit
        assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)


async def test_without_a_filter_the_list_has_everything_once(
    services: Services, admin: httpx2.AsyncClient, person: str
):
    await fill(services, person, 5)
    expected = await deeds(admin, by=person, limit=1_000)
    found: list[dict[str, Any]] = []
    cursor = None
    # Ours are the newest, so that they come before whatever other tests have left.
    while len(found) < len(expected):
        params = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = (await admin.get("/audit", params=params)).json()
        found += page["items"]
        cursor = page["next_cursor"]
    assert found[: len(expected)] == expected[::-1]


async def test_a_filter_that_fits_nothing_is_an_empty_page(admin: httpx2.AsyncClient):
    for query in (
        {"by": "nobody at all"},
        {"subject": "'; DROP TABLE onward.audit; --"},
        {"kind": "job", "subject": "not a number"},
        {"kind": "job", "subject": "9" * 255},
        {"kind": "job", "subject": "01"},
        {"subject": "\u0661"},
    ):
        answer = await admin.get("/audit", params=query)
        assert answer.json() == {"items": [], "next_cursor": None}, query


async def test_who_may_read_may_see_who_did_what(
    app: FastAPI, key_for: KeyFor, nobody: httpx2.AsyncClient
):
    for role, status in (("viewer", 200), ("approver", 200), ("trader", 403)):
        async with calling(app, await key_for(role)) as client:
            assert (await client.get("/audit")).status_code == status
    told(await nobody.get("/audit"), 401, "key-missing")
    async with calling(app, await key_for("viewer")) as client:
        told(await client.get("/audit", params={"kind": "secrets"}), 422, "invalid")
        told(await client.get("/audit", params={"by": "a" * 256}), 422, "invalid")


QUESTIONS: Final[dict[str, dict[str, Any]]] = {
    "everything": {},
    "a person": {"by": "p7"},
    "a person of few deeds": {"by": "rare"},
    "a person of long ago": {"by": "gone"},
    "a person of long ago and a kind": {"by": "gone", "kinds": ("agent",)},
    "a person of long ago and their jobs": {"by": "gone", "kinds": ("job",)},
    "a kind": {"kinds": ("host",)},
    "a kind of long ago": {"kinds": ("agent",)},
    "a kind of few deeds": {"kinds": ("key",)},
    "jobs": {"kinds": ("job",)},
    "a subject": {"subject": "7"},
    "a subject of a kind": {"subject": "7", "kinds": ("host",)},
    "a person and a kind": {"by": "rare", "kinds": ("key",)},
}
_PAGES_MAX: Final = 250  # that a page of 100 deeds may read, of tables that have thousands


async def test_a_page_costs_the_same_wherever_it_is(database_url: str, tried: Tried):
    """Counted in pages of the database that are read, out of tables which have thousands."""
    count = 60_000
    async with onward.open(settings_for(database_url)) as opened:
        pool = opened.commands.pool
        await pool.execute(
            "INSERT INTO audit (at, by, deed, kind, subject, detail) "
            "SELECT now() + n * interval '100 seconds', "
            "       CASE WHEN n % 1000 = 0 THEN 'rare' WHEN n < 10000 THEN 'gone' "
            "            ELSE 'p' || n % 50 END, 'change', "
            "       CASE WHEN n % 1000 = 0 THEN 'key' WHEN n < 10000 THEN 'agent' "
            "            ELSE (ARRAY['host', 'block'])[1 + n % 2] END, "
            "       (n % 30)::text, jsonb_build_object('text', repeat('x', 200)) "
            "  FROM generate_series(1, $1::integer) AS n",
            count,
        )
        await pool.execute(
            "INSERT INTO job_timeline (at, job_id, event, by) "
            "SELECT now() + n * interval '100 seconds', n % 30000, 'pause', "
            "       CASE WHEN n % 3 = 0 THEN '' WHEN n < 10000 THEN 'gone' ELSE 'p' || n % 50 END "
            "  FROM generate_series(1, $1::integer) AS n",
            count,
        )
        await pool.execute("ANALYZE audit")
        await pool.execute("ANALYZE job_timeline")
        moments = await pool.fetchrow(
            "SELECT now() + interval '1 year', now() + $1 * interval '50 seconds', "
            "now() + interval '9 hours'",
            count,
        )
        assert moments is not None
        for name, question in QUESTIONS.items():
            for at in moments:
                position = Position(at)
                read = await _pages_read(pool, after=position, **question)
                assert read < _PAGES_MAX, (name, at, read)
    tried("questions about deeds whose cost was counted", len(QUESTIONS) * 3, "all the same")


async def _pages_read(pool: Any, **question: Any) -> int:
    """How many pages of the database a page of the list takes."""
    asked: list[tuple[Any, ...]] = []

    class Noting:
        async def fetch(self, *query: Any) -> list[Any]:
            asked.append(query)
            return []

    await audit.page(Noting(), limit=100, **question)  # type: ignore[arg-type]  # as much of a pool as it takes
    ((query, *given),) = asked
    plan = await pool.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", *given)
    told = json.loads(plan)[0]["Plan"]
    return int(told["Shared Hit Blocks"] + told["Shared Read Blocks"])


def test_every_kind_that_is_written_down_can_be_asked_for():
    kinds: set[Kind] = set(KINDS)
    assert {kind for kind, _ in documented()} == kinds
