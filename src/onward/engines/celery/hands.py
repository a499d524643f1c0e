"""A worker that is driven by messages: what each of them makes it do.

Whatever a message was about is asked of PostgreSQL. What cannot be sent is not sent: somebody will
look at the tables within seconds, and send it then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import structlog

from onward.channels.base import Channel
from onward.engines.celery import names
from onward.engines.celery.refusals import REFUSALS
from onward.engines.pace import Pace
from onward.engines.worker import Worker
from onward.errors import ServerProblem
from onward.fleet.publish import publish_outbox
from onward.fleet.reap import reap
from onward.store import executions, jobs, ticks, workers
from onward.store.database import Pool
from onward.store.executions import Errand
from onward.store.host_locks import HostLocks

_PATIENCE_S: Final = 20.0  # for room, before the rest of a message is left to others
_BESIDE_BEAT_S: Final = 3.0  # if nobody has looked for so long, a process does it by itself
_TOO_SOON_S: Final = 0.5
_WAITING_MAX: Final = 20  # messages; while there are more, none is sent again
_WALK: Final = 10_000  # hosts that are looked at for what nobody took

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.celery")


class Message(NamedTuple):
    """What one message says, and which request it comes from."""

    argument: object
    trace: Mapping[str, str] = MappingProxyType({})


class Broker(Protocol):
    """What a process says to the broker. It blocks, and is called in a thread."""

    def send(self, task: str, messages: Sequence[Message]) -> None:
        """Send messages; one that cannot be sent is given up."""
        ...

    def waiting(self) -> int | None:
        """Say how many messages nobody has taken yet; nothing, if it does not say."""
        ...


class Hands:
    """The worker of one process, and what it does when it is told to."""

    def __init__(
        self,
        pool: Pool,
        locks: HostLocks,
        channels: Mapping[str, Channel],
        *,
        broker: Broker,
        chance: Callable[[], float],
        pace: Pace,
    ) -> None:
        self._pool = pool
        self._broker = broker
        self._chance = chance
        self._pace = pace
        self.worker = Worker(pool, locks, channels, chance=chance, pace=pace, driver=self)
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._turn = asyncio.Lock()
        self._wanting = 0  # messages that wait for room
        self._to_plan: set[int] = set()
        self._may_plan = asyncio.Event()
        self._after_host = 0

    async def live(self, ready: Callable[[], None]) -> None:
        """Work until `leave` is called, and what runs has ended."""
        worker, stopping = self.worker, self._stopping
        await worker.register(stopping)
        async with worker.at_work() as loops:
            loops.create_task(worker.repeat(stopping, self._tick, self._pace.reap_s))
            loops.create_task(
                worker.repeat(stopping, self._plan_more, _BESIDE_BEAT_S, wake=self._may_plan)
            )
            ready()
            await stopping.wait()

    def leave(self) -> None:
        """Take nothing more."""
        self._stopping.set()
        self._room.set()
        self._may_plan.set()

    def may_follow(self) -> bool:
        """Whether what is next on a host may be claimed at once: not before others had a turn."""
        return not self._wanting

    def let_go(self, jobs: Sequence[Errand]) -> None:
        """Take note of jobs that have let go of hosts."""
        self._room.set()
        if limited := {job.job_id for job in jobs if job.max_concurrency is not None}:
            self._to_plan |= limited
            self._may_plan.set()

    async def take(self, execution_ids: Sequence[int]) -> None:
        """Take the oldest that is due on the hosts of these executions, as far as it is free."""
        self.worker.got_on()
        async with self._turn:
            try:
                await self._take(execution_ids)
            except ServerProblem:
                # A claim may have been made whose answer was lost.
                self.worker.doubt()
                raise

    async def _take(self, execution_ids: Sequence[int]) -> None:
        found = await executions.wanted(self._pool, execution_ids)
        patient_until = asyncio.get_running_loop().time() + _PATIENCE_S
        while found and not self._stopping.is_set():
            room = min(self.worker.room, self._pace.claim_max)
            if room > 0:
                await self.worker.take(found[:room], self._stopping)
                found = found[room:]
            elif not await self._some_room(patient_until):
                log.info("left_to_others", executions=len(found))
                return

    async def _some_room(self, until: float) -> bool:
        """Wait for room, and say whether there is some."""
        self._wanting += 1
        self._room.clear()
        try:
            # Only the waiting has an end: a claim that was broken off would be nobody's.
            async with asyncio.timeout_at(until):
                await self._room.wait()
        except TimeoutError:
            return False
        finally:
            self._wanting -= 1
        return True

    async def plan(self, job_id: int) -> None:
        """Queue what a job may have, and tell workers of it."""
        batch = self._pace.plan_batch
        while planned := await jobs.plan(self._pool, job_id, batch=batch):
            errand = (await self.worker.know([job_id]))[job_id]
            log.info("planned", job_id=job_id, executions=len(planned), **errand.trace)
            await self._send_runs(planned, errand.trace)
            if len(planned) < batch:
                return

    async def publish(self) -> None:
        """Hand on what the outbox holds."""
        await publish_outbox(self._pool, self._send_traced)

    async def reconcile(self, *, every_s: float = _TOO_SOON_S) -> None:
        """Put right what nobody was told about, and send again what is due and was not taken."""
        if not await ticks.claim(self._pool, names.RECONCILE, every_s=every_s):
            return
        unplanned = await reap(
            self._pool,
            lost_after_s=self._pace.lost_after_s,
            backoff=self._pace.backoff,
            chance=self._chance,
        )
        waiting = await asyncio.to_thread(self._broker.waiting)
        if waiting is not None and waiting <= _WAITING_MAX:
            await self._send(names.PLAN_JOB, [Message(job_id) for job_id in unplanned])
            await self._send_due()

    async def _send_due(self) -> None:
        found = await executions.candidates(self._pool, after_host=self._after_host, limit=_WALK)
        self._after_host = found[-1].host_id if len(found) == _WALK else 0
        await self._send_runs([each.execution_id for each in found])

    async def _tick(self) -> bool:
        """Look after what is this worker's own, and do what Beat should have asked for."""
        # Coming round is getting on: a worker to whom nobody sends anything is not stuck.
        self.worker.got_on()
        await self.worker.look_back()
        await self.worker.let_hosts_go()
        await self._tell_refusals()
        if await ticks.claim(self._pool, names.PUBLISH_OUTBOX, every_s=_BESIDE_BEAT_S):
            await self.publish()
        await self.reconcile(every_s=_BESIDE_BEAT_S)
        return False

    async def _tell_refusals(self) -> None:
        """Write down how many messages were refused, whichever process of this worker did so."""
        if not (number := REFUSALS.take()):
            return
        try:
            await workers.refused(self._pool, self.worker.worker_id, number)
        except ServerProblem:
            REFUSALS.add(number)
            raise

    async def _plan_more(self) -> bool:
        """Plan the next ones of jobs that may only have so many at once."""
        wanted, self._to_plan = self._to_plan, set()
        for job_id in wanted:
            await self.plan(job_id)
        return bool(self._to_plan)

    async def _send_traced(self, jobs: Mapping[int, str]) -> None:
        messages = [Message(job_id, json.loads(trace)) for job_id, trace in jobs.items()]
        await self._send(names.PLAN_JOB, messages)

    async def _send_runs(
        self, execution_ids: Sequence[int], trace: Mapping[str, str] | None = None
    ) -> None:
        shards = _shards(execution_ids)
        await self._send(names.RUN_SHARD, [Message(shard, trace or {}) for shard in shards])

    async def _send(self, task: str, messages: Sequence[Message]) -> None:
        if messages:
            await asyncio.to_thread(self._broker.send, task, messages)


def _shards(execution_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(execution_ids), names.SHARD):
        yield execution_ids[first : first + names.SHARD]
