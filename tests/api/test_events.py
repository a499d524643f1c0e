"""The stream of changes over real connections: everything once, from any id, to the end."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

import onward
from onward.api import events, paging
from onward.api.events import end_streams, feed_of
from onward.api.permissions import GRANTS, Permission, Role
from onward.api.services import Services
from onward.api.telling import BATCHED
from onward.fleet.follow import Feed, Listener
from onward.store import database
from onward.store.changes import KINDS, Position
from onward.store.database import Pool
from onward.wiring import Onward
from tests.api.conftest import KeyFor, calling
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.conftest import settings_for
from tests.present import TESTER
from tests.proof_table import Tried
from tests.store.asking import BOUND_S
from tests.store.test_changes import settled, tell


@pytest.fixture(scope="module")
async def opened(shared_url: str) -> AsyncIterator[Onward]:
    """Every test listens from where it finds things, so that the database can be shared."""
    async with onward.open(settings_for(shared_url, pool_size=16)) as found:
        yield found


class Server(uvicorn.Server):
    """A server that leaves the signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[tuple[str, Server]]:
    """Serve an application; its address, and the server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, lifespan="off", ws="none", log_level="error", loop="none")
        server = Server(config)
        running = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
        finally:
            end_streams(app)
            server.should_exit = True
            async with asyncio.timeout(BOUND_S):
                await running


@pytest.fixture
async def address(app: FastAPI) -> AsyncIterator[str]:
    async with serving(app) as (found, _):
        yield found


@dataclass
class Ear:
    """Somebody who listens: what was heard, and the last id."""

    lines: AsyncIterator[str]
    heard: list[tuple[str, Any]] = field(default_factory=list)
    comments: int = 0
    last_id: str = ""
    retry: int | None = None

    async def block(self) -> bool:
        """Hear up to the next empty line; false at the end of the stream."""
        data = None
        async for line in self.lines:
            name, _, value = line.partition(": ")
            match name:
                case "":
                    if line == "":
                        if data is not None:
                            self.heard.append((self.last_id, json.loads(data)))
                        return True
                    self.comments += 1
                case "id":
                    self.last_id = value
                case "data":
                    data = value
                case "retry":
                    self.retry = int(value)
        return False

    async def until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not enough():
                assert await self.block(), "the stream ended"

    async def hear(self, count: int) -> list[str]:
        """Hear so many events; what each was called."""
        await self.until(lambda: len(self.heard) >= count)
        return self.events

    async def hear_together(self, count: int) -> list[Any]:
        """Hear so many changes, by the batch."""
        await self.until(lambda: len(self.together) >= count)
        return self.together

    async def to_the_end(self) -> None:
        async with asyncio.timeout(BOUND_S):
            while await self.block():
                pass

    @property
    def events(self) -> list[str]:
        return [data["event"] for _, data in self.heard]

    @property
    def together(self) -> list[Any]:
        return [change for _, batch in self.heard for change in batch]

    @property
    def ids(self) -> list[str]:
        return [id_ for id_, _ in self.heard]


@asynccontextmanager
async def listening(
    address: str, headers: dict[str, str], path: str = "/events", **more: str
) -> AsyncIterator[Ear]:
    """Listen to a stream; the first block, with the id to begin from, has been heard."""
    async with (
        httpx2.AsyncClient(
            base_url=address, headers={**headers, **more}, timeout=BOUND_S
        ) as client,
        client.stream("GET", path) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        ear = Ear(answer.aiter_lines())
        await ear.until(lambda: bool(ear.last_id))
        yield ear


@pytest.fixture
async def key(key_for: KeyFor) -> dict[str, str]:
    """The key of a viewer, which is all that a listener needs."""
    return await key_for("viewer")


# Hearing


async def test_what_changes_is_told_as_it_changes(
    address: str, key: dict[str, str], fleet: Fleet, people: People
):
    await fleet.hosts(1)
    async with listening(address, key) as ear:
        assert ear.retry == 2_000
        made = await people.ann.post("/commands", json={})
        job_id = await fleet.submit(people.ann)
        (claimed,) = await fleet.claim(job_id)
        await fleet.say([claimed], "succeed")
        assert await ear.hear(5) == ["create", "submit", "plan", "claim", "succeed"]
    command, job, planned, _, ended = (data for _, data in ear.heard)
    assert (command["kind"], command["cmd_id"]) == ("command", made.json()["cmd_id"])
    assert (job["kind"], job["job_id"], job["status"]) == ("job", job_id, None)
    assert (planned["kind"], planned["job_id"], planned["status"]) == (
        "execution",
        job_id,
        "QUEUED",
    )
    assert (ended["execution_id"], ended["host_id"]) == (claimed.execution_id, claimed.host_id)
    assert ended["status"] == "SUCCESS"


async def test_nobody_on_the_way_is_to_keep_what_is_told(address: str, key: dict[str, str]):
    async with (
        httpx2.AsyncClient(base_url=address, headers=key, timeout=BOUND_S) as client,
        client.stream("GET", "/events") as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        assert "content-length" not in answer.headers
    async with httpx2.AsyncClient(base_url=address, headers=key, timeout=BOUND_S) as client:
        answer = await client.head("/events")
        assert (answer.status_code, answer.content) == (200, b"")


async def test_a_stream_goes_on_after_every_id_exactly(
    address: str, key: dict[str, str], services: Services, tried: Tried
):
    """Five write in order and commit in the opposite order, several changes each, of every kind."""
    pool = services.pool
    async with listening(address, key) as ear:
        start = ear.last_id
        async with AsyncExitStack() as stack:
            writers = [await stack.enter_async_context(pool.acquire()) for _ in range(5)]
            open_ = [writer.transaction() for writer in writers]
            for number, (writer, transaction) in enumerate(zip(writers, open_, strict=True)):
                await transaction.start()
                for step in range(4):
                    await tell(writer, KINDS[(number + step) % 3], f"{number}.{step}")
            for transaction in reversed(open_):
                await transaction.commit()
        await tell(pool, "job", "last")
        whole = await ear.hear(21)
    assert sorted(whole[:20]) == [f"{number}.{step}" for number in range(5) for step in range(4)]
    assert [event[0] for event in whole[:20]] == sorted(event[0] for event in whole[:20])
    assert whole[20] == "last"
    for heard, last in enumerate([start, *ear.ids[:-1]]):
        async with listening(address, key, **{"Last-Event-ID": last}) as again:
            assert again.last_id == last
            assert await again.hear(21 - heard) == whole[heard:]
            assert again.ids == ear.ids[heard:]
        async with listening(address, key, f"/events?after={last}") as again:
            assert await again.hear(21 - heard) == whole[heard:]
    tried("ids that a stream went on from", 2 * 21)


async def test_the_header_is_stronger_than_the_address(
    address: str, key: dict[str, str], services: Services
):
    """A browser that reconnects has the address of the beginning, and the id of the end."""
    async with listening(address, key) as ear:
        start = ear.last_id
        for event in ("first", "second"):
            await tell(services.pool, "job", event)
        await ear.hear(2)
    path = f"/events?after={start}"
    async with listening(address, key, path, **{"Last-Event-ID": ear.ids[0]}) as again:
        assert await again.hear(1) == ["second"]
    async with listening(address, key, path, **{"Last-Event-ID": ""}) as again:
        assert await again.hear(2) == ["first", "second"]


async def test_only_what_is_wanted_is_told(
    address: str, key: dict[str, str], fleet: Fleet, people: People
):
    await fleet.hosts(2)
    async with AsyncExitStack() as stack:
        hear = stack.enter_async_context
        jobs = await hear(listening(address, key, "/events?kind=job"))
        two = await hear(listening(address, key, "/events?kind=job&kind=command"))
        first = await fleet.submit(people.ann)
        one = await hear(listening(address, key, f"/events?job_id={first}&after={jobs.last_id}"))
        await people.ann.post("/commands", json={})
        second = await fleet.submit(people.ann)
        assert await jobs.hear(2) == ["submit", "submit"]
        assert [data["job_id"] for _, data in jobs.heard] == [first, second]
        assert await two.hear(3) == ["submit", "create", "submit"]
        await fleet.claim(first)
        assert sorted(await one.hear(5)) == ["claim", "claim", "plan", "plan", "submit"]
        assert {data["job_id"] for _, data in one.heard} == {first}


async def test_who_hears_nothing_learns_where_to_go_on(
    address: str, key: dict[str, str], services: Services, monkeypatch: pytest.MonkeyPatch
):
    """Between two signs of life the position moves on, past what is not wanted."""
    monkeypatch.setattr(events, "_KEEP_ALIVE_S", 0.05)
    async with listening(address, key, "/events?kind=command") as ear:
        start = ear.last_id
        await tell(services.pool, "job", "not wanted")
        await ear.until(lambda: ear.comments > 0 and ear.last_id != start)
        assert ear.heard == []
    async with listening(address, key, f"/events?after={ear.last_id}") as again:
        await tell(services.pool, "job", "wanted")
        assert (await again.hear(1))[-1] == "wanted"


async def test_a_server_that_is_away_for_a_moment_is_waited_for(
    address: str, key: dict[str, str], opened: Onward
):
    """Somebody ends every connection but their own, again and again."""
    outside = await database.connect(opened.database_url)
    try:
        async with listening(address, key) as ear:
            for round_ in range(3):
                await outside.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                await tell(outside, "job", f"round {round_}")
                assert (await ear.hear(round_ + 1))[-1] == f"round {round_}"
    finally:
        await outside.close()


# Hearing by the batch


async def test_a_batch_tells_the_same_changes_in_the_same_order(
    address: str, key: dict[str, str], fleet: Fleet, people: People
):
    await fleet.hosts(5)
    async with (
        listening(address, key) as ear,
        listening(address, key, "/events?batch=true") as other,
    ):
        await people.ann.post("/commands", json={})
        job_id = await fleet.submit(people.ann)
        await fleet.say(await fleet.claim(job_id), "succeed")
        await ear.hear(17)
        await other.hear_together(17)
    one_by_one = [[change[name] for name in BATCHED] for _, change in ear.heard]
    assert other.together == one_by_one
    assert {change[0] for change in one_by_one} == set(KINDS)


async def test_what_is_told_together_is_one_event_whatever_its_number(
    address: str, key: dict[str, str], services: Services
):
    async with listening(address, key, "/events?batch=true&kind=command") as ear:
        await tell_many(services.pool, 1_200)
        await ear.hear_together(1_200)
        # Of one transaction: how much is told at once is all that cuts it.
        assert [len(batch) for _, batch in ear.heard] == [500, 500, 200]


async def test_a_stream_of_batches_goes_on_after_every_id_exactly(
    address: str, key: dict[str, str], services: Services
):
    async with listening(address, key, "/events?batch=true&kind=command") as ear:
        start = ear.last_id
        await tell_many(services.pool, 1_200)
        await tell(services.pool, "job", "not wanted")
        await tell(services.pool, "command", "last")
        whole = await ear.hear_together(1_201)
        batches = [batch for _, batch in ear.heard]
    assert whole[-1][5] == "last"
    heard = 0
    for last, told_ in zip([start, *ear.ids], [0, *map(len, batches)], strict=True):
        heard += told_
        async with listening(
            address, key, "/events?batch=true&kind=command", **{"Last-Event-ID": last}
        ) as again:
            assert await again.hear_together(1_201 - heard) == whole[heard:]
    # And from there to the stream that tells one by one.
    path = f"/events?kind=command&after={ear.ids[0]}"
    async with listening(address, key, path) as again:
        await again.hear(701)
        assert [change["seq"] for _, change in again.heard] == [change[7] for change in whole[500:]]


async def tell_many(pool: Pool, count: int) -> None:
    await pool.execute(
        "INSERT INTO timeline (cmd_id, event, verdict) "
        "SELECT gen_random_uuid(), 'x', 'OK' FROM generate_series(1, $1)",
        count,
    )


# Leaving


async def until(pool: Pool, done: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not done():
            # Every query gives the loop a turn; there is nothing to sleep for.
            await pool.fetchval("SELECT 1")


async def test_the_database_is_read_once_for_all_and_not_at_all_for_nobody(
    app: FastAPI, address: str, key: dict[str, str], services: Services
):
    feed = feed_of(app)
    assert feed._polling is None
    async with AsyncExitStack() as stack:
        ears = [await stack.enter_async_context(listening(address, key)) for _ in range(5)]
        polling = feed._polling
        assert (feed.listeners, polling is None) == (5, False)
        await tell(services.pool, "job", "for all")
        for ear in ears:
            assert await ear.hear(1) == ["for all"]
        assert feed._polling is polling
    await until(services.pool, lambda: feed.listeners == 0 and feed._polling is None)
    assert feed._tail == []
    async with listening(address, key) as ear:
        await tell(services.pool, "job", "again")
        assert await ear.hear(1) == ["again"]


async def test_a_server_that_leaves_ends_its_streams_properly(
    app: FastAPI, key: dict[str, str], services: Services
):
    async with serving(app) as (address, server), AsyncExitStack() as stack:
        ears = [await stack.enter_async_context(listening(address, key)) for _ in range(3)]
        await tell(services.pool, "job", "before")
        for ear in ears:
            await ear.hear(1)
        end_streams(app)
        server.should_exit = True
        for ear in ears:
            # A connection that was cut would raise here.
            await ear.to_the_end()
    assert feed_of(app).listeners == 0


async def test_a_revoked_key_hears_nothing_more(
    address: str, services: Services, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(events, "_KEEP_ALIVE_S", 0.05)
    made, secret = await services.keys.make("gone", person="ann", role="viewer", by=TESTER)
    async with listening(address, {"Authorization": f"Bearer {secret}"}) as ear:
        await tell(services.pool, "job", "heard")
        await ear.hear(1)
        await services.keys.revoke(made.id, by=TESTER)
        await tell(services.pool, "job", "not heard")
        await ear.to_the_end()
        assert ear.events == ["heard"]


async def test_whoever_logs_out_elsewhere_hears_nothing_more(
    address: str, services: Services, key: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(events, "_KEEP_ALIVE_S", 0.05)
    bare = key["Authorization"].removeprefix("Bearer ").encode()
    begun = await services.sessions.begin(bare, lasts_s=60)
    assert begun is not None
    page = {"Cookie": f"onward_session={begun[1]}", "X-Onward-Page": "1"}
    async with listening(address, page) as ear:
        await tell(services.pool, "job", "heard")
        await ear.hear(1)
        await services.sessions.end([begun[1].encode()])
        await tell(services.pool, "job", "not heard")
        await ear.to_the_end()
        assert ear.events == ["heard"]


class WatchedFeed(Feed):
    """A feed that shows who listens."""

    def __init__(self, pool: Pool, **options: Any) -> None:
        super().__init__(pool, **options)
        self.seen: list[Listener] = []

    @asynccontextmanager
    async def listen(self, position: Position) -> AsyncIterator[Listener]:
        async with super().listen(position) as listener:
            self.seen.append(listener)
            yield listener


async def test_who_does_not_read_costs_no_memory_and_misses_nothing(
    app: FastAPI, services: Services, key: dict[str, str]
):
    """More is told than all buffers on the way can hold, while one of two does not read."""
    count = 30_000
    feed = app.state.feed = WatchedFeed(services.pool, poll_s=0.02, kept=500)
    async with serving(app) as (address, _), AsyncExitStack() as stack:
        slow = await stack.enter_async_context(listening(address, key, "/events?kind=command"))
        fast = await stack.enter_async_context(listening(address, key, "/events?kind=command"))
        for _ in range(10):
            await tell_many(services.pool, count // 10)
        await fast.hear(count)
        assert len(feed._tail) <= 2 * 500
        assert feed.after(feed.seen[0].position) is None, "the slow one is not behind"
        await slow.hear(count)
    assert slow.ids == fast.ids
    assert len(set(slow.ids)) == count


async def test_more_streams_than_allowed_are_told_to_come_back(
    app: FastAPI,
    address: str,
    key: dict[str, str],
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(events, "_STREAMS_MAX", 1)
    async with listening(address, key), calling(app, key) as second:
        answer = await second.get("/events")
        told(answer, 503, "too-many-streams")
        assert int(answer.headers["retry-after"]) > 0
    await until(services.pool, lambda: feed_of(app).listeners == 0)
    async with listening(address, key):
        pass


# Pages


async def test_pages_lead_through_the_same_changes(
    address: str, key: dict[str, str], app: FastAPI, services: Services
):
    async with calling(app, key) as client:
        begun = (await client.get("/events/page")).json()
        assert begun["items"] == []
        for number in range(7):
            await tell(services.pool, KINDS[number % 3], f"change {number}")
        await settled(services.pool)
        found: list[str] = []
        lengths, cursor = [], begun["next_cursor"]
        for _ in range(4):
            page = (await client.get(f"/events/page?limit=3&after={cursor}")).json()
            lengths.append(len(page["items"]))
            found += [item["event"] for item in page["items"]]
            cursor = page["next_cursor"]
        assert lengths == [3, 3, 1, 0]
        assert found == [f"change {number}" for number in range(7)]
        jobs = await client.get(f"/events/page?kind=job&limit=2&after={begun['next_cursor']}")
        assert [item["event"] for item in jobs.json()["items"]] == ["change 0", "change 3"]
        rest = await client.get(f"/events/page?kind=job&after={jobs.json()['next_cursor']}")
        assert [item["event"] for item in rest.json()["items"]] == ["change 6"]
    # From a page to the stream, and back.
    async with listening(address, key, f"/events?after={begun['next_cursor']}") as ear:
        assert await ear.hear(7) == found
    async with calling(app, key) as client:
        page = (await client.get(f"/events/page?after={ear.ids[4]}")).json()
        assert [item["event"] for item in page["items"]] == ["change 5", "change 6"]


# Bad input


async def positions(pool: Pool) -> dict[str, tuple[int, str]]:
    """Positions from which there is no way on, with status and code of the answer."""
    here = await settled(pool)

    def written(position: Position) -> str:
        return paging.encode("changes", position)

    return {
        written(here._replace(tx=here.tx + 10**9)): (410, "position-gone"),
        written(here._replace(at=here.at - 20 * 366 * 86_400)): (410, "position-gone"),
        written(here._replace(at=here.at + 366 * 86_400)): (410, "position-gone"),
        written(here._replace(at=2**62)): (410, "position-gone"),
        written(here._replace(seq=-1)): (422, "invalid"),
        paging.encode("changes", [here.tx, 0, 0]): (422, "invalid"),
        paging.encode("changes", ["a", 0, 0, 0]): (422, "invalid"),
        paging.encode("keys", here): (422, "invalid"),
        written(here)[:-1]: (422, "invalid"),
        "1": (422, "invalid"),
        "%20": (422, "invalid"),
        "A" * 2_000: (422, "invalid"),
        "\N{SNOWMAN}": (422, "invalid"),
    }


BAD_QUERIES = (
    "job_id=0",
    "job_id=-1",
    "job_id=x",
    "job_id=",
    "job_id=9223372036854775808",
    "kind=host",
    "kind=",
    "kind=JOB",
    "kind=job&kind=job&kind=job&kind=job",
)
BAD_BATCHES = ("batch=2", "batch=", "batch=perhaps")


async def test_the_table_of_bad_input(
    app: FastAPI, key: dict[str, str], services: Services, tried: Tried
):
    async with calling(app, key) as client:
        refused = await positions(services.pool)
        for position, (status, code) in refused.items():
            for path in ("/events", "/events/page"):
                answer = await client.get(path, params={"after": position})
                told(answer, status, code)
            if position.isascii():
                answer = await client.get("/events", headers={"Last-Event-ID": position})
                told(answer, status, code)
        told(await client.get("/events?after="), 422, "invalid")
        raw = [(b"Last-Event-ID", b"\xff\xfe")]
        told(await client.get("/events", headers=raw), 422, "invalid")
        for query in BAD_QUERIES:
            for path in ("/events", "/events/page"):
                told(await client.get(f"{path}?{query}"), 422, "invalid")
        for query in BAD_BATCHES:
            told(await client.get(f"/events?{query}"), 422, "invalid")
        for query in ("limit=0", "limit=1001", "limit=x", "after=", "batch=true"):
            told(await client.get(f"/events/page?{query}"), 422, "invalid")
        for method in ("POST", "PUT", "DELETE"):
            told(await client.request(method, "/events"), 405, "method-not-allowed")
    tried("bad requests about events", 3 * len(refused) + 2 * len(BAD_QUERIES) + 11, "all refused")


async def test_every_role_of_the_fleet_may_listen_and_nobody_else(
    app: FastAPI, address: str, key_for: KeyFor
):
    for role in set(Role) - {Role.trader}:
        assert Permission.READ in GRANTS[role]
        headers = await key_for(role)
        async with listening(address, headers), calling(app, headers) as client:
            assert (await client.get("/events/page")).status_code == 200
    async with calling(app) as nobody, calling(app, await key_for(Role.trader)) as trader:
        for path in ("/events", "/events/page"):
            told(await nobody.get(path), 401, "key-missing")
            told(await trader.get(path), 403, "permission-missing")


async def test_the_stream_is_described(client: httpx2.AsyncClient):
    described = (await client.get("/openapi.json")).json()["paths"]
    stream = described["/events"]["get"]
    assert set(stream["responses"]["200"]["content"]) == {"text/event-stream"}
    assert {each["name"] for each in stream["parameters"]} == {
        "job_id",
        "kind",
        "after",
        "batch",
        "Last-Event-ID",
    }
    page = described["/events/page"]["get"]["responses"]["200"]["content"]["application/json"]
    assert page["schema"] == {"$ref": "#/components/schemas/ChangePage"}
