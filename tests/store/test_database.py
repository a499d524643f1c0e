"""The server behind the store: refused in one sentence, or lost under a call and found again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

import onward
from onward.commands import (
    create_command,
    expire_due,
    get_command,
    get_timeline,
    mark_command_ack,
    mark_command_sent,
    new_command_id,
)
from onward.core.verdicts import TransitionResult
from onward.errors import (
    InvalidInput,
    OnwardError,
    ServerNotDurable,
    ServerTooOld,
    ServerUnreachable,
)
from onward.store import database
from tests.conftest import settings_for
from tests.databases import copied, on
from tests.store.asking import BOUND_S, kill_blocked, row_of, state_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

SECRET = "s3cr3t"  # noqa: S105 - the one that must not be told


async def refusal(url: str, kind: type[OnwardError], *, durable: bool = False) -> str:
    """The one sentence that keeps us out, and its checks."""
    settings = settings_for(url).model_copy(update={"require_durable": durable})
    with pytest.raises(kind) as caught:
        async with onward.open(settings):
            pass
    told = str(caught.value)
    assert told.splitlines() == [told]
    assert "Traceback" not in told
    assert SECRET not in told
    return told


def as_role(url: str, role: str) -> str:
    """The same database, as somebody else."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{role}:{SECRET}@{place}"))


async def test_nothing_that_listens_is_told_in_one_sentence():
    told = await refusal(f"postgresql://me:{SECRET}@127.0.0.1:1/onward", ServerUnreachable)
    assert "127.0.0.1:1" in told
    assert "ONWARD_DATABASE_URL" in told


async def test_a_socket_that_is_not_there_is_told_in_one_sentence(tmp_path):
    url = f"postgresql://me:{SECRET}@/onward?host={tmp_path}"
    assert "ONWARD_DATABASE_URL" in await refusal(url, ServerUnreachable)


async def test_a_database_that_is_not_there_is_told_in_one_sentence(server_url):
    assert "no_such_database" in await refusal(
        on(server_url, "no_such_database"), ServerUnreachable
    )


async def test_a_role_that_is_not_there_is_told_in_one_sentence(server_url):
    told = await refusal(as_role(server_url, "no_such_role"), ServerUnreachable)
    assert "no_such_role" in told


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://me:s3cr3t@localhost/onward",
        "https://me:s3cr3t@localhost/onward",
        "postgresql://me:s3cr3t@localhost:port/onward",
        "postgresql://me:s3cr3t@localhost:99999999/onward",
        "postgresql://me:s3cr3t@[::1/onward",
        "postgresql://me:s3cr3t#x@localhost/onward",
        "postgresql://me:s3cr3t/x@localhost/onward",
        "postgresql://me:s3cr3t?x@localhost/onward",
        "postgresql://me:s3cr3t\x00@localhost/onward",
        "postgresql://me:s3cr3t\ud800@localhost/onward",
    ],
    ids=ascii,
)
async def test_what_is_no_address_is_told_in_one_sentence_without_the_password(url):
    with pytest.raises((InvalidInput, ServerUnreachable)) as caught:
        async with onward.open(settings_for(url)):
            pass
    told = str(caught.value)
    assert told.splitlines() == [told]
    assert told.isprintable()
    assert "ONWARD_DATABASE_URL" in told
    assert SECRET not in told


def test_a_role_that_may_not_make_the_schema_is_told_in_one_sentence(server_url):
    async def forbidden(url: str) -> str:
        admin = await asyncpg.connect(url)
        await admin.execute(
            "DROP ROLE IF EXISTS onward_test_guest; CREATE ROLE onward_test_guest LOGIN"
        )
        try:
            return await refusal(as_role(url, "onward_test_guest"), OnwardError)
        finally:
            await admin.execute("DROP ROLE onward_test_guest")
            await admin.close()

    with copied(server_url, "template0") as url:
        assert "permission" in asyncio.run(forbidden(url))


@pytest.mark.parametrize(
    ("number", "shown"), [(90_624, "9.6.24"), (140_012, "14.12"), (149_999, "14.x")]
)
def test_a_server_that_is_too_old_is_told_in_one_sentence(number, shown):
    with pytest.raises(ServerTooOld) as caught:
        database.refuse_old(number, shown)
    told = str(caught.value)
    assert told.splitlines() == [told]
    assert shown in told
    assert "15" in told


def test_a_server_of_the_oldest_version_that_we_know_will_do():
    database.refuse_old(150_000, "15.0")
    database.refuse_old(180_004, "18.4")


DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


@pytest.mark.parametrize("name", sorted(DURABLE))
def test_a_server_that_may_forget_is_told_what_is_off(name):
    with pytest.raises(ServerNotDurable) as caught:
        database.refuse_forgetful({**DURABLE, name: "off"})
    told = str(caught.value)
    assert told.splitlines() == [told]
    assert name in told
    assert not [other for other in DURABLE if other != name and other in told]


@pytest.mark.parametrize("level", ["on", "local", "remote_write", "remote_apply"])
def test_a_server_that_flushes_will_do(level):
    database.refuse_forgetful({**DURABLE, "synchronous_commit": level})


async def test_the_forgetful_server_of_these_tests_is_refused_unless_that_is_wanted(database_url):
    told = await refusal(database_url, ServerNotDurable, durable=True)
    assert "ONWARD_REQUIRE_DURABLE" in told
    async with onward.open(settings_for(database_url)):
        assert (await create_command()).changed


async def test_a_connection_sees_the_schema_reads_committed_rows_and_lives_in_utc(pool):
    found = {
        name: await pool.fetchval("SELECT current_setting($1)", name)
        for name in ("search_path", "transaction_isolation", "timezone", "application_name")
    }
    assert found == {
        "search_path": "onward, public",
        "transaction_isolation": "read committed",
        "timezone": "UTC",
        "application_name": "onward",
    }


CALLS: list[Callable[[str], Awaitable[object]]] = [
    mark_command_ack,
    lambda cmd_id: create_command(cmd_id, type="again"),
    get_command,
    get_timeline,
    lambda _: expire_due(),
]


@pytest.mark.parametrize("call", CALLS, ids=["record", "create", "get", "timeline", "expire"])
async def test_a_backend_that_is_killed_under_a_call_is_one_sentence_and_the_next_call_works(
    opened, call
):
    """The call waits for a table that is locked when its backend is killed: forced."""
    cmd_id = state_of(await create_command()).cmd_id
    await mark_command_sent(cmd_id)
    async with opened.commands.pool.acquire() as holder, holder.transaction():
        await holder.execute("LOCK TABLE commands, timeline IN ACCESS EXCLUSIVE MODE")
        waiting = asyncio.ensure_future(call(cmd_id))
        await kill_blocked(holder, by=holder.get_server_pid())
        with pytest.raises(ServerUnreachable) as caught:
            async with asyncio.timeout(BOUND_S):
                await waiting
    told = str(caught.value)
    assert told.splitlines() == [told]
    await call(cmd_id)
    assert (await mark_command_ack(cmd_id)).result in {
        TransitionResult.OK,
        TransitionResult.DUPLICATE,
    }
    assert (await row_of(cmd_id))["status"] == "ACK"


async def test_everybody_who_waited_in_one_group_is_told_when_its_backend_is_killed(opened):
    ids = [
        state_of(answer).cmd_id
        for answer in await asyncio.gather(*(create_command() for _ in range(5)))
    ]
    async with opened.commands.pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT FROM commands FOR UPDATE")
        calls = [asyncio.ensure_future(mark_command_ack(cmd_id)) for cmd_id in ids]
        await kill_blocked(holder, by=holder.get_server_pid())
        told = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in told] == [ServerUnreachable] * 5
    # What was told is true: nothing was taken, and saying it again is safe.
    again = await asyncio.gather(*(mark_command_ack(cmd_id) for cmd_id in ids))
    assert [answer.result for answer in again] == [TransitionResult.OK] * 5


async def test_the_pool_recovers_when_every_connection_was_killed(opened, server_url):
    """Each connection may be found dead once; after that the calls go through."""
    async with AsyncExitStack() as all_of_them:
        for _ in range(opened.settings.pool_size):
            await all_of_them.enter_async_context(opened.commands.pool.acquire())
    admin = await asyncpg.connect(server_url)
    try:
        name = urlsplit(opened.database_url).path.lstrip("/")
        await admin.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", name
        )
    finally:
        await admin.close()
    for _ in range(opened.settings.pool_size + 1):
        try:
            answer = await create_command(new_command_id())
        except ServerUnreachable:
            continue
        assert answer.changed
        return
    pytest.fail("the pool did not recover")


@pytest.fixture
def second_url(server_url: str, template: str) -> Iterator[str]:
    """Another database on the same server."""
    with copied(server_url, template) as url:
        yield url


@pytest.mark.parametrize("may_know", [True, False], ids=["the server's number", "its name"])
async def test_a_database_has_one_identity_that_no_other_has(
    database_url: str, second_url: str, *, may_know: bool
):
    """Not every hoster lets everybody know the number of a server; then the name has to do."""

    async def identity(url: str) -> str:
        connection = await database.connect(url)
        try:
            if not may_know:
                await connection.execute(
                    "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC; "
                    "SET ROLE pg_signal_backend"
                )
            return await database.identity(connection)
        finally:
            await connection.close()

    found = await identity(database_url)
    assert found == await identity(database_url)
    assert found != await identity(second_url)
    assert ("onward_test" in found) != may_know
