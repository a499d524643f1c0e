"""The deeds that races are made of: what a job is when they begin, and what whoever acts is told.

A deed is a function of the scene and a pool; it returns in a few words what came of it. `Hand` is a
connection that passes for a pool, so that deeds which open transactions of their own can be held
inside of one that the race ends when it likes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, cast

from onward.core.selectors import parse
from onward.errors import InvalidInput, JobConflict
from onward.fleet.retry import retry_failed
from onward.store import executions, hosts, jobs, workers
from onward.store.database import Connection, Pool
from onward.store.executions import EXECUTIONS, ExecutionEvent
from onward.store.jobs import Decision, NewJob
from tests.present import TESTER

if TYPE_CHECKING:
    import asyncpg

_numbers = count(1)


class Hand:
    """A connection that store functions take for a pool: all that is done is done on this one."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self.connection = connection
        self.pid = connection.get_server_pid()
        self.fetch = connection.fetch
        self.fetchrow = connection.fetchrow
        self.fetchval = connection.fetchval
        self.execute = connection.execute

    def acquire(self) -> AbstractAsyncContextManager[Connection]:
        return nullcontext(self.connection)

    @property
    def pool(self) -> Pool:
        return cast("Pool", self)


@dataclass
class Scene:
    """One job on two hosts of its own."""

    pool: Pool
    name: str
    host_ids: list[int]
    job_id: int = 0
    ids: tuple[int, ...] = ()
    epoch: int = 0  # of the first execution, once it runs
    worker: int = 0
    before: tuple[int, int] = (0, 0)  # what runs on the first host, of another job, and its epoch

    async def submitted(self, command_type: str) -> None:
        made = await jobs.submit(self.pool, self.asked(self.name, command_type))
        self.job_id = made.job_id
        rows = await self.pool.fetch(
            "SELECT id FROM executions WHERE job_id = $1 ORDER BY id", self.job_id
        )
        self.ids = tuple(row["id"] for row in rows)

    def asked(self, external_id: str, command_type: str = "noop", params: str = "{}") -> NewJob:
        selector = parse(f"of={self.name}")
        return NewJob(external_id, command_type, params, selector, requested_by="ann")


# Where a pair begins

Build = Callable[[Pool], Awaitable[Scene]]


async def with_hosts(pool: Pool) -> Scene:
    name = f"deeds-{next(_numbers)}"
    rows = await pool.fetch(
        "INSERT INTO hosts (name, labels) "
        "SELECT $1 || '-' || n, jsonb_build_object('of', $1::text) "
        "FROM generate_series(1, 2) AS n RETURNING id",
        name,
    )
    return Scene(pool, name, [row["id"] for row in rows])


async def waiting_for_approval(pool: Pool) -> Scene:
    scene = await with_hosts(pool)
    await scene.submitted("deploy")
    return scene


async def unplanned(pool: Pool) -> Scene:
    scene = await with_hosts(pool)
    await scene.submitted("noop")
    return scene


async def queued(pool: Pool) -> Scene:
    scene = await unplanned(pool)
    await jobs.plan(pool, scene.job_id, batch=10)
    scene.worker = await workers.register(pool, scene.name)
    return scene


async def running(pool: Pool) -> Scene:
    """The first execution runs; the second has ended, and is of no concern here."""
    scene = await queued(pool)
    claimed, _ = await executions.claim(pool, scene.ids, worker_id=scene.worker, grace_s=60)
    first, second = sorted(claimed)
    done = ExecutionEvent(second.execution_id, "succeed", second.epoch)
    await EXECUTIONS.record_all(pool, [done], batch_max=1)
    scene.epoch = first.epoch
    return scene


async def abandoned(pool: Pool) -> Scene:
    scene = await running(pool)
    await workers.leave(pool, scene.worker)
    return scene


async def failed(pool: Pool) -> Scene:
    scene = await running(pool)
    await say("fail")(scene, pool)
    return scene


async def next_in_line(pool: Pool) -> Scene:
    """The job is queued, and its first host is busy with another."""
    scene = await with_hosts(pool)
    scene.worker = await workers.register(pool, scene.name)
    other = scene.asked(f"{scene.name}-before")._replace(selector=parse([f"{scene.name}-1"]))
    before = await jobs.submit(pool, other)
    await jobs.plan(pool, before.job_id, batch=10)
    wanted = await pool.fetchval("SELECT id FROM executions WHERE job_id = $1", before.job_id)
    (claimed,), _ = await executions.claim(pool, [wanted], worker_id=scene.worker, grace_s=60)
    scene.before = (claimed.execution_id, claimed.epoch)
    await scene.submitted("noop")
    await jobs.plan(pool, scene.job_id, batch=10)
    return scene


# What is done: a deed returns in few words what whoever did it was told

Deed = Callable[[Scene, Pool], Awaitable[str]]


def decide(state: Decision, by: str) -> Deed:
    async def deed(scene: Scene, pool: Pool) -> str:
        told = await jobs.decide(pool, scene.job_id, version=1, state=state, by=by, reason="seen")
        assert told is not None
        if told.decided:
            return state
        if told.cancelled:
            return "refused: cancelled"
        if told.approval_state == "WAIT_APPROVAL":
            return f"refused: it is version {told.version} now"
        return f"refused: {told.approval_state} by {told.decided_by}"

    return deed


def edit(by: str) -> Deed:
    async def deed(scene: Scene, pool: Pool) -> str:
        told = await jobs.edit(pool, scene.job_id, version=1, by=by, params='{"edited": true}')
        assert told is not None
        if told.edited:
            return "edited"
        if told.approval_state == "WAIT_APPROVAL":
            return f"refused: it is version {told.version} now"
        return f"refused: {told.approval_state}"

    return deed


async def cancel(scene: Scene, pool: Pool) -> str:
    return await jobs.cancel(pool, scene.job_id, by="ann")


async def pause(scene: Scene, pool: Pool) -> str:
    done = await jobs.pause(pool, scene.job_id, version=1, paused=True, by="ann")
    return "paused" if done is not None and done.changed else "refused: nothing to hold back"


async def plan(scene: Scene, pool: Pool) -> str:
    return f"planned {len(await jobs.plan(pool, scene.job_id, batch=10))}"


async def claim(scene: Scene, pool: Pool) -> str:
    claimed, blocked = await executions.claim(pool, scene.ids, worker_id=scene.worker, grace_s=60)
    return f"claimed {len(claimed)}, blocked {len(blocked)}"


async def hand_over(scene: Scene, pool: Pool) -> str:
    """End what ran on the first host, and claim what is next there in the same commit."""
    key, epoch = scene.before
    done = ExecutionEvent(key, "succeed", epoch, "worker")
    claimed = await executions.report_and_claim(
        pool, [done], (), hosts=scene.host_ids[:1], worker_id=scene.worker, grace_s=60
    )
    ended = await pool.fetchval("SELECT finished_at IS NOT NULL FROM executions WHERE id = $1", key)
    return f"ended {int(ended)}, claimed {len(claimed)}"


def say(event: str) -> Deed:
    """What the worker of the first execution reports, with the epoch of its attempt."""

    async def deed(scene: Scene, pool: Pool) -> str:
        said = ExecutionEvent(scene.ids[0], event, scene.epoch, "worker")
        (answer,) = await executions.report(pool, [said], ())
        return answer.result.value

    return deed


finish, stopped, retry_later = say("succeed"), say("cancel"), say("retry")


async def rescue(scene: Scene, pool: Pool) -> str:
    rescued = await executions.rescue(pool, lost_after_s=600, limit=1_000)
    return f"rescued {len(set(scene.ids) & set(rescued))}"


async def block(scene: Scene, pool: Pool) -> str:
    ruled = await hosts.block(
        pool,
        scene.host_ids[0],
        "noop",
        version=1,
        reason="full",
        owner="eve",
        expires_at=None,
        by=TESTER,
    )
    return "blocked" if ruled.block else "refused"


async def delete_host(scene: Scene, pool: Pool) -> str:
    return str((await hosts.delete(pool, scene.host_ids[0], version=1, by=TESTER)).outcome.value)


async def submit_by_names(scene: Scene, pool: Pool) -> str:
    names = [f"{scene.name}-1", f"{scene.name}-2"]
    job = scene.asked(f"{scene.name}-named")._replace(selector=parse(names))
    try:
        return f"made for {(await jobs.submit(pool, job)).total}"
    except InvalidInput as refused:
        return f"refused: {refused.problem.replace(scene.name, 'host')}"


def submit(params: str) -> Deed:
    async def deed(scene: Scene, pool: Pool) -> str:
        try:
            made = await jobs.submit(pool, scene.asked(f"{scene.name}-twice", params=params))
        except JobConflict as refused:
            return f"refused: another {refused.problem.rpartition(' ')[2]}"
        return "found" if made.duplicate else "made"

    return deed


async def retry_by_hand(scene: Scene, pool: Pool) -> str:
    retried = await retry_failed(pool, scene.job_id, by="ann")
    assert retried.made is not None
    return "found" if retried.made.duplicate else "made"


approve, reject = decide("APPROVED", "bob"), decide("REJECTED", "eve")
