"""A database in which a little of everything has happened, by the normal path."""

from __future__ import annotations

import json

import onward
from onward.commands import create_command, record_event
from onward.core.selectors import parse
from onward.store import executions, jobs, orders, outbox, workers
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, ExecutionEvent
from onward.store.jobs import NewJob
from tests.conftest import settings_for
from tests.trading.traders import Traders, endow

HOSTS = 6
_FAR_S = 36_000.0  # nothing is to become late while tests look at it


async def live_in(url: str) -> None:
    """Let jobs, commands and orders happen: begun, ended well and badly, waiting and refused."""
    async with onward.open(settings_for(url)) as opened:
        pool = opened.commands.pool
        await _run_jobs(pool)
        await _send_commands()
        await _trade(pool)
        while words := await outbox.claim(pool, limit=100, lease_s=60):
            await outbox.delete(pool, words)
        # The worker goes on breathing for as long as anybody looks.
        await pool.execute(
            "UPDATE workers SET beat_at = now() + interval '1 day', progress_at = beat_at"
        )
        await pool.execute("UPDATE workers SET progress_at = beat_at")


async def _run_jobs(pool: Pool) -> None:
    await pool.execute(
        "INSERT INTO hosts (name) SELECT 'h' || n FROM generate_series(1, $1) AS n", HOSTS
    )
    await pool.execute(
        "INSERT INTO command_types (name, needs_approval, read_only, timeout_s) "
        "VALUES ('noop', false, false, 3600), ('look', false, true, 3600), "
        "('deploy', true, false, 3600)"
    )
    worker = await workers.register(pool, "test:1")
    ended = await _submit(pool, "ended")
    await jobs.plan(pool, ended, batch=100)
    claimed, _ = await executions.claim(
        pool, await _of(pool, ended), worker_id=worker, grace_s=_FAR_S
    )
    first, second, third, fourth, *_ = claimed
    for run, event, data in (
        (first, "succeed", {"exit_code": 0}),
        (second, "fail", {"cause": "FAILED", "exit_code": 1}),
        (third, "timeout", {"cause": "TIMED_OUT"}),
        (third, "succeed", {"exit_code": 0}),  # too late, and kept
        (fourth, "retry", {"cause": "UNREACHABLE", "delay_s": _FAR_S, "costs": 1}),
    ):
        said = ExecutionEvent(run.execution_id, event, run.epoch, "test", json.dumps(data))
        await EXECUTIONS.record_all(pool, [said], batch_max=10)
    for name in ("waits", "limited", "cancelled"):
        job_id = await _submit(pool, name, max_concurrency=1 if name == "limited" else None)
        await jobs.plan(pool, job_id, batch=100)
        if name == "cancelled":
            await jobs.cancel(pool, job_id, by="ann")
    await jobs.finish_cancelling(pool, limit=10)
    shared = await _submit(pool, "shared", command_type="look", selector={"hostnames": ["h1"]})
    await jobs.plan(pool, shared, batch=100)
    await executions.claim(pool, await _of(pool, shared), worker_id=worker, grace_s=_FAR_S)
    await _submit(pool, "asks", command_type="deploy")
    for state in ("APPROVED", "REJECTED"):
        job_id = await _submit(pool, state.lower(), command_type="deploy")
        edited = await jobs.edit(pool, job_id, version=1, by="cyd", max_concurrency=2)
        assert edited is not None
        await jobs.decide(
            pool,
            job_id,
            version=edited.version,
            state="APPROVED" if state == "APPROVED" else "REJECTED",
            by="bob",
            reason="",
        )
        await jobs.plan(pool, job_id, batch=100)
    await pool.execute(
        "UPDATE jobs j SET finished_at = now() WHERE NOT EXISTS (SELECT FROM executions e "
        "WHERE e.job_id = j.id AND e.finished_at IS NULL)"
    )


async def _submit(
    pool: Pool,
    name: str,
    *,
    command_type: str = "noop",
    selector: object = "all",
    max_concurrency: int | None = None,
) -> int:
    wanted = NewJob(name, command_type, "{}", parse(selector), max_concurrency, "ann")
    return (await jobs.submit(pool, wanted)).job_id


async def _of(pool: Pool, job_id: int) -> list[int]:
    rows = await pool.fetch("SELECT id FROM executions WHERE job_id = $1 ORDER BY id", job_id)
    return [row["id"] for row in rows]


async def _send_commands() -> None:
    for lifecycle, *told in (
        ("node",),
        ("node", "send", "ack"),
        ("node", "send", "ack", "done"),
        ("node", "send_fail", "done"),  # too late, and kept
        ("node", "send_fail", "done", "send", "fail"),
        ("platform", "save", "send", "deliver"),
        ("platform", "save", "send", "deliver", "complete"),
    ):
        made = await create_command(lifecycle=lifecycle, node="pump", timeout_s=_FAR_S)
        assert made.record is not None
        for event in told:
            await record_event(made.record.cmd_id, event)


async def _trade(pool: Pool) -> None:
    await endow(pool, ["ann", "bob"], [1])
    traders = Traders(pool)
    await traders.place("ann", "buy", 100)
    await traders.place("bob", "sell", 95)
    assert (await orders.match(pool, limit=100, again_s=0.001)).deals == 1
    await traders.place("ann", "buy", 90)
    assert await traders.cancel(await traders.place("ann", "buy", 80))
    while await pool.fetchval("SELECT count(*) FROM arrivals"):
        await orders.match(pool, limit=100, again_s=0.001)
