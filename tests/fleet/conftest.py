"""A small fleet in the database of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from onward.core.selectors import parse
from onward.store import jobs
from onward.store.database import Pool
from onward.store.jobs import NewJob, Submitted

MakeHosts = Callable[[int], Awaitable[list[int]]]
Submit = Callable[..., Awaitable[Submitted]]


@pytest.fixture
def make_hosts(pool: Pool) -> MakeHosts:
    """Make hosts h1, h2, … with a role each; returns their ids."""

    async def make(count: int) -> list[int]:
        rows = await pool.fetch(
            "INSERT INTO hosts (name, labels) "
            "SELECT 'h' || n, jsonb_build_object('role', (ARRAY['web', 'db'])[n % 2 + 1]) "
            "FROM generate_series(1, $1) AS n RETURNING id",
            count,
        )
        return [row["id"] for row in rows]

    return make


@pytest.fixture
async def submit(pool: Pool) -> Submit:
    """Submit a job; command types `noop` (alone on a host), `look` (shares it), `deploy` (asks)."""
    await pool.execute(
        "INSERT INTO command_types (name, needs_approval, read_only, timeout_s, max_retries) "
        "VALUES ('noop', false, false, 5, 50), ('look', false, true, 5, 3), "
        "('deploy', true, false, 5, 3)"
    )

    async def make(
        external_id: str = "one",
        command_type: str = "noop",
        params: str = "{}",
        selector: object = "all",
        max_concurrency: int | None = None,
        requested_by: str = "ann",
    ) -> Submitted:
        wanted = NewJob(
            external_id, command_type, params, parse(selector), max_concurrency, requested_by
        )
        return await jobs.submit(pool, wanted)

    return make
