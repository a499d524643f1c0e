"""A fleet of the test's own beside those of other tests, and people who call the API about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import httpx2

from onward.store import executions, jobs, workers
from onward.store.database import Pool
from onward.store.executions import EXECUTIONS, Answer, Claimed, ExecutionEvent

_numbers = count(1)

# Command types: alone on a host, sharing it, and only after somebody's approval.
TYPES = (("noop", False, False), ("look", False, True), ("deploy", True, False))


class People(NamedTuple):
    """Clients, each with the key of one person."""

    ann: httpx2.AsyncClient  # an operator
    ann_approves: httpx2.AsyncClient  # the same person, with the key of an approver
    bob: httpx2.AsyncClient  # an approver
    eve: httpx2.AsyncClient  # another one
    vic: httpx2.AsyncClient  # a viewer
    root: httpx2.AsyncClient  # an admin


@dataclass
class Fleet:
    """Hosts that carry one label, so that a selector finds them and nobody else's."""

    pool: Pool
    tag: str
    worker: int
    _names: list[str] = field(default_factory=list)

    @classmethod
    async def made(cls, pool: Pool) -> Fleet:
        await pool.executemany(
            "INSERT INTO command_types (name, needs_approval, read_only, timeout_s, max_retries) "
            "VALUES ($1, $2, $3, 60, 3) ON CONFLICT DO NOTHING",
            TYPES,
        )
        tag = f"f{next(_numbers)}"
        return cls(pool, tag, await workers.register(pool, f"worker of {tag}"))

    @property
    def selector(self) -> str:
        return f"of={self.tag}"

    async def hosts(self, number: int) -> list[str]:
        """Make so many more hosts; returns their names."""
        names = [f"{self.tag}-{len(self._names) + n}" for n in range(1, number + 1)]
        await self.pool.execute(
            "INSERT INTO hosts (name, labels) SELECT n, $2::text::jsonb FROM unnest($1::text[]) n",
            names,
            json.dumps({"of": self.tag}),
        )
        self._names += names
        return names

    async def block(self, host: str, command_type: str = "noop", **rule: object) -> None:
        """Forbid a command on a host; `expires_in_s` from now."""
        await self.pool.execute(
            "INSERT INTO host_command_blocks (host_id, command_type, reason, owner, expires_at) "
            "SELECT id, $2, $3, $4, now() + make_interval(secs => $5) FROM hosts WHERE name = $1",
            host,
            command_type,
            rule.get("reason", "disk is full"),
            rule.get("owner", "eve"),
            rule.get("expires_in_s"),
        )

    def body(self, **changes: object) -> dict[str, Any]:
        """A job for all hosts of this fleet, with an id that nobody had."""
        external_id = f"{self.tag}-job-{next(_numbers)}"
        asked = {"command_type": "noop", "params": {"a": 1}, "selector": self.selector}
        return {"external_id": external_id, **asked, **changes}

    async def submit(self, client: httpx2.AsyncClient, **changes: object) -> int:
        """Send a job; returns its id."""
        answer = await client.post("/webhook/jobs", json=self.body(**changes))
        assert answer.status_code == 202, answer.text
        return int(answer.json()["job_id"])

    async def queue(self, job_id: int) -> list[int]:
        """Plan a job; returns the executions that are in the queue."""
        await jobs.plan(self.pool, job_id, batch=10_000)
        rows = await self.pool.fetch(
            "SELECT id FROM executions WHERE job_id = $1 AND status = 'QUEUED' ORDER BY id", job_id
        )
        return [row["id"] for row in rows]

    async def claim(self, job_id: int, at_most: int | None = None) -> list[Claimed]:
        """Queue a job and claim of it, by a worker that breathes."""
        await workers.beat(self.pool, self.worker)
        wanted = (await self.queue(job_id))[:at_most]
        claimed, _ = await executions.claim(self.pool, wanted, worker_id=self.worker, grace_s=1)
        return sorted(claimed)

    async def say(self, claimed: Sequence[Claimed], event: str, **data: object) -> list[Answer]:
        """Report on what was claimed."""
        said = json.dumps(data) if data else None
        events = [ExecutionEvent(c.execution_id, event, c.epoch, "worker", said) for c in claimed]
        return await EXECUTIONS.record_all(self.pool, events, batch_max=1_000)

    async def written(self) -> tuple[int, ...]:
        """How many rows there are of whatever a job is made of."""
        tables = ("jobs", "executions", "job_counts", "job_timeline", "outbox")
        counted = [await self.pool.fetchval(f"SELECT count(*) FROM {name}") for name in tables]  # noqa: S608 - constants
        return tuple(counted)
