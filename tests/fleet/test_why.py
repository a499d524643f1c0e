"""Every execution that has not ended has exactly one reason to be where it is, and it is true."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from onward.core.lifecycles import EXECUTION
from onward.fleet.report import OFFLINE
from onward.fleet.why import Reason, Why, why
from onward.store import browse, executions, jobs, workers
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, ExecutionEvent
from onward.store.jobs import Submitted
from tests.fleet.conftest import MakeHosts, Submit
from tests.fleet.test_claim import claim_all
from tests.present import pause
from tests.proof_table import Tried
from tests.races.soundness import unsound

LOST_AFTER_S = 60.0
NEW = str(EXECUTION.initial)
(QUEUED,) = map(str, EXECUTION.moves["claim"].sources)
RUNNING = str(EXECUTION.moves["claim"].target)
TERMINAL = [str(status) for status in EXECUTION.terminal]


async def explained(pool: Pool, execution_id: int) -> Why:
    row = await browse.why(pool, execution_id, lost_after_s=LOST_AFTER_S)
    assert row is not None
    return why(row)


@dataclass
class World:
    """A fleet in which every situation gets hosts and jobs of its own."""

    pool: Pool
    submit: Submit
    worker: int = 0
    jobs: int = 0
    hosts: int = 0

    async def host(self) -> str:
        self.hosts += 1
        name = f"why-{self.hosts}"
        await self.pool.execute("INSERT INTO hosts (name) VALUES ($1)", name)
        return name

    async def job(
        self, *hosts: str, command_type: str = "noop", max_concurrency: int | None = None
    ) -> Submitted:
        self.jobs += 1
        chosen = list(hosts) or [await self.host()]
        return await self.submit(
            f"why-{self.jobs}", command_type, selector=chosen, max_concurrency=max_concurrency
        )

    async def queued(
        self, *hosts: str, command_type: str = "noop", max_concurrency: int | None = None
    ) -> int:
        job = await self.job(*hosts, command_type=command_type, max_concurrency=max_concurrency)
        await jobs.plan(self.pool, job.job_id, batch=100)
        return await self.first(job)

    async def running(
        self, *hosts: str, command_type: str = "noop", worker: int | None = None
    ) -> int:
        execution_id = await self.queued(*hosts, command_type=command_type)
        await self.claim(execution_id, worker)
        return execution_id

    async def claim(self, execution_id: int, worker: int | None = None) -> int:
        """Claim one execution; returns its epoch."""
        claimed, _ = await executions.claim(
            self.pool, [execution_id], worker_id=worker or self.worker, grace_s=1
        )
        return claimed[0].epoch

    async def retry_in(self, execution_id: int, delay_s: int, cause: str = "UNREACHABLE") -> None:
        """Run an execution, and queue it again for later."""
        data = json.dumps({"delay_s": delay_s, "cause": cause})
        epoch = await self.claim(execution_id)
        again = ExecutionEvent(execution_id, "retry", epoch, "worker", data)
        await EXECUTIONS.record_all(self.pool, [again], batch_max=1)

    async def first(self, job: Submitted) -> int:
        query = "SELECT min(id) FROM executions WHERE job_id = $1"
        return int(await self.pool.fetchval(query, job.job_id))

    async def job_of(self, execution_id: int) -> int:
        query = "SELECT job_id FROM executions WHERE id = $1"
        return int(await self.pool.fetchval(query, execution_id))


Situation = Callable[[World], Awaitable[int]]


async def waiting_for_approval(world: World) -> int:
    return await world.first(await world.job(command_type="deploy"))


async def rejected(world: World) -> int:
    """As a reader may find it who looks between a crash of our making and the cancelling."""
    job = await world.job(command_type="deploy")
    await world.pool.execute(
        "UPDATE jobs SET approval_state = 'REJECTED', decided_by = 'bob' WHERE id = $1", job.job_id
    )
    return await world.first(job)


async def paused(world: World) -> int:
    execution_id = await world.queued()
    await pause(world.pool, await world.job_of(execution_id), paused=True)
    return execution_id


async def paused_before_it_was_planned(world: World) -> int:
    job = await world.job()
    await pause(world.pool, job.job_id, paused=True)
    return await world.first(job)


async def at_the_limit(world: World) -> int:
    first = await world.queued(await world.host(), await world.host(), max_concurrency=1)
    return first + 1


async def to_be_retried(world: World) -> int:
    execution_id = await world.queued()
    await world.retry_in(execution_id, 600)
    return execution_id


async def offline(world: World) -> int:
    execution_id = await world.queued()
    await world.retry_in(execution_id, 600, OFFLINE)
    return execution_id


async def blocked(world: World) -> int:
    host = await world.host()
    await world.pool.execute(
        "INSERT INTO host_command_blocks (host_id, command_type, reason, owner) "
        "SELECT id, 'noop', 'disk is full', 'eve' FROM hosts WHERE name = $1",
        host,
    )
    return await world.queued(host)


async def disabled(world: World) -> int:
    host = await world.host()
    execution_id = await world.queued(host)
    await world.pool.execute("UPDATE hosts SET state = 'DISABLED' WHERE name = $1", host)
    return execution_id


async def held(world: World) -> int:
    host = await world.host()
    await world.running(host)
    return await world.queued(host)


async def held_by_a_reader(world: World) -> int:
    host = await world.host()
    await world.running(host, command_type="look")
    return await world.queued(host)


async def behind(world: World) -> int:
    host = await world.host()
    await world.queued(host)
    return await world.queued(host)


async def behind_one_that_is_not_due(world: World) -> int:
    host = await world.host()
    await world.retry_in(await world.queued(host), 600)
    return await world.queued(host)


async def behind_one_that_is_paused(world: World) -> int:
    host = await world.host()
    first = await world.queued(host)
    await pause(world.pool, await world.job_of(first), paused=True)
    return await world.queued(host)


async def behind_one_that_is_cancelled(world: World) -> int:
    """It came back to the queue after its job was cancelled, and the reaper has not been there."""
    host = await world.host()
    first = await world.queued(host)
    epoch = await world.claim(first)
    await jobs.cancel(world.pool, await world.job_of(first), by="ann")
    again = ExecutionEvent(first, "retry", epoch)
    await EXECUTIONS.record_all(world.pool, [again], batch_max=1)
    return await world.queued(host)


async def to_be_planned(world: World) -> int:
    return await world.first(await world.job())


async def to_be_claimed(world: World) -> int:
    return await world.queued()


async def sharing(world: World) -> int:
    """What may share a host is not held by its like."""
    host = await world.host()
    await world.running(host, command_type="look")
    return await world.queued(host, command_type="look")


async def under_way(world: World) -> int:
    return await world.running()


async def overdue(world: World) -> int:
    execution_id = await world.running()
    await world.pool.execute(
        "UPDATE executions SET deadline_at = now() - interval '1 s' WHERE id = $1", execution_id
    )
    return execution_id


async def lost(world: World) -> int:
    gone = await workers.register(world.pool, "gone")
    execution_id = await world.running(worker=gone)
    await workers.leave(world.pool, gone)
    return execution_id


async def breathless(world: World) -> int:
    still = await workers.register(world.pool, "still")
    execution_id = await world.running(worker=still)
    await world.pool.execute(
        "UPDATE workers SET beat_at = now() - make_interval(secs => $2) WHERE id = $1",
        still,
        LOST_AFTER_S + 1,
    )
    return execution_id


async def cancelling(world: World) -> int:
    execution_id = await world.running()
    await jobs.cancel(world.pool, await world.job_of(execution_id), by="ann")
    return execution_id


async def ended(world: World) -> int:
    execution_id = await world.queued()
    done = ExecutionEvent(execution_id, "succeed", await world.claim(execution_id))
    await EXECUTIONS.record_all(world.pool, [done], batch_max=1)
    return execution_id


SITUATIONS: dict[Situation, tuple[Reason, str]] = {
    waiting_for_approval: (Reason.WAITING_FOR_APPROVAL, "waits for somebody's approval"),
    rejected: (Reason.TURNED_DOWN, "rejected by bob"),
    paused: (Reason.PAUSED, "is paused"),
    paused_before_it_was_planned: (Reason.PAUSED, "is paused"),
    at_the_limit: (Reason.CONCURRENCY_LIMIT, "as many under way as it may: 1"),
    to_be_retried: (Reason.NEXT_RETRY, "ended with UNREACHABLE"),
    offline: (Reason.HOST_OFFLINE, "why-.* is not connected"),
    blocked: (Reason.BLOCKED_BY_RULE, "eve has blocked noop on .*: disk is full"),
    disabled: (Reason.HOST_DISABLED, "is not active"),
    held: (Reason.HOST_HELD, "is held by execution"),
    held_by_a_reader: (Reason.HOST_HELD, "is held by execution"),
    behind: (Reason.BEHIND_ANOTHER, "came first"),
    behind_one_that_is_not_due: (Reason.TO_BE_CLAIMED, "next on its host"),
    behind_one_that_is_paused: (Reason.TO_BE_CLAIMED, "next on its host"),
    behind_one_that_is_cancelled: (Reason.TO_BE_CLAIMED, "next on its host"),
    to_be_planned: (Reason.TO_BE_PLANNED, "about to be queued"),
    to_be_claimed: (Reason.TO_BE_CLAIMED, "next on its host"),
    sharing: (Reason.TO_BE_CLAIMED, "next on its host"),
    under_way: (Reason.UNDER_WAY, "runs on why-.*, attempt 1"),
    overdue: (Reason.OVERDUE, "deadline has passed"),
    lost: (Reason.WORKER_LOST, "worker is gone"),
    breathless: (Reason.WORKER_LOST, "worker is gone"),
    cancelling: (Reason.CANCELLING, "cancelled by ann"),
    ended: (Reason.ENDED, "after 1 attempt"),
}


async def test_every_situation_has_its_own_reason(pool: Pool, submit: Submit, tried: Tried):
    world = World(pool, submit)
    for without_worker in (to_be_planned, to_be_claimed):
        found = await explained(pool, await without_worker(world))
        assert found.reason is Reason.NO_WORKER, without_worker.__name__
    world.worker = await workers.register(pool, "w")
    seen = {Reason.NO_WORKER}
    for situation, (reason, words) in SITUATIONS.items():
        found = await explained(pool, await situation(world))
        assert found.reason is reason, situation.__name__
        assert re.search(words, found.text), found.text
        seen.add(found.reason)
    assert seen == set(Reason)
    tried("situations that an execution can be in, explained", len(SITUATIONS), "one reason each")


async def test_the_facts_say_who_since_when_and_until_when(pool: Pool, submit: Submit):
    world = World(pool, submit, worker=await workers.register(pool, "w"))
    host = await world.host()
    running = await world.running(host)
    since = await pool.fetchval("SELECT updated_at FROM executions WHERE id = $1", running)
    found = await explained(pool, await world.queued(host))
    job_id = await world.job_of(running)
    assert found.facts == {"since": since, "execution_id": running, "job_id": job_id}

    retried = await to_be_retried(world)
    due_at = await pool.fetchval("SELECT due_at FROM executions WHERE id = $1", retried)
    assert (await explained(pool, retried)).facts["until"] == due_at

    facts = (await explained(pool, await blocked(world))).facts
    assert (facts["owner"], facts["rule"]) == ("eve", "disk is full")


async def test_what_comes_first_is_told_first(pool: Pool, submit: Submit):
    """Paused, on a held host, with a rule against it: each comes up as the one before is gone."""
    world = World(pool, submit, worker=await workers.register(pool, "w"))
    host = await world.host()
    holder = await world.running(host)
    execution_id = await world.queued(host)
    job_id = await world.job_of(execution_id)
    await pool.execute(
        "INSERT INTO host_command_blocks (host_id, command_type) "
        "SELECT id, 'noop' FROM hosts WHERE name = $1",
        host,
    )
    await pause(pool, job_id, paused=True)
    assert (await explained(pool, execution_id)).reason is Reason.PAUSED
    await pause(pool, job_id, paused=False)
    assert (await explained(pool, execution_id)).reason is Reason.HOST_HELD
    epoch = await pool.fetchval("SELECT epoch FROM executions WHERE id = $1", holder)
    done = ExecutionEvent(holder, "succeed", epoch)
    await EXECUTIONS.record_all(pool, [done], batch_max=1)
    found = await explained(pool, execution_id)
    assert found.reason is Reason.BLOCKED_BY_RULE
    assert re.fullmatch(r"Somebody has blocked noop on why-\d+\.", found.text)


# A mixed fleet


class Mixed:
    """Does whatever comes to a seeded mind with a small fleet."""

    def __init__(self, pool: Pool, submit: Submit, chance: random.Random) -> None:
        self._pool = pool
        self._submit = submit
        self._chance = chance
        self._jobs: list[int] = []
        self._workers: list[int] = []

    async def step(self) -> None:
        deeds = [
            *(self._new_job, self._plan, self._claim, self._report, self._report),
            *(self._decide, self._pause, self._cancel, self._block, self._disable),
            *(self._hire, self._fire, self._let_time_pass, self._sweep),
        ]
        await self._chance.choice(deeds)()

    async def _new_job(self) -> None:
        kind = self._chance.choice(["noop", "noop", "look", "deploy"])
        limit = self._chance.choice([None, None, 1, 2])
        await self._pool.execute("UPDATE hosts SET state = 'ACTIVE' WHERE id = 1")
        made = await self._submit(f"mixed-{len(self._jobs)}", kind, max_concurrency=limit)
        self._jobs.append(made.job_id)

    async def _plan(self) -> None:
        for job_id in self._jobs:
            await jobs.plan(self._pool, job_id, batch=self._chance.randint(1, 5))

    async def _claim(self) -> None:
        if self._workers:
            await claim_all(self._pool, self._chance.choice(self._workers))

    async def _report(self) -> None:
        """Of what runs, and now and then of what does not any more."""
        begun = await self._pool.fetch(
            "SELECT id, epoch FROM executions WHERE epoch > 0 "
            "ORDER BY status = $1 DESC, id LIMIT 8",
            RUNNING,
        )
        chosen = self._chance.sample(begun, min(3, len(begun)))
        said = [
            ExecutionEvent(
                row["id"],
                self._chance.choice(["succeed", "fail", "retry", "timeout"]),
                row["epoch"],
                "worker",
                json.dumps(
                    {
                        "delay_s": self._chance.choice([0, 600]),
                        "cause": ("FAILED", OFFLINE)[row["id"] % 2],
                    }
                ),
            )
            for row in chosen
        ]
        if said:
            await EXECUTIONS.record_all(self._pool, said, batch_max=10)

    async def _decide(self) -> None:
        for job_id in self._jobs:
            await jobs.decide(
                self._pool,
                job_id,
                version=1,
                state=self._chance.choice(["APPROVED", "REJECTED"]),
                by="bob",
                reason="",
            )

    async def _pause(self) -> None:
        if self._jobs:
            job_id = self._chance.choice(self._jobs)
            await pause(self._pool, job_id, paused=self._chance.random() < 0.5)

    async def _cancel(self) -> None:
        if self._jobs:
            await jobs.cancel(self._pool, self._chance.choice(self._jobs), by="ann")

    async def _block(self) -> None:
        await self._pool.execute("DELETE FROM host_command_blocks")
        await self._pool.execute(
            "INSERT INTO host_command_blocks (host_id, command_type) SELECT id, 'noop' FROM hosts "
            "WHERE id % 3 = $1",
            self._chance.randrange(3),
        )

    async def _disable(self) -> None:
        await self._pool.execute(
            "UPDATE hosts SET state = CASE WHEN id % 4 = $1 THEN 'DISABLED' ELSE 'ACTIVE' END",
            self._chance.randrange(4),
        )

    async def _hire(self) -> None:
        self._workers.append(await workers.register(self._pool, "w"))

    async def _fire(self) -> None:
        if self._workers:
            await workers.leave(self._pool, self._workers.pop())

    async def _let_time_pass(self) -> None:
        for table, column in (
            *(("executions", "due_at"), ("queue", "due_at")),
            *(("executions", "deadline_at"), ("runs", "deadline_at")),
        ):
            await self._pool.execute(
                f"UPDATE {table} SET {column} = {column} - interval '10 minutes'"  # noqa: S608
            )

    async def _sweep(self) -> None:
        await executions.rescue(self._pool, lost_after_s=LOST_AFTER_S, limit=100)
        await jobs.finish_cancelling(self._pool, limit=100)
        await jobs.sum_counts(self._pool, above=5)


NEVER_BEGUN = {
    *(Reason.CANCELLING, Reason.WAITING_FOR_APPROVAL, Reason.TURNED_DOWN, Reason.PAUSED),
    *(Reason.NO_WORKER, Reason.CONCURRENCY_LIMIT, Reason.TO_BE_PLANNED),
}
IN_THE_QUEUE = {
    *(
        Reason.CANCELLING,
        Reason.PAUSED,
        Reason.NEXT_RETRY,
        Reason.HOST_OFFLINE,
        Reason.NO_WORKER,
        Reason.HOST_HELD,
    ),
    *(Reason.BEHIND_ANOTHER, Reason.BLOCKED_BY_RULE, Reason.HOST_DISABLED, Reason.TO_BE_CLAIMED),
}
ON_A_HOST = {Reason.CANCELLING, Reason.WORKER_LOST, Reason.OVERDUE, Reason.UNDER_WAY}
REASONS = {NEW: NEVER_BEGUN, QUEUED: IN_THE_QUEUE, RUNNING: ON_A_HOST}


async def looked_through(pool: Pool) -> list[Reason]:
    """Explain everything that has not ended; each reason fits, and whom it names is there."""
    rows = await pool.fetch(
        "SELECT id, host_id, status FROM executions WHERE status <> ALL ($1::text[])", TERMINAL
    )
    found: list[Reason] = []
    for execution_id, host_id, status in rows:
        reason = await explained(pool, execution_id)
        assert reason.reason in REASONS[status], (status, reason)
        assert reason.text.endswith(".")
        assert "None" not in reason.text, reason.text
        json.dumps(reason.facts, default=str)
        if reason.reason in {Reason.HOST_HELD, Reason.BEHIND_ANOTHER}:
            other = reason.facts["execution_id"]
            stands = await pool.fetchrow(
                "SELECT host_id, status FROM executions WHERE id = $1", other
            )
            held = reason.reason is Reason.HOST_HELD
            assert stands is not None
            assert tuple(stands) == (host_id, RUNNING if held else QUEUED)
        found.append(reason.reason)
    return found


async def test_over_a_mixed_fleet_everything_has_exactly_one_reason(
    pool: Pool, make_hosts: MakeHosts, submit: Submit, tried: Tried, *, proof: bool
):
    seed = 20_261_118
    print(f"seed {seed}")
    steps = 1_500 if proof else 400
    chance = random.Random(seed)
    await make_hosts(6)
    mixed = Mixed(pool, submit, chance)
    found: list[Reason] = []
    for _ in range(steps):
        await mixed.step()
        found += await looked_through(pool)
    assert await unsound(pool) == []
    # Rejecting and cancelling are one transaction, so that nobody finds one without the other.
    assert set(found) >= set(Reason) - {Reason.ENDED, Reason.TURNED_DOWN}
    tried("executions of a mixed fleet, explained", len(found), "one reason each")


def test_a_success_is_not_explained_by_what_a_former_attempt_said() -> None:
    ended = {"attempt": 2, "error": "exit code 1", "finished_at": None}
    well = why({**ended, "status": "SUCCESS", "cause": None})
    assert well.text == "It ended as SUCCESS after 2 attempts."
    badly = why({**ended, "status": "FAILED", "cause": "FAILED"})
    assert badly.text == "It ended as FAILED after 2 attempts: exit code 1."
