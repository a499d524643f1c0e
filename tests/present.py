"""Changes of whatever is there, by somebody who has just looked."""

from __future__ import annotations

from typing import Any, Final

import httpx2

from onward.store import hosts, jobs
from onward.store.audit import Doer
from onward.store.database import Pool
from onward.store.hosts import Ruled

TESTER: Final = Doer("test")


async def pause(pool: Pool, job_id: int, *, paused: bool, by: str = "ann") -> bool:
    """Hold a job back, or let it go on; false if nothing changed."""
    version = await pool.fetchval("SELECT version FROM jobs WHERE id = $1", job_id)
    done = await jobs.pause(pool, job_id, version=version, paused=paused, by=by)
    assert done is not None
    return done.changed


async def block(pool: Pool, host_id: int, command_type: str, **rule: Any) -> Ruled:
    """Forbid a command type on a host."""
    rule = {"reason": "", "owner": "", "expires_at": None, **rule}
    return await hosts.block(
        pool, host_id, command_type, version=await _version(pool, host_id), **rule, by=TESTER
    )


async def unblock(pool: Pool, host_id: int, command_type: str) -> Ruled:
    """Allow a command type on a host again."""
    return await hosts.unblock(
        pool, host_id, command_type, version=await _version(pool, host_id), by=TESTER
    )


async def seen(client: httpx2.AsyncClient, path: str) -> dict[str, str]:
    """The header with which somebody changes what they see at a path now."""
    return {"If-Match": (await client.get(path)).headers["etag"]}


async def _version(pool: Pool, host_id: int) -> int:
    found: int = await pool.fetchval("SELECT version FROM hosts WHERE id = $1", host_id)
    return found
