"""Work goes on, whatever happens to Beat, to the broker, or to a part of a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from onward.channels.simulated import What
from onward.engines.celery import names
from onward.service.celery_program import Watch
from onward.store import jobs
from tests.engines.ground import Ground, alive, all_still, descendants, ground, until
from tests.mortal_valkey import MortalValkey
from tests.proof_table import Tried


@pytest.fixture(scope="module")
async def there(server: tuple[str, str]) -> AsyncIterator[Ground]:
    """A worker, started before its broker, and no Beat: it looks for itself, every few seconds."""
    async with ground("celery", server) as found:
        assert found.broker is not None
        found.broker.strike_down()
        await found.start(supervised=True)
        found.broker.raise_up()
        yield found


@pytest.fixture
def broker(there: Ground) -> MortalValkey:
    assert there.broker is not None
    return there.broker


async def goes_on(there: Ground) -> None:
    assert await there.ended(await there.submit(await there.hosts(3))) == {"SUCCESS": 3}


async def test_without_beat_and_started_before_its_broker_a_worker_works(there: Ground):
    await goes_on(there)


async def test_a_broker_that_is_emptied_again_and_again_costs_only_time(
    there: Ground, broker: MortalValkey, tried: Tried, *, proof: bool
):
    hosts = await there.hosts(400 if proof else 40)
    submitted = [await there.submit(hosts, sleep_s=0.05) for _ in range(2)]
    unheard = await there.hosts(5)
    with all_still(there.workers[0]):
        lost = await there.submit(unheard)
        assert len(await jobs.plan(there.pool, lost, batch=10)) == 5
        broker.empty()
    wipes = 40 if proof else 8
    for wipe in range(wipes):

        async def so_far(wanted: int = wipe * len(hosts) // wipes) -> bool:
            return there.count(hosts, What.STARTED) >= wanted

        await until(so_far, of=there)
        broker.empty()
    assert await there.ended(lost) == {"SUCCESS": 5}
    await there.until_settled(*submitted)
    for job_id in submitted:
        assert await there.counts(job_id) == {"SUCCESS": len(hosts)}
    assert there.promises_broken() == []
    tried("times that the broker was emptied in the middle of a job", wipes, "none lost")


async def test_a_broker_that_is_away_and_comes_back_empty_is_waited_for(
    there: Ground, broker: MortalValkey
):
    """What runs ends without it, and what came in the meantime is found when it is back."""
    running, hosts = await there.hosts(3), await there.hosts(3)
    under_way = await there.submit(running, sleep_s=0.5)
    await there.until_begun(running, 3)
    broker.strike_down()
    processes = descendants(there.workers[0].pid)
    meanwhile = await there.submit(hosts)
    assert await there.ended(under_way) == {"SUCCESS": 3}

    async def noticed() -> bool:
        return bool(there.workers[0].told("broker_away"))

    await until(noticed, of=there)
    broker.raise_up()
    assert await there.ended(meanwhile) == {"SUCCESS": 3}
    assert descendants(there.workers[0].pid) == processes


async def test_a_process_whose_loop_has_died_is_replaced(there: Ground):
    """A table that is gone is a bug, and no server that is away."""
    (worker,) = there.workers
    (program,) = children(worker.pid)
    before = children(program)
    await there.pool.execute("ALTER TABLE ticks RENAME TO tocks")
    await until_gone(there, before)
    await there.pool.execute("ALTER TABLE tocks RENAME TO ticks")
    assert {line["level"] for line in worker.told("worker_died")} == {"error"}
    await goes_on(there)
    assert children(worker.pid) == [program]


async def test_a_program_that_was_killed_is_started_again(there: Ground):
    """The processes that it had started do not outlive it."""
    (worker,) = there.workers
    (program,) = children(worker.pid)
    processes = children(program)
    os.kill(program, signal.SIGKILL)
    await until_gone(there, [program, *processes])
    await goes_on(there)
    assert worker.told("started_again")[-1]["code"] == -signal.SIGKILL


async def test_a_worker_that_has_gone_deaf_leaves(server: tuple[str, str]):
    async with ground("celery", server) as there:
        deaf = there.run(str(__file__).replace("test_liveness", "deaf"))
        await there.submit(await there.hosts(3))
        await deaf.left()
        assert [line["reason"] for line in deaf.told("program_leaves")] == [
            "messages wait, and none arrives"
        ]


async def test_what_a_killed_supervisor_leaves_behind_leaves_as_well(there: Ground):
    """A worker and Beat; this is the end of the one that the other tests have used."""
    beat = there.beat()

    async def begun() -> bool:
        # What is queued may have been sent by another Beat before.
        return there.queued(names.CARE) > 0 and bool(descendants(beat.pid))

    await until(begun, of=there)
    for program in (there.workers[0], beat):
        left_behind = descendants(program.pid)
        with outlived(left_behind):
            program.process.kill()
            await until_gone(there, left_behind)
        told = program.told("program_leaves")
        assert [line["reason"] for line in told] == ["whoever started it is gone"]


class Now:
    """A clock that is told what time it is."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_a_worker_is_silent_only_while_messages_wait_and_none_arrives():
    now, waiting = Now(), [0]
    watch = Watch(lambda: waiting[0], silent_s=60, clock=now)
    now.s += 1_000
    assert not watch.silent()  # nobody has sent anything
    waiting[0] = 5
    assert not watch.silent()
    now.s += 59
    assert not watch.silent()
    watch.hear()
    now.s += 59
    assert not watch.silent()  # it is slow, and it gets on
    now.s += 2
    assert watch.silent()


def test_a_broker_that_does_not_answer_speaks_against_nobody():
    now = Now()
    watch = Watch(lambda: None, silent_s=60, clock=now)
    for _ in range(10):
        now.s += 100
        assert not watch.silent()


def children(pid: int) -> list[int]:
    """The processes that a process has started itself."""
    found = descendants(pid)
    return [child for child in found if not any(child in descendants(each) for each in found)]


async def until_gone(there: Ground, processes: list[int]) -> None:
    async def gone() -> bool:
        return not any(map(alive, processes))

    await until(gone, of=there)


@contextmanager
def outlived(processes: list[int]) -> Iterator[None]:
    """See that none of these processes is left over, whatever happens."""
    try:
        yield
    finally:
        for pid in filter(alive, processes):
            os.kill(pid, signal.SIGKILL)
