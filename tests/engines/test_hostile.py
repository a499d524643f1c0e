"""Whoever can write to the broker makes no worker do what was not due, and stops none."""

from __future__ import annotations

import base64
import json
import pickle
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import pytest
import redis
from celery import Celery

from onward.channels.simulated import What
from onward.engines.celery import names
from onward.engines.celery.process import broker_url
from onward.engines.celery.refusals import Refusals
from onward.store import jobs
from tests.conftest import settings_for
from tests.engines.ground import Ground, all_still, descendants, put_off, until
from tests.present import pause
from tests.proof_table import Tried

JSON = "application/json"
PLAIN: Mapping[str, Any] = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


class Boom:
    """What a pickle may be made to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("unpickled",)


def packed(
    body: bytes, task: object = names.RUN_SHARD, *, kind: object = JSON, **headers: object
) -> bytes:
    """A message as kombu leaves it in Redis."""
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "utf-8",
            "content-type": kind,
            "headers": {"lang": "py", "task": task, "id": str(uuid.uuid4()), **headers},
            "properties": {
                "delivery_tag": str(uuid.uuid4()),
                "delivery_mode": 2,
                "delivery_info": {"exchange": names.RUNS, "routing_key": names.RUNS},
                "priority": 0,
                "body_encoding": "base64",
            },
        }
    ).encode()


def message(
    *arguments: object, task: object = names.RUN_SHARD, besides: object = PLAIN, **headers: object
) -> bytes:
    """A message for a task with these arguments."""
    return packed(json.dumps([arguments, {}, besides]).encode(), task, **headers)


def without(message: bytes, *path: str) -> bytes:
    """A message of which a part is missing."""
    whole = json.loads(message)
    part = whole
    for name in path[:-1]:
        part = part[name]
    del part[path[-1]]
    return json.dumps(whole).encode()


TOO_MANY = list(range(1, names.IDS_MAX + 2))
SHUTDOWN = {"task": names.RUN_EXECUTION, "args": [1], "kwargs": {}, "options": {}}

# What is put into the queue, and what is said about it.
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "cannot be read: 'JSONDecodeError"),
    "not JSON at all": (b"{not JSON \xff", "cannot be read: 'JSONDecodeError: Expecting property"),
    "a number": (b"17", "cannot be read: \"TypeError: 'int'"),
    "a list": (b"[]", "cannot be read: 'TypeError: list"),
    "deeply nested": (b"[" * 200_000, "cannot be read: 'RecursionError"),
    "no properties": (without(message([1]), "properties"), "cannot be read: \"KeyError: 'prop"),
    "no delivery tag": (
        without(message([1]), "properties", "delivery_tag"),
        "cannot be read: \"KeyError: 'delivery_tag",
    ),
    "no headers": (without(message([1]), "headers"), "there is no task None"),
    "a pickle": (
        packed(pickle.dumps([[[1]], {}, PLAIN]), kind="application/x-python-serialize"),
        "not 'application/x-python-serialize'",
    ),
    "a pickle that does something": (
        packed(pickle.dumps(Boom()), kind="application/x-python-serialize+json"),
        "not 'application/x-python-serialize+json'",
    ),
    "YAML": (packed(b"!!python/object/apply:os.abort []", kind="yaml"), "not 'yaml'"),
    "compressed": (
        packed(zlib.compress(b"0" * 50_000_000), compression="application/x-gzip"),
        "it is compressed",
    ),
    "not JSON in a body": (packed(b"{execution_ids"), "its body is not JSON: JSONDecodeError"),
    "a deeply nested body": (packed(b"[" * 200_000), "its body is not JSON: RecursionError"),
    "10 MB": (message(["x" * 10_000_000]), "are more than"),
    "a body that is no list": (packed(b'{"task": 1}'), "not that of a task"),
    "an unknown task": (message(1, task="os.system"), "no task 'os.system'"),
    "a task of another type": (message(1, task=["onward.run_shard"]), "no task ['onward.run_sh"),
    "a task that is an object": (message(1, task={"a": 1}), "no task {'a': 1}"),
    "no id": (message([1], id=None), "has no id"),
    **{
        f"Celery's own {name}": (message(SHUTDOWN, [[1]], task=name), f"no task '{name}'")
        for name in (
            *("celery.map", "celery.starmap", "celery.chunks", "celery.chain", "celery.group"),
            *("celery.chord", "celery.chord_unlock", "celery.accumulate", "celery.backend_cleanup"),
        )
    },
    "far in the future": (message([1], eta="2999-01-01T00:00:00+00:00"), "has no eta"),
    "a time that is none": (message([1], expires="yesterday"), "expires is 'yesterday'"),
    "a time of the wrong type": (message([1], expires={}), "expires is {}"),
    "a time limit that kills": (message([1], timelimit=[0.000_1, None]), "no timelimit"),
    "a retry": (message([1], retries=3), "has no retries"),
    "part of a group": (message([1], group="g"), "has no group"),
    **{
        f"followed by {name}": (message([1], besides={name: [SHUTDOWN]}), f"has no '{name}'")
        for name in ("callbacks", "errbacks", "chain", "chord")
    },
    "no argument": (message(), "missing a required argument: 'execution_ids'"),
    "two arguments": (message([1], [2]), "too many positional arguments"),
    "an unknown argument": (
        packed(json.dumps([[[1]], {"host": "h1"}, PLAIN]).encode()),
        "unexpected keyword argument 'host'",
    ),
    "a word for a list": (message("all"), "expected a list of ids, not 'all'"),
    "an empty list": (message([]), "expected a list of ids, not []"),
    "an object": (message({"id": 1}), "expected a list of ids, not {'id': 1}"),
    "ids that are words": (message(["1; DROP TABLE jobs"]), "not '1; DROP TABLE jobs'"),
    "ids that are lists": (message([[[1]]]), "not [[1]]"),
    "ids that are no whole numbers": (message([1.5]), "not 1.5"),
    "ids that are true": (message([True]), "not True"),
    "negative ids": (message([-1]), "-1 is not between"),
    "id nought": (message([0]), "0 is not between"),
    "huge ids": (message([2**63]), "9223372036854775808 is not between"),
    "giant ids": (packed(b"[[[1" + b"0" * 4_000 + b"]],{},{}]"), "a number of"),
    "too many ids": (message(TOO_MANY), "are more than 10000"),
    "a plan for nobody": (message(None, task=names.PLAN_JOB), "not None"),
    "one execution by its name": (message("h1", task=names.RUN_EXECUTION), "not 'h1'"),
}


@pytest.fixture
def there(celery: Ground) -> Ground:
    return celery


def put(there: Ground, *messages: bytes) -> None:
    with redis.Redis.from_url(there.broker_url) as client:
        client.lpush(names.RUNS, *messages)


async def until_taken(there: Ground) -> None:
    """Wait until nothing waits in the broker, and nothing is held that was not answered."""

    async def taken() -> bool:
        return not there.queued(names.RUNS)

    await until(taken, of=there)


async def goes_on(there: Ground) -> None:
    """A job that anybody may have sent ends as ever."""
    assert await there.ended(await there.submit(await there.hosts(1))) == {"SUCCESS": 1}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_no_hint_is_refused_and_the_worker_goes_on(there: Ground, *, what: str):
    raw, problem = REFUSED[what]
    (worker,) = there.workers
    processes = descendants(worker.pid)
    before = len(worker.said())
    put(there, raw)

    async def said() -> bool:
        return any(
            line["event"] == "message_refused" and problem in line["problem"]
            for line in worker.said()[before:]
        )

    await until(said, of=there, what=problem)
    await goes_on(there)
    await until_taken(there)
    told = worker.said()[before:]
    assert len([line for line in told if line["event"] == "message_refused"]) == 1
    assert [line for line in told if line["level"] not in {"info", "warning"}] == []
    assert "Traceback" not in worker.log.read_text("utf-8", "replace")
    assert descendants(worker.pid) == processes


@pytest.mark.parametrize("why", ["it has ended", "it is due later", "its job is paused"])
async def test_naming_what_is_not_due_does_not_run_it(there: Ground, *, why: str):
    hosts = await there.hosts(2)
    with all_still(there.workers[0]):
        job_id = await there.submit(hosts)
        assert len(await jobs.plan(there.pool, job_id, batch=10)) == 2
        if why == "it is due later":
            await put_off(there, job_id, "1 h")
        elif why == "its job is paused":
            await pause(there.pool, job_id, paused=True)
        else:
            await jobs.cancel(there.pool, job_id, by="ann")
    before = await there.counts(job_id)
    ids = [execution_id for (execution_id,) in await there.executions(job_id, "id")]

    put(
        there,
        message(ids),
        message([*ids, 10**15]),
        message(ids[0], task=names.RUN_EXECUTION),
        message(job_id, task=names.PLAN_JOB),
        message(10**15, task=names.PLAN_JOB),
    )
    await goes_on(there)
    await until_taken(there)
    assert there.effects(hosts) == []
    assert await there.counts(job_id) == before
    await jobs.cancel(there.pool, job_id, by="ann")


async def test_what_is_named_many_times_runs_once(there: Ground, tried: Tried):
    hosts = await there.hosts(5)
    with all_still(there.workers[0]):
        job_id = await there.submit(hosts, sleep_s=0.1)
        ids = await jobs.plan(there.pool, job_id, batch=10)
        put(there, *[message(ids) for _ in range(50)])
        put(there, *[message(each, task=names.RUN_EXECUTION) for each in ids])
    assert await there.ended(job_id) == {"SUCCESS": 5}
    await until_taken(there)
    assert there.count(hosts, What.STARTED) == 5
    assert there.promises_broken() == []
    tried("hostile messages, each refused in one line", len(REFUSED), "the worker went on")


async def test_every_refusal_is_counted_whichever_process_refused(there: Ground):
    """At the gate of the main process, on the way there, and in the task itself.

    What is said again and again is not logged again and again, so the log is no count.
    """

    async def until_counted(number: int) -> int:
        async def enough() -> bool:
            return bool(await there.pool.fetchval(_REFUSED) >= number)

        await until(enough, of=there)
        found: int = await there.pool.fetchval(_REFUSED)
        return found

    # What was refused before this one is written down before it, or with it.
    put(there, REFUSED["a retry"][0])
    before = await until_counted(await there.pool.fetchval(_REFUSED) + 1)
    put(there, *(REFUSED[what][0] for what in ("an unknown task", "a number", "an empty list") * 5))
    await until_counted(before + 15)


_REFUSED = "SELECT sum(refused)::bigint FROM workers"


def test_refusals_are_taken_once_and_nobody_waits_for_room_for_more():
    refusals = Refusals()
    assert refusals.take() == 0
    for _ in range(20):
        refusals.add()
    refusals.add(3)
    assert (refusals.take(), refusals.take()) == (23, 0)
    for _ in range(3):
        refusals.add(50_000)
    assert 50_000 <= refusals.take() <= 150_000
    assert refusals.take() == 0


async def test_nobody_is_told_over_the_broker_to_shut_down(there: Ground):
    processes = descendants(there.workers[0].pid)
    settings = settings_for("postgresql://unused", broker_url=there.broker_url)
    with Celery(broker=broker_url(settings), set_as_current=False) as stranger:
        for order in ("shutdown", "pool_restart", "revoke"):
            stranger.control.broadcast(
                order, arguments={"task_id": "1"} if order == "revoke" else {}
            )
    await goes_on(there)
    assert descendants(there.workers[0].pid) == processes
