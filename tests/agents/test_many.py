"""A fleet of agents on one server process: connected, asked, lost and there again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from onward.channels.base import Report
from onward.channels.keyring import KeyRing
from onward.service.serving import services as services_for
from onward.store import hosts
from onward.store.hosts import NewHost
from onward.wiring import Onward
from tests.agents.ground import Server, delivery, serving, silent, until
from tests.present import TESTER
from tests.proof_table import Tried

MASTER = b"the master key of a crowd"
WITHIN_S = 200.0


@asynccontextmanager
async def crowd(
    server: Server, first: int, number: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Agents of hosts with following numbers, in a process of their own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.agents.crowd", server.url, str(first), str(number),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(f"{MASTER.hex()}\n".encode())
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_agents_by_the_thousand_stay_connected_to_one_process(
    shared: Onward, tried: Tried, *, proof: bool
):
    number = 5_000 if proof else 150
    services = services_for(shared, keyring=KeyRing(MASTER))
    pool, hub = services.pool, services.hub
    made = [NewHost(f"many-{n}", {}, "agent", "") for n in range(number)]
    await hosts.import_all(pool, made, by=TESTER)
    first = await pool.fetchval("SELECT min(id) FROM hosts WHERE name LIKE 'many-%'")
    await pool.execute("UPDATE hosts SET key_generation = 1 WHERE name LIKE 'many-%'")

    async def written_down() -> int:
        return int(await pool.fetchval("SELECT count(*) FROM agents WHERE hub_id IS NOT NULL"))

    async def asked(host_id: int) -> Report:
        return await hub.deliver(delivery(host_id, command_type="ping", params={}), silent)

    async with serving(shared, services=services) as server:
        async with crowd(server, first, number) as process:
            await until(lambda: len(hub) == number, within_s=WITHIN_S)
            await until(lambda: _is(written_down(), number))
            for _ in range(3):
                reports = await asyncio.gather(*map(asked, range(first, first + number)))
                assert all(report.succeeded for report in reports)
            # They are gone at once, and without a word.
            process.kill()
            await until(lambda: len(hub) == 0, within_s=WITHIN_S)
            await until(lambda: _is(written_down(), 0), within_s=WITHIN_S)
        async with crowd(server, first, number):
            await until(lambda: len(hub) == number, within_s=WITHIN_S)
            reports = await asyncio.gather(*map(asked, range(first, first + number)))
            assert all(report.succeeded for report in reports)
    tried("agents on one server process", number, "all connected, all answered")


async def _is(counting: Awaitable[int], expected: int) -> bool:
    return await counting == expected
