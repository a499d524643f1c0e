"""Hosts are imported whole, changed by whoever saw them last, and deleted only without a past."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from onward.core.selectors import parse
from onward.errors import InvalidInput
from onward.store import hosts, jobs
from onward.store.database import Connection, Pool
from onward.store.hosts import Changed, CommandType, Host, HostOutcome, Imported, NewHost, Ruled
from onward.store.jobs import NewJob, Submitted
from tests.present import TESTER, block, unblock
from tests.proof_table import Tried

BOUND_S = 30.0
WEB = {"role": "web", "zone": "eu"}


def new(name: str, labels: dict[str, str] | None = None, address: str = "") -> NewHost:
    return NewHost(name, WEB if labels is None else labels, "simulated", address)


async def made(pool: Pool, name: str = "h1", labels: dict[str, str] | None = None) -> Host:
    host = await hosts.create(pool, new(name, labels), by=TESTER)
    assert host is not None
    return host


async def fleet(pool: Pool) -> dict[str, Host]:
    return {host.name: host for host in await hosts.page(pool, after=0, limit=1_000)}


async def submitted(pool: Pool, external_id: str = "one", selector: object = "all") -> Submitted:
    return await jobs.submit(pool, NewJob(external_id, "PING", "{}", parse(selector)))


async def until_waiting(watcher: Connection, count: int) -> None:
    """Return when so many sessions of this database wait for a lock; not for ever."""
    async with asyncio.timeout(BOUND_S):
        while count != await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND cardinality(pg_blocking_pids(pid)) > 0"
        ):
            pass  # every query gives the loop a turn


# Importing.


async def test_an_import_makes_changes_and_leaves_alone(pool: Pool):
    first = await hosts.import_all(pool, [new("a"), new("b"), new("c")], by=TESTER)
    assert first == Imported(created=3, changed=0, unchanged=0)
    before = await fleet(pool)
    again = await hosts.import_all(pool, [new("d"), new("b", {"role": "db"}), new("a")], by=TESTER)
    assert again == Imported(created=1, changed=1, unchanged=1)
    after = await fleet(pool)
    assert (after["a"], after["c"]) == (before["a"], before["c"])
    assert (after["b"].version, after["b"].labels) == (2, {"role": "db"})
    assert after["b"].host_id == before["b"].host_id
    assert list(after) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "other",
    [
        NewHost("a", {"role": "db"}, "simulated", ""),
        NewHost("a", WEB, "ssh", ""),
        NewHost("a", WEB, "simulated", "10.0.0.1:22"),
    ],
    ids=["labels", "channel", "address"],
)
async def test_whatever_differs_is_brought_up_to_date(pool: Pool, other: NewHost):
    await made(pool, "a")
    assert await hosts.import_all(pool, [other], by=TESTER) == Imported(0, 1, 0)
    assert await hosts.import_all(pool, [other], by=TESTER) == Imported(0, 0, 1)
    host = (await fleet(pool))["a"]
    assert NewHost(host.name, host.labels, host.channel, host.address) == other
    assert host.version == 2


async def test_labels_in_another_order_are_the_same_labels(pool: Pool):
    await made(pool, "a", {"x": "1", "y": "2"})
    assert (
        await hosts.import_all(pool, [new("a", {"y": "2", "x": "1"})], by=TESTER)
    ).unchanged == 1


async def test_an_import_does_not_enable_a_host(pool: Pool):
    host = await made(pool, "a")
    await hosts.change(pool, host.host_id, version=1, state="DISABLED", by=TESTER)
    await hosts.import_all(pool, [new("a", {"role": "db"})], by=TESTER)
    assert (await fleet(pool))["a"].state == "DISABLED"


async def test_an_import_of_nothing_does_nothing(pool: Pool):
    assert await hosts.import_all(pool, [], by=TESTER) == Imported(0, 0, 0)


async def test_an_import_that_cannot_be_stored_as_a_whole_is_not_stored_in_part(pool: Pool):
    with pytest.raises(asyncpg.CheckViolationError):
        await hosts.import_all(pool, [new("a"), new("b", address="x" * 1_025)], by=TESTER)
    assert await fleet(pool) == {}


async def test_an_import_of_many_thousand_hosts_is_one_statement(
    pool: Pool, tried: Tried, *, proof: bool
):
    count = 100_000 if proof else 5_000
    wanted = [new(f"h{n}", {"n": str(n)}) for n in range(count)]
    assert await hosts.import_all(pool, wanted, by=TESTER) == Imported(count, 0, 0)
    assert await hosts.import_all(pool, wanted[::-1], by=TESTER) == Imported(0, 0, count)
    tried("hosts imported in one statement, twice", count, "made once, then left alone")


@pytest.mark.parametrize("known", [True, False], ids=["known hosts", "new hosts"])
async def test_two_imports_in_opposite_order_do_not_wait_in_a_circle(pool: Pool, *, known: bool):
    """Both are held up at the middle host, after the one that each was given first."""
    if known:
        await hosts.import_all(pool, [new(name) for name in "amz"], by=TESTER)
    else:
        await made(pool, "m")
    one = [new(name, {"from": "one"}) for name in "amz"]
    two = [new(name, {"from": "two"}) for name in "zma"]
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts WHERE name = 'm' FOR UPDATE")
            first = asyncio.create_task(hosts.import_all(pool, one, by=TESTER))
            await until_waiting(watcher, 1)
            second = asyncio.create_task(hosts.import_all(pool, two, by=TESTER))
            await until_waiting(watcher, 2)
        answers = await first, await second
    assert answers == ((0, 3, 0) if known else (2, 1, 0), (0, 3, 0))
    assert [host.labels for host in (await fleet(pool)).values()] == [{"from": "two"}] * 3


async def test_two_imports_at_once_leave_what_one_of_them_wanted(pool: Pool):
    """The first finds nothing to change in `a`, and still the second does not slip past it."""
    await hosts.import_all(pool, [new("a", {"from": "one"}), new("b"), new("c")], by=TESTER)
    one = [new(name, {"from": "one"}) for name in "abc"]
    two = [new(name, {"from": "two"}) for name in "ac"]
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts WHERE name = 'b' FOR UPDATE")
            first = asyncio.create_task(hosts.import_all(pool, one, by=TESTER))
            await until_waiting(watcher, 1)
            second = asyncio.create_task(hosts.import_all(pool, two, by=TESTER))
            await until_waiting(watcher, 2)
        assert (await first, await second) == (Imported(0, 2, 1), Imported(0, 2, 0))
    after = await fleet(pool)
    assert [after[name].labels["from"] for name in "abc"] == ["two", "one", "two"]


# One host.


async def test_a_host_is_what_it_was_made_as(pool: Pool):
    host = await hosts.create(pool, NewHost("h1", {"née": 'x"\\'}, "ssh", "[::1]:22"), by=TESTER)
    assert host is not None
    assert host == await hosts.get(pool, host.host_id)
    assert (host.name, host.labels, host.channel) == ("h1", {"née": 'x"\\'}, "ssh")
    assert (host.address, host.state, host.version) == ("[::1]:22", "ACTIVE", 1)
    assert host.created_at == host.updated_at


async def test_a_name_that_is_taken_makes_no_second_host(pool: Pool):
    host = await made(pool)
    assert await hosts.create(pool, new("h1", {"role": "db"}), by=TESTER) is None
    assert await fleet(pool) == {"h1": host}


async def test_a_host_that_is_not_there_is_none(pool: Pool):
    assert await hosts.get(pool, 1) is None


async def test_pages_follow_each_other_and_leave_nobody_out(pool: Pool):
    await hosts.import_all(pool, [new(f"h{n}") for n in range(7)], by=TESTER)
    names: list[str] = []
    after = 0
    while found := await hosts.page(pool, after=after, limit=3):
        names += [host.name for host in found]
        after = found[-1].host_id
    assert sorted(names) == [f"h{n}" for n in range(7)]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("all", ["h0", "h1", "h2", "h3"]),
        ("role=web", ["h0", "h2"]),
        ("role=db and name!=h1", ["h3"]),
        (["h3", "h0"], ["h0", "h3"]),
    ],
)
async def test_a_page_holds_only_who_is_selected(pool: Pool, selector: object, names: list[str]):
    for n in range(4):
        await made(pool, f"h{n}", {"role": ("web", "db")[n % 2]})
    found = await hosts.page(pool, parse(selector), after=0, limit=9)
    assert [host.name for host in found] == names
    rest = await hosts.page(pool, parse(selector), after=found[0].host_id, limit=1)
    assert [host.name for host in rest] == names[1:2]
    assert await hosts.count(pool, parse(selector)) == len(names)


async def test_a_change_changes_what_it_names_and_nothing_else(pool: Pool):
    host = await made(pool)
    changed = await hosts.change(pool, host.host_id, version=1, address="10.0.0.9", by=TESTER)
    assert changed.outcome is HostOutcome.CHANGED
    assert changed.host == await hosts.get(pool, host.host_id)
    assert changed.host is not None
    assert (changed.host.address, changed.host.labels, changed.host.version) == ("10.0.0.9", WEB, 2)
    emptied = await hosts.change(pool, host.host_id, version=2, labels={}, address="", by=TESTER)
    assert emptied.host is not None
    assert (emptied.host.labels, emptied.host.address, emptied.host.channel) == (
        {},
        "",
        "simulated",
    )
    moved = await hosts.change(
        pool, host.host_id, version=3, channel="ssh", state="DISABLED", by=TESTER
    )
    assert moved.host is not None
    assert (moved.host.channel, moved.host.state, moved.host.version) == ("ssh", "DISABLED", 4)


async def test_a_change_of_another_version_is_stale_and_says_how_the_host_is_now(pool: Pool):
    host = await made(pool)
    now = (await hosts.change(pool, host.host_id, version=1, channel="ssh", by=TESTER)).host
    for version in (0, 1, 3):
        late = await hosts.change(pool, host.host_id, version=version, channel="mqtt", by=TESTER)
        assert late == Changed(HostOutcome.STALE, now)


async def test_a_change_of_nobody_is_unknown(pool: Pool):
    changed = await hosts.change(pool, 1, version=1, channel="ssh", by=TESTER)
    assert changed == Changed(HostOutcome.UNKNOWN_HOST, None)


async def test_of_two_changes_of_one_version_one_wins(pool: Pool):
    """Both are waiting for the row, one behind the other, when it becomes free."""
    host = await made(pool)
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts FOR UPDATE")
            first = asyncio.create_task(
                hosts.change(pool, host.host_id, version=1, address="first", by=TESTER)
            )
            await until_waiting(watcher, 1)
            second = asyncio.create_task(
                hosts.change(pool, host.host_id, version=1, address="second", by=TESTER)
            )
            await until_waiting(watcher, 2)
        won, lost = await first, await second
    assert (won.outcome, lost.outcome) == (HostOutcome.CHANGED, HostOutcome.STALE)
    assert won.host == lost.host == await hosts.get(pool, host.host_id)
    assert won.host is not None
    assert (won.host.address, won.host.version) == ("first", 2)


async def test_a_disabled_host_is_in_no_new_job(pool: Pool):
    host = await made(pool, "h1")
    await made(pool, "h2")
    await hosts.change(pool, host.host_id, version=1, state="DISABLED", by=TESTER)
    assert (await submitted(pool)).total == 1
    with pytest.raises(InvalidInput, match="no such hosts: h1"):
        await submitted(pool, "two", ["h1"])


# Deleting.


async def test_a_host_without_a_past_goes_with_its_blocks(pool: Pool):
    host = await made(pool)
    await block(pool, host.host_id, "PING")
    gone = await hosts.delete(pool, host.host_id, version=2, by=TESTER)
    assert gone == Changed(HostOutcome.DELETED, None)
    assert await hosts.get(pool, host.host_id) is None
    assert await hosts.blocks_page(pool, limit=10) == []
    again = await hosts.delete(pool, host.host_id, version=1, by=TESTER)
    assert again == Changed(HostOutcome.UNKNOWN_HOST, None)


async def test_a_host_with_a_past_stays(pool: Pool):
    host = await made(pool)
    await submitted(pool)
    kept = await hosts.delete(pool, host.host_id, version=1, by=TESTER)
    assert kept == Changed(HostOutcome.IN_USE, host)


async def test_a_host_that_has_changed_is_not_deleted_by_who_saw_it_before(pool: Pool):
    host = await made(pool)
    now = (await hosts.change(pool, host.host_id, version=1, address="elsewhere", by=TESTER)).host
    assert await hosts.delete(pool, host.host_id, version=1, by=TESTER) == Changed(
        HostOutcome.STALE, now
    )


async def test_a_host_that_a_job_is_being_made_for_is_not_deleted(pool: Pool):
    """The job has chosen the host, and has not written its executions, when the deletion begins."""
    host = await made(pool)
    async with pool.acquire() as holder, pool.acquire() as watcher:
        other = holder.transaction()
        await other.start()
        # Whoever submits under the same external id waits to see what becomes of this one.
        await holder.execute(
            "INSERT INTO jobs (external_id, command_type, params, selector, read_only, timeout_s, "
            "max_retries, total) VALUES ('one', 'PING', '{}', '{}', true, 5, 0, 1)"
        )
        job = asyncio.create_task(submitted(pool))
        await until_waiting(watcher, 1)
        deletion = asyncio.create_task(hosts.delete(pool, host.host_id, version=1, by=TESTER))
        await until_waiting(watcher, 2)
        await other.rollback()
        assert (await job).total == 1
        assert await deletion == Changed(HostOutcome.IN_USE, host)


async def test_a_job_that_comes_while_a_host_is_deleted_does_not_find_it(pool: Pool):
    """The job waits until the deletion is through, and then chooses."""
    host = await made(pool, "gone")
    await made(pool, "kept")
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts WHERE name = 'gone' FOR UPDATE")
            deletion = asyncio.create_task(hosts.delete(pool, host.host_id, version=1, by=TESTER))
            await until_waiting(watcher, 1)
            job = asyncio.create_task(submitted(pool))
            await until_waiting(watcher, 2)
        assert (await deletion).outcome is HostOutcome.DELETED
        assert (await job).total == 1


# Blocks.


async def test_a_block_stands_until_it_is_taken_back(pool: Pool):
    host = await made(pool)
    ruled = await block(pool, host.host_id, "DEPLOY", reason="moving", owner="ann")
    made_ = ruled.block
    assert made_ is not None
    assert (ruled.outcome, ruled.version) == (HostOutcome.CHANGED, 2)
    assert await hosts.blocks_of(pool, host.host_id) == [made_]
    assert (made_.host_id, made_.host_name) == (host.host_id, "h1")
    assert (made_.command_type, made_.reason, made_.owner) == ("DEPLOY", "moving", "ann")
    assert (made_.expires_at, made_.in_force) == (None, True)
    assert await unblock(pool, host.host_id, "PING") == Ruled(HostOutcome.NOT_BLOCKED, 2)
    assert await unblock(pool, host.host_id, "DEPLOY") == Ruled(HostOutcome.CHANGED, 3)
    assert await unblock(pool, host.host_id, "DEPLOY") == Ruled(HostOutcome.NOT_BLOCKED, 3)
    assert await hosts.blocks_of(pool, host.host_id) == []


async def test_whoever_saw_the_host_before_neither_blocks_nor_lifts(pool: Pool):
    host = await made(pool)
    await block(pool, host.host_id, "PING", reason="a")
    rule: dict[str, Any] = {"reason": "b", "owner": "", "expires_at": None}
    for late in (
        await hosts.block(pool, host.host_id, "PING", version=1, **rule, by=TESTER),
        await hosts.block(pool, host.host_id, "DEPLOY", version=3, **rule, by=TESTER),
        await hosts.unblock(pool, host.host_id, "PING", version=1, by=TESTER),
    ):
        assert late == Ruled(HostOutcome.STALE, 2)
    (left,) = await hosts.blocks_of(pool, host.host_id)
    assert (left.command_type, left.reason) == ("PING", "a")


async def test_a_rule_for_many_hosts_gives_those_a_version_that_it_changes(pool: Pool):
    one, two, other = [await made(pool, name) for name in ("h1", "h2", "other")]
    chosen = parse(["h1", "h2"])
    await hosts.block_chosen(pool, chosen, "PING", reason="", owner="", expires_at=None, by=TESTER)
    assert await versions(pool, one, two, other) == [2, 2, 1]
    await unblock(pool, one.host_id, "PING")
    await hosts.lift_chosen(pool, parse("all"), "PING", by=TESTER)
    assert await versions(pool, one, two, other) == [3, 3, 1]


async def test_of_a_block_and_a_change_that_saw_one_version_one_wins(pool: Pool):
    """Both are at the row while it is held; whoever comes second finds another version."""
    host = await made(pool)
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts FOR UPDATE")
            first = asyncio.create_task(
                hosts.change(pool, host.host_id, version=1, address="x", by=TESTER)
            )
            await until_waiting(watcher, 1)
            second = asyncio.create_task(block(pool, host.host_id, "PING"))
            await until_waiting(watcher, 2)
        assert (await first).outcome is HostOutcome.CHANGED
        assert await second == Ruled(HostOutcome.STALE, 2)
    assert await hosts.blocks_of(pool, host.host_id) == []


async def test_an_import_and_a_rule_for_many_hosts_do_not_wait_in_a_circle(pool: Pool):
    """The names are in another order than the ids: whoever goes by the other one meets them."""
    for name in ("c", "b", "a"):
        await made(pool, name)
    wanted = [NewHost(name, {"x": "y"}, "simulated", "") for name in ("a", "b", "c")]
    rule: dict[str, Any] = {"reason": "", "owner": "", "expires_at": None}
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("SELECT FROM hosts WHERE name = 'b' FOR UPDATE")
            first = asyncio.create_task(hosts.import_all(pool, wanted, by=TESTER))
            await until_waiting(watcher, 1)
            second = asyncio.create_task(
                hosts.block_chosen(pool, parse("all"), "PING", **rule, by=TESTER)
            )
            await until_waiting(watcher, 2)
        assert (await first).changed == 3
        assert (await second).hosts == 3


async def versions(pool: Pool, *of: Host) -> list[int]:
    """The versions that hosts have now."""
    found = [await hosts.get(pool, host.host_id) for host in of]
    return [host.version for host in found if host]


async def test_a_second_block_takes_the_place_of_the_first(pool: Pool):
    host = await made(pool)
    soon = datetime.now(UTC) + timedelta(days=1)
    await block(pool, host.host_id, "PING", reason="a", owner="ann")
    ruled = await block(pool, host.host_id, "PING", reason="b", owner="bob", expires_at=soon)
    second = ruled.block
    assert second is not None
    assert (second.reason, second.owner, second.expires_at) == ("b", "bob", soon)
    assert await hosts.blocks_of(pool, host.host_id) == [second]


async def test_a_block_that_has_expired_is_shown_as_no_longer_in_force(pool: Pool):
    host = await made(pool)
    past = datetime.now(UTC) - timedelta(days=1)
    old = (await block(pool, host.host_id, "PING", expires_at=past)).block
    assert old is not None
    assert old.in_force is False
    assert await hosts.blocks_of(pool, host.host_id) == [old]


async def test_nobody_is_blocked_on_a_host_that_is_not_there(pool: Pool):
    rule: dict[str, Any] = {"reason": "", "owner": "", "expires_at": None}
    nobody = Ruled(HostOutcome.UNKNOWN_HOST, None)
    assert await hosts.block(pool, 1, "PING", version=1, **rule, by=TESTER) == nobody
    assert await hosts.unblock(pool, 1, "PING", version=1, by=TESTER) == nobody


async def test_a_host_that_is_deleted_while_it_is_blocked_is_not_there(pool: Pool):
    host = await made(pool)
    async with pool.acquire() as holder, pool.acquire() as watcher:
        async with holder.transaction():
            await holder.execute("DELETE FROM hosts")
            late = asyncio.create_task(block(pool, host.host_id, "PING"))
            await until_waiting(watcher, 1)
        assert await late == Ruled(HostOutcome.UNKNOWN_HOST, None)


async def test_pages_of_blocks_follow_each_other_across_hosts(pool: Pool):
    wanted = []
    for name in ("h1", "h2"):
        host = await made(pool, name)
        for command_type in ("C", "A", "B"):
            await block(pool, host.host_id, command_type)
        wanted += [(name, "A"), (name, "B"), (name, "C")]
    found: list[tuple[str, str]] = []
    after = (0, "")
    while blocks := await hosts.blocks_page(pool, after=after, limit=2):
        found += [(block.host_name, block.command_type) for block in blocks]
        after = (blocks[-1].host_id, blocks[-1].command_type)
    assert found == wanted


# Command types.


async def test_a_command_type_is_put_changed_and_deleted(pool: Pool):
    names = [found.name for found in await hosts.types(pool)]
    assert names == ["DEPLOY", "PING", "RESTART_SERVICE", "RUN_SCRIPT"]
    careful = CommandType("A", needs_approval=True, read_only=False, timeout_s=5.0, max_retries=0)
    bold = CommandType("A", needs_approval=False, read_only=True, timeout_s=9.5, max_retries=7)
    for wanted in (careful, bold):
        put = await hosts.put_type(
            pool,
            wanted.name,
            needs_approval=wanted.needs_approval,
            read_only=wanted.read_only,
            timeout_s=wanted.timeout_s,
            max_retries=wanted.max_retries,
            by=TESTER,
        )
        assert put.type == wanted == await hosts.get_type(pool, "A")
    assert [found.name for found in await hosts.types(pool)] == ["A", *names]
    assert await hosts.delete_type(pool, "A", by=TESTER) is True
    assert await hosts.delete_type(pool, "A", by=TESTER) is False
    assert await hosts.get_type(pool, "A") is None


async def test_a_job_outlives_its_command_type(pool: Pool):
    """It has taken what it needs; only new ones are refused."""
    await made(pool)
    job = await submitted(pool)
    assert await hosts.delete_type(pool, "PING", by=TESTER) is True
    assert len(await jobs.plan(pool, job.job_id, batch=10)) == 1
    assert (await submitted(pool)).duplicate
    with pytest.raises(InvalidInput, match="'PING' is not one of"):
        await submitted(pool, "two")
