"""What is next on a host begins in the commit that ends the run before it, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from onward.channels.base import Delivery, Output, Report
from onward.channels.simulated import Journal, Network, SimulatedChannel, SimulatedFleet
from onward.channels.simulated.journal import check_journal
from onward.engines.worker import Worker
from onward.errors import ServerUnreachable
from onward.store import executions, jobs
from onward.store.database import Pool
from onward.wiring import Onward
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_engine import BOUND_S, QUICK, replayed, until_settled, working

SIX = [str(number) for number in range(6)]


class Hosts:
    """Hosts that do as they are told, and remember the order in which they were asked."""

    def __init__(self, behave: Callable[[Delivery], object] | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self.running: dict[int, int] = {}
        self.most = 0
        self._behave = behave

    async def deliver(self, delivery: Delivery, _output: Output) -> Report:
        host_id = delivery.target.host_id
        self.asked.append((host_id, int(delivery.command_id)))
        self.running[host_id] = self.running.get(host_id, 0) + 1
        self.most = max(self.most, *self.running.values())
        try:
            await asyncio.sleep(0)
            if self._behave is not None:
                self._behave(delivery)
            return Report(succeeded=True, exit_code=0)
        finally:
            self.running[host_id] -= 1

    async def cancel(self, _delivery: Delivery) -> bool:
        return False


async def test_a_host_works_off_its_queue_in_order_and_one_at_a_time(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, monkeypatch
):
    pool, channel = opened.commands.pool, Hosts()
    hosts = await make_hosts(5)
    handed_over = 0
    report_and_claim = executions.report_and_claim

    async def counting(*args, **kwargs):
        nonlocal handed_over
        claimed = await report_and_claim(*args, **kwargs)
        handed_over += len(claimed)
        return claimed

    monkeypatch.setattr(executions, "report_and_claim", counting)
    for external_id in SIX:
        await submit(external_id)
    async with working(opened, channel, QUICK):
        await until_settled(pool)

    for host in hosts:
        asked = [execution for at, execution in channel.asked if at == host]
        assert asked == sorted(asked)
        assert len(asked) == len(SIX)
    assert channel.most == 1
    assert handed_over > 0
    await replayed(pool)
    await nothing_left(pool)


async def test_hosts_that_are_held_do_not_keep_the_others_waiting(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    """With room for two at a time, every host has had its turn before any has had two."""
    pool, channel = opened.commands.pool, Hosts()
    hosts = await make_hosts(10)
    for external_id in SIX:
        await submit(external_id)
    async with working(opened, channel, replace(QUICK, capacity=2)):
        await until_settled(pool)
    first_round = [host for host, _ in channel.asked[: len(hosts)]]
    assert sorted(first_round) == hosts


async def test_what_follows_may_be_blocked_or_shared(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool, journal = opened.commands.pool, Journal()
    hosts = await make_hosts(3)
    await submit("a")
    looked = await submit("b", "look")
    await pool.execute("INSERT INTO command_types (name) VALUES ('forbidden')")
    await pool.execute(
        "INSERT INTO host_command_blocks (host_id, command_type) SELECT id, 'forbidden' FROM hosts"
    )
    blocked = await submit("c", "forbidden")
    last = await submit("d")
    fleet = SimulatedFleet(hosts, journal=journal, command_types=None)
    async with working(opened, SimulatedChannel(fleet, Network.calm(1)), QUICK):
        await until_settled(pool)
    assert await jobs.counts(pool, blocked.job_id) == {"BLOCKED": 3}
    for job in (looked, last):
        assert await jobs.counts(pool, job.job_id) == {"SUCCESS": 3}
    assert check_journal(journal.lines()) == []
    await nothing_left(pool)


async def test_what_a_host_has_said_is_kept_while_the_server_is_away(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, monkeypatch
):
    pool, channel, failures = opened.commands.pool, Hosts(), 3
    await make_hosts(4)
    report, report_and_claim = executions.report, executions.report_and_claim

    def away(doing):
        async def fail_first(*args, **kwargs):
            nonlocal failures
            if failures:
                failures -= 1
                raise ServerUnreachable("away")
            return await doing(*args, **kwargs)

        return fail_first

    monkeypatch.setattr(executions, "report", away(report))
    monkeypatch.setattr(executions, "report_and_claim", away(report_and_claim))
    job = await submit()
    async with working(opened, channel, QUICK):
        await until_settled(pool)
    assert failures == 0
    assert await jobs.counts(pool, job.job_id) == {"SUCCESS": 4}
    assert len(channel.asked) == 4  # nobody was asked twice


async def test_what_waits_to_be_reported_is_not_handed_back_as_lost(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, monkeypatch
):
    """The worker looks for claims that it never heard of while a report cannot be written down."""
    pool, channel, away = opened.commands.pool, Hosts(), True
    await make_hosts(3)
    report = executions.report

    async def fail_while_away(pool, events, lines):
        if away and any(event.event == "succeed" for event in events):
            raise ServerUnreachable("away")
        return await report(pool, events, lines)

    async def report_alone(pool, events, lines, **_):
        await fail_while_away(pool, events, lines)
        return []

    looked = asyncio.Event()
    held_by = executions.held_by

    async def looking(*args, **kwargs):
        found = await held_by(*args, **kwargs)
        if len(found) == 3:
            asyncio.get_running_loop().call_later(0.2, looked.set)
        return found

    monkeypatch.setattr(executions, "report", fail_while_away)
    monkeypatch.setattr(executions, "report_and_claim", report_alone)
    monkeypatch.setattr(executions, "held_by", looking)
    # Every time that the reaper comes round, it has reason to look.
    monkeypatch.setattr(Worker, "look_back", _always_in_doubt(Worker.look_back))
    await submit()
    async with working(opened, channel, replace(QUICK, lost_after_s=0.2, beat_s=0.05)):
        await asyncio.wait_for(looked.wait(), BOUND_S)
        away = False
        await until_settled(pool)
    rows = await pool.fetch("SELECT status, attempt, retries FROM executions")
    assert [tuple(row) for row in rows] == [("SUCCESS", 1, 0)] * 3
    assert len(channel.asked) == 3


def _always_in_doubt(look: Callable[[Worker], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def doubting(worker: Worker) -> None:
        worker._doubt_at = 1e-9
        await look(worker)

    return doubting


async def test_a_claim_whose_answer_was_lost_is_handed_back_and_costs_nothing(
    opened: Onward, make_hosts: MakeHosts, submit: Submit, monkeypatch
):
    pool, channel, lost = opened.commands.pool, Hosts(), False
    await make_hosts(3)
    claim = executions.claim

    async def lose_the_first(*args, **kwargs):
        nonlocal lost
        answer = await claim(*args, **kwargs)
        if not lost:
            lost = True
            raise ServerUnreachable("cut after the COMMIT")
        return answer

    monkeypatch.setattr(executions, "claim", lose_the_first)
    await submit()
    async with working(opened, channel, replace(QUICK, lost_after_s=0.2, beat_s=0.05)):
        await until_settled(pool)
    rows = await pool.fetch("SELECT status, attempt, retries FROM executions")
    assert [tuple(row) for row in rows] == [("SUCCESS", 1, 0)] * 3


async def test_a_channel_that_breaks_is_reported_and_the_others_go_on(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    pool = opened.commands.pool
    one, *others = await make_hosts(4)
    await pool.execute("UPDATE command_types SET max_retries = 1 WHERE name = 'noop'")

    def behave(delivery: Delivery) -> None:
        if delivery.target.host_id == one:
            raise ZeroDivisionError

    job = await submit()
    async with working(opened, Hosts(behave), QUICK):
        await until_settled(pool)
    assert await jobs.counts(pool, job.job_id) == {"TIMEOUT": 1, "SUCCESS": len(others)}
    assert await pool.fetchval("SELECT cause FROM executions WHERE host_id = $1", one) == (
        "DELIVERY_UNKNOWN"
    )


async def test_a_host_that_was_let_go_is_free_for_other_workers_at_once(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    """An idle worker holds nothing: no claim of its own has to come along first."""
    pool = opened.commands.pool
    await make_hosts(3)
    async with working(opened, Hosts(), QUICK):
        await submit()
        await until_settled(pool)
        async with asyncio.timeout(BOUND_S):
            while await pool.fetchval(  # noqa: ASYNC110 - the server has no event for it
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ):
                await asyncio.sleep(0.01)


async def test_a_host_that_does_not_answer_a_cancel_holds_up_nobody(
    opened: Onward, make_hosts: MakeHosts, submit: Submit
):
    """While one host thinks about it, the reaper still plans a job whose word was lost."""
    pool = opened.commands.pool
    stuck, _ = await make_hosts(2)
    asked = asyncio.Event()

    class Stuck(Hosts):
        async def deliver(self, delivery: Delivery, output: Output) -> Report:
            if delivery.target.host_id == stuck:
                await asyncio.Event().wait()
            return await super().deliver(delivery, output)

        async def cancel(self, _delivery: Delivery) -> bool:
            asked.set()
            return await asyncio.Event().wait()

    pace = replace(QUICK, grace_s=BOUND_S, drain_s=0.1)
    async with working(opened, Stuck(), pace):
        first = await submit("a", selector=["h1"])
        async with asyncio.timeout(BOUND_S):
            while await jobs.counts(pool, first.job_id) != {"RUNNING": 1}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await jobs.cancel(pool, first.job_id, by="ann")
            await asked.wait()
            second = await submit("b", selector=["h2"])
            await pool.execute("DELETE FROM outbox")
            while await jobs.counts(pool, second.job_id) != {"SUCCESS": 1}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_the_second_wall_refuses_a_claim_without_an_error(
    pool: Pool, make_hosts: MakeHosts, submit: Submit
):
    """The advisory locks are not taken here, as if the connection that holds them was cut."""
    await make_hosts(2)
    for external_id in ("a", "b"):
        await jobs.plan(pool, (await submit(external_id)).job_id, batch=10)
    ids = [row["id"] for row in await pool.fetch("SELECT id FROM executions ORDER BY id")]
    claimed, _ = await executions.claim(pool, ids[:2], worker_id=1, grace_s=1)
    assert len(claimed) == 2
    assert await executions.claim(pool, ids[2:], worker_id=2, grace_s=1) == ([], [])


async def nothing_left(pool: Pool) -> None:
    """What waits and what runs is in tables of its own, and nothing stays behind in them."""
    assert await pool.fetchval("SELECT count(*) FROM queue") == 0
    assert await pool.fetchval("SELECT count(*) FROM runs") == 0
    failed = await pool.fetchval("SELECT count(*) FROM executions WHERE status <> 'SUCCESS'")
    assert await pool.fetchval("SELECT count(*) FROM failures") == failed
