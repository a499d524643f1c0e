"""The measurements of the Celery engine: small, and as to whether they measure what they say."""

from __future__ import annotations

import pytest

from onward.bench.celery_engine import Sizes, celery_engine
from onward.bench.scaled import scaled
from onward.bench.work import Work
from onward.errors import InvariantBroken
from tests.bench.results import well_formed
from tests.databases import on

SMALL = Sizes(
    work=Work(jobs=2, hosts=20),
    slow=Work(jobs=1, hosts=20),
    slow_s=0.2,
    rounds=1,
    tasks=60,
)


def test_the_celery_engine_is_measured_beside_plain_celery_and_the_ideal():
    told: list[str] = []
    rate, slow, messages, commits = celery_engine(told.append, SMALL)
    assert all(well_formed(result) for result in (rate, slow, messages, commits))
    assert "no-op tasks/s of plain Celery, prefork" in str(rate.against)
    assert slow.value >= SMALL.slow_s
    assert sum("plain Celery" in line for line in told) == 2
    # One message tells of a job, and one at least of what it is made of.
    assert messages.value >= 1_000 * 2 * SMALL.work.jobs / SMALL.work.executions


async def test_a_worker_that_cannot_start_says_why_in_a_measurement(server_url: str):
    with pytest.raises(InvariantBroken, match="PostgreSQL"):
        async with scaled(on(server_url, "nothing_here"), "unix:///nowhere", processes=1):
            pass
