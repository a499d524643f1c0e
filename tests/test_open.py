"""`async with onward.open():` - who is open, for whom, and what leaving means."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg
import pytest

import onward
from onward.commands import (
    create_command,
    expire_due,
    fetch,
    get_command,
    mark_command_ack,
    new_command_id,
    record_events,
)
from onward.core.verdicts import TransitionResult
from onward.errors import NotOpen, ServerNotDurable
from onward.wiring import current
from tests.conftest import settings_for
from tests.databases import copied
from tests.store.asking import BOUND_S, until_blocked

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def second_url(server_url: str, template: str) -> Iterator[str]:
    """Another database."""
    with copied(server_url, template) as url:
        yield url


async def database_here() -> str:
    ((name,),) = await fetch("SELECT current_database()")
    found: str = name
    return found


def named(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


async def connections(url: str) -> int:
    """How many sessions the database has beside the one that asks."""
    connection = await asyncpg.connect(url)
    try:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        return count
    finally:
        await connection.close()


async def until_no_connections(url: str) -> None:
    """A session takes a moment to end after its client has gone."""
    async with asyncio.timeout(BOUND_S):
        while True:
            if not await connections(url):
                return
            await asyncio.sleep(0.01)


@contextmanager
def refused() -> Iterator[None]:
    with pytest.raises(NotOpen) as caught:
        yield
    told = str(caught.value)
    assert told.splitlines() == [told]
    assert "onward.open()" in told


async def test_every_call_outside_says_where_to_put_it():
    for call in (
        create_command,
        lambda: mark_command_ack(new_command_id()),
        lambda: get_command(new_command_id()),
        lambda: record_events([]),
        expire_due,
        lambda: fetch("SELECT 1"),
    ):
        with refused():
            await call()


async def test_inside_it_works_and_after_leaving_it_is_closed(database_url):
    async with onward.open(settings_for(database_url)) as opened:
        assert current() is opened
        assert (await create_command()).changed
    with refused():
        await create_command()
    await until_no_connections(database_url)


async def test_an_error_inside_comes_out_as_it_is_and_leaves_nothing_open(database_url):
    async def stumble() -> None:
        async with onward.open(settings_for(database_url)):
            await create_command()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await stumble()
    with refused():
        await create_command()
    await until_no_connections(database_url)


async def test_an_open_that_fails_leaves_nothing_open(database_url):
    durable = settings_for(database_url).model_copy(update={"require_durable": True})
    with pytest.raises(ServerNotDurable):
        async with onward.open(durable):
            pass
    with refused():
        await create_command()
    await until_no_connections(database_url)


async def test_the_inner_of_two_opens_is_the_one_that_is_meant(database_url, second_url):
    async with onward.open(settings_for(database_url)):
        async with onward.open(settings_for(second_url)):
            assert await database_here() == named(second_url)
        assert await database_here() == named(database_url)
    with refused():
        await database_here()


async def test_two_tasks_may_each_open_their_own(database_url, second_url):
    both = asyncio.Barrier(2)

    async def use(url: str) -> str:
        async with onward.open(settings_for(url)):
            await both.wait()
            found = await database_here()
            await both.wait()
            return found

    found = await asyncio.gather(use(database_url), use(second_url))
    assert list(found) == [named(database_url), named(second_url)]


def test_two_threads_may_each_open_their_own_in_a_loop_of_their_own(database_url, second_url):
    both = threading.Barrier(2, timeout=BOUND_S)
    found: dict[str, list[str]] = {}

    async def use(url: str) -> None:
        async with onward.open(settings_for(url)):
            await asyncio.to_thread(both.wait)
            cmd_id = new_command_id()
            await create_command(cmd_id)
            results = await asyncio.gather(*(mark_command_ack(cmd_id) for _ in range(5)))
            found[url] = [await database_here(), *sorted(answer.result for answer in results)]
            await asyncio.to_thread(both.wait)

    threads = [
        threading.Thread(target=lambda url=url: asyncio.run(use(url)))
        for url in (database_url, second_url)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    once = sorted([TransitionResult.OK, *[TransitionResult.DUPLICATE] * 4])
    assert found == {url: [named(url), *once] for url in (database_url, second_url)}


async def test_one_database_may_be_opened_many_times_at_once(database_url):
    async def use() -> bool:
        async with onward.open(settings_for(database_url, pool_size=2)):
            return (await create_command()).changed

    assert await asyncio.gather(*(use() for _ in range(5))) == [True] * 5


async def test_a_task_that_began_before_sees_what_was_opened_since(database_url):
    go = asyncio.Event()

    async def later() -> bool:
        await go.wait()
        return (await create_command()).changed

    task = asyncio.create_task(later())
    await asyncio.sleep(0)
    async with onward.open(settings_for(database_url)):
        go.set()
        assert await task


async def test_a_task_that_outlives_what_was_open_around_it_is_told_so(database_url):
    go = asyncio.Event()

    async def later() -> None:
        await go.wait()
        await create_command()

    async with onward.open(settings_for(database_url)):
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
    go.set()
    with refused():
        async with asyncio.timeout(BOUND_S):
            await task


async def test_leaving_answers_the_calls_that_still_wait_for_company(database_url):
    """They would wait a second for company; leaving takes them along at once."""
    ids = [new_command_id() for _ in range(5)]
    async with onward.open(settings_for(database_url, group_commit_ms=1_000)) as opened:
        calls = [asyncio.create_task(create_command(cmd_id)) for cmd_id in ids]
        unknown = asyncio.create_task(mark_command_ack(new_command_id()))
        await asyncio.sleep(0)
        assert not any(call.done() for call in [*calls, unknown])
        assert len(opened.commands._new._waiting) == 5
    assert all(call.done() for call in [*calls, unknown])
    assert [(await call).result for call in calls] == [TransitionResult.OK] * 5
    assert (await unknown).result is TransitionResult.UNKNOWN_COMMAND
    async with onward.open(settings_for(database_url)):
        assert all([await get_command(cmd_id) for cmd_id in ids])


async def test_leaving_answers_the_calls_that_are_on_their_way(database_url):
    """Forced: the row is held by somebody else when we leave, and given free afterwards."""
    cmd_id = new_command_id()
    somebody = await asyncpg.connect(database_url)
    try:
        opening = onward.open(settings_for(database_url))
        await opening.__aenter__()
        await create_command(cmd_id)
        held = somebody.transaction()
        await held.start()
        await somebody.execute("SELECT FROM onward.commands WHERE cmd_id = $1 FOR UPDATE", cmd_id)
        call = asyncio.create_task(mark_command_ack(cmd_id))
        await until_blocked(somebody, by=somebody.get_server_pid())
        leaving = asyncio.create_task(opening.__aexit__(None, None, None))
        await asyncio.sleep(0)
        assert not leaving.done()
        await held.rollback()
        async with asyncio.timeout(BOUND_S):
            await leaving
        assert (await call).result is TransitionResult.OK
    finally:
        await somebody.close()
