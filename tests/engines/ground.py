"""What an engine is tested on: a database, a broker, hosts in a process of their own, and workers.

The hosts outlive every worker, and their journal bears witness to what really ran.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

import onward
from onward.channels.simulated import Effect, RemoteSimulatedChannel, What
from onward.channels.simulated.journal import check_journal
from onward.core.lifecycles import EXECUTION
from onward.core.selectors import parse
from onward.engines.celery import names
from onward.engines.celery.process import broker_url
from onward.engines.embedded import Engine
from onward.errors import ServerProblem
from onward.store import jobs
from onward.store.database import Pool, answering
from onward.store.host_locks import HostLocks
from onward.store.jobs import NewJob
from onward.wiring import Onward
from tests.cli.running import environment, folder_for_servers, on_database
from tests.conftest import settings_for
from tests.databases import copied
from tests.fleet.test_engine import QUICK
from tests.mortal_valkey import MortalValkey, mortal_valkey

BOUND_S = 30.0
TERMINAL = sorted(map(str, EXECUTION.terminal))
TESTS = Path(__file__).parents[1]

# What the settings of a Celery worker make of `QUICK`, as far as there are settings for it.
SWIFT = {
    "ONWARD_POOL_SIZE": "4",
    "ONWARD_WORKER_CAPACITY": "100",
    "ONWARD_WORKER_LOST_AFTER_S": "1.5",
    "ONWARD_BASE_BACKOFF_S": "0.02",
    "ONWARD_MAX_BACKOFF_S": "0.2",
}

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Some hosts that nobody else has anything to do with."""

    label: str
    ids: Sequence[int]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True)
class Program:
    """A process of ours, and what it has written about itself."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> list[dict[str, Any]]:
        """The lines of its log that are whole, as what they say."""
        whole = self.log.read_bytes().rpartition(b"\n")[0].decode().splitlines()
        return [json.loads(line) if line.startswith("{") else {"event": line} for line in whole]

    def told(self, event: str) -> list[dict[str, Any]]:
        """What it has said of one kind."""
        return [line for line in self.said() if line["event"] == event]

    async def left(self, bound_s: float = BOUND_S) -> int:
        """Wait until it is gone, and return with which code it left."""
        return await asyncio.to_thread(self.process.wait, bound_s)

    async def leave(self) -> int:
        """Ask it to leave, and wait until it has."""
        self.process.terminate()
        return await self.left()

    def end(self) -> None:
        """End it with all that it has started."""
        for pid in (self.pid, *descendants(self.pid)):
            _kill(pid)
        self.process.wait(BOUND_S)
        if self.process.stdin is not None:
            self.process.stdin.close()


@dataclass(slots=True)
class Ground:
    """Where one engine works, and what can be done and seen there."""

    engine: str
    folder: Path
    opened: Onward
    broker_url: str
    broker: MortalValkey | None
    fleet: Program
    settings: Mapping[str, str]
    stack: AsyncExitStack
    workers: list[Program] = field(default_factory=list)
    hurried: bool = False  # whether workers are told of each job at once, as well as by Beat

    @property
    def pool(self) -> Pool:
        return self.opened.commands.pool

    async def hosts(self, number: int) -> Hosts:
        """Make hosts that no other job is for."""
        label = f"t{next(_numbers)}"
        rows = await self.pool.fetch(
            "INSERT INTO hosts (name, labels) "
            "SELECT $1 || '-' || n, jsonb_build_object('test', $1::text) "
            "FROM generate_series(1, $2) AS n RETURNING id",
            label,
            number,
        )
        return Hosts(label, sorted(row["id"] for row in rows))

    async def submit(
        self,
        hosts: Hosts,
        command_type: str = "noop",
        *,
        max_concurrency: int | None = None,
        trace: Mapping[str, str] | None = None,
        **params: object,
    ) -> int:
        """Submit a job for hosts; returns its id."""
        made = await jobs.submit(
            self.pool,
            NewJob(
                f"job-{next(_numbers)}",
                command_type,
                json.dumps(params),
                parse(f"test={hosts.label}"),
                max_concurrency,
                "ann",
                trace=json.dumps(dict(trace or {})),
            ),
        )
        if self.hurried and self.engine == "celery":
            await asyncio.to_thread(self.tell, names.PUBLISH_OUTBOX)
        return made.job_id

    def tell(self, task: str, *arguments: object) -> None:
        """Send a hint, as anybody who can reach the broker may."""
        settings = settings_for(self.opened.database_url, broker_url=self.broker_url)
        with Celery(broker=broker_url(settings), set_as_current=False) as sender:
            exchange = Exchange(names.CARE, no_declare=True)
            # Workers have declared it, with what is asked of a queue there.
            queue = Queue(names.CARE, exchange, routing_key=names.CARE, no_declare=True)
            sender.conf.task_queues = [queue]
            sender.send_task(task, arguments, queue=names.CARE, ignore_result=True)

    async def counts(self, job_id: int) -> dict[str, int]:
        return await jobs.counts(self.pool, job_id)

    async def until_settled(self, *job_ids: int) -> None:
        """Wait until nothing of these jobs is under way."""
        await until(lambda: self._settled(job_ids), of=self)

    async def ended(self, job_id: int) -> dict[str, int]:
        """How the executions of a job ended, once they have."""
        await self.until_settled(job_id)
        return await self.counts(job_id)

    async def until_begun(self, hosts: Hosts, number: int) -> None:
        """Wait until so many runs have begun on hosts."""

        async def begun() -> bool:
            return self.count(hosts, What.STARTED) >= number

        await until(begun, of=self)

    async def executions(self, job_id: int, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of the executions of a job, in the order of their hosts."""
        rows = await self.pool.fetch(
            f"SELECT {', '.join(columns)} "  # noqa: S608 - names that tests give
            "FROM executions WHERE job_id = $1 ORDER BY host_id",
            job_id,
        )
        return [tuple(row) for row in rows]

    def effects(self, hosts: Hosts) -> list[Effect]:
        """What happened on hosts, in the order in which it did."""
        ids = set(hosts.ids)
        found = map(Effect.of, self._lines())
        return [effect for effect in found if effect.host_id in ids]

    def count(self, hosts: Hosts, what: What) -> int:
        return sum(effect.what is what for effect in self.effects(hosts))

    def promises_broken(self) -> list[str]:
        """What speaks against the engine in the journal of all hosts."""
        return check_journal(self._lines())

    async def start(self, *, supervised: bool = False, **settings: str) -> Program:
        """Start a worker, and wait until it has begun: two processes of Celery, or one engine."""
        before = await self.pool.fetchval("SELECT coalesce(max(id), 0) FROM workers")
        wanted = 2 if self.engine == "celery" else 1
        program = self.run(*self._worker(supervised=supervised), **settings)
        self.workers.append(program)

        async def begun() -> bool:
            assert program.process.poll() is None, program.said()
            newer = "SELECT count(*) FROM workers WHERE id > $1"
            return bool(await self.pool.fetchval(newer, before) >= wanted)

        await until(begun, of=self)
        return program

    def run(self, *arguments: str, **settings: str) -> Program:
        """Run a program of ours; it is gone when the ground is left."""
        log = self.folder / f"log-{next(_numbers)}"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env={**environment(self.folder), **self.settings, **settings},
                stdin=subprocess.PIPE,  # for as long as we are there
                stdout=errors,
                stderr=errors,
            )
        program = Program(process, log)
        self.stack.callback(program.end)
        return program

    def queued(self, queue: str) -> int:
        """How many messages wait in a queue of the broker, or are held and not yet answered."""
        assert self.broker is not None
        with self.broker.client as client:
            return int(client.llen(queue)) + int(client.hlen("unacked"))

    def beat(self) -> Program:
        """Start Beat."""
        return self.run("-m", "onward", "beat")

    def _worker(self, *, supervised: bool) -> Sequence[str]:
        if self.engine == "embedded":
            worker = str(TESTS / "fleet" / "worker.py")
            return (worker, self.opened.database_url, self.settings["ONWARD_SIMULATED_FLEET"], "1")
        if supervised:
            return ("-m", "onward", "worker", "--processes", "2")
        return ("-m", "onward.service.celery_program", "worker", "--concurrency=2")

    async def _settled(self, job_ids: Sequence[int]) -> bool:
        # Whoever looks may be cut off as well, where a test cuts every connection.
        with suppress(ServerProblem), answering():
            return not await self.pool.fetchval(
                "SELECT EXISTS (SELECT FROM executions WHERE job_id = ANY ($1) "
                "AND status <> ALL ($2::text[]))",
                job_ids,
                TERMINAL,
            )
        return False

    def _lines(self) -> Iterator[str]:
        return iter((self.folder / "journal").read_bytes().decode().splitlines())


async def until(over: Callable[[], Any], *, of: Ground | None = None, what: str = "") -> None:
    """Look again and again, and not for ever."""
    try:
        async with asyncio.timeout(BOUND_S):
            while not await over():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.02)
    except TimeoutError:
        logs = [line for worker in of.workers for line in worker.said()[-5:]] if of else []
        raise AssertionError(f"not within {BOUND_S:g} s: {what} {logs}") from None


@asynccontextmanager
async def ground(
    engine: str,
    server: tuple[str, str],
    *,
    network: str = "calm",
    speed: float = 1.0,
    broker_url: str | None = None,
    **settings: str,
) -> AsyncIterator[Ground]:
    """Make a ground on which nobody works yet."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(folder_for_servers())
        copy = copied(*server)
        url = await asyncio.to_thread(copy.__enter__)
        stack.push_async_callback(asyncio.to_thread, copy.__exit__)
        broker = None
        if broker_url is None:
            broker = stack.enter_context(mortal_valkey())
            broker_url = broker.url
        opened = await stack.enter_async_context(onward.open(settings_for(url)))
        found = Ground(
            engine=engine,
            folder=folder,
            opened=opened,
            broker_url=broker_url,
            broker=broker,
            fleet=_fleet(stack, folder, network, speed),
            settings={
                **on_database(url),
                "ONWARD_BROKER_URL": broker_url,
                "ONWARD_SIMULATED_FLEET": str(folder / "fleet"),
                **SWIFT,
                **settings,
            },
            stack=stack,
        )
        await _command_types(found.pool)
        yield found


@asynccontextmanager
async def at_work(found: Ground) -> AsyncIterator[Ground]:
    """Let the engine of a ground work there: in this process, or in those of Celery."""
    if found.engine == "celery":
        found.hurried = True
        found.beat()
        await found.start(supervised=True)
        yield found
        return
    locks, stopping = HostLocks(found.opened.database_url), asyncio.Event()
    async with RemoteSimulatedChannel(found.folder / "fleet") as channel:
        chance = random.Random(1).random
        engine = Engine(found.pool, locks, {"simulated": channel}, chance=chance, pace=QUICK)
        work = asyncio.create_task(engine.run(stopping))
        try:
            yield found
        finally:
            stopping.set()
            await work
            await locks.close()


def _fleet(stack: AsyncExitStack, folder: Path, network: str, speed: float) -> Program:
    """Start the hosts, and wait until they are there."""
    log = folder / "fleet.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "onward.channels.simulated", "--any-type"),
                *("--socket", str(folder / "fleet"), "--journal", str(folder / "journal")),
                *("--network", network, "--seed", "7", "--speed", str(speed)),
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    program = Program(process, log)
    stack.callback(program.end)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    assert process.stdout.readline() == b"ready\n", log.read_text()
    return program


async def _command_types(pool: Pool) -> None:
    """`noop` wants a host alone, `look` shares it, `deploy` asks, `fragile` gives up early."""
    await pool.execute(
        "INSERT INTO command_types (name, needs_approval, read_only, timeout_s, max_retries) "
        "VALUES ('noop', false, false, 5, 50), ('look', false, true, 5, 3), "
        "('deploy', true, false, 5, 3), ('fragile', false, false, 5, 2), "
        "('brief', false, false, 0.2, 1)"
    )


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text("ascii").split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def alive(pid: int) -> bool:
    """Whether a process is there and is not only remembered."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _kill(pid: int) -> None:
    if alive(pid):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def all_still(program: Program) -> Iterator[None]:
    """Let a program and all that it has started hear everything and do nothing."""
    processes = [program.pid, *descendants(program.pid)]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


async def put_off(there: Ground, job_id: int, by: str) -> None:
    """Let what waits of a job be due so much later than now."""
    for put_off in (
        "UPDATE executions SET due_at = now() + $2::text::interval WHERE job_id = $1",
        "UPDATE queue SET due_at = now() + $2::text::interval WHERE job_id = $1",
    ):
        await there.pool.execute(put_off, job_id, by)
