"""A job from its beginning to its end on hosts with agents, driven by the engine itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from onward.channels.agent.channel import AgentChannel
from onward.core.retry import Backoff
from onward.engines.embedded import Engine
from onward.engines.pace import Pace
from onward.fleet.submit import new_job
from onward.fleet.why import Reason, why
from onward.store import browse, database, jobs
from onward.store.host_locks import HostLocks
from onward.wiring import Onward
from tests.agents.faithful import Faithful
from tests.agents.ground import Server, numbers, until
from tests.api.fleet import Fleet


@asynccontextmanager
async def driven(server: Server, shared: Onward) -> AsyncIterator[None]:
    """Have an engine that reaches hosts through their agents."""
    locks = HostLocks(shared.database_url)
    stopping = asyncio.Event()
    pace = Pace(backoff=Backoff(base_s=0.05, max_s=0.2))
    async with database.pooled(shared.database_url, size=4, walking=True) as pool:
        channels = {"agent": AgentChannel(server.services.hub)}
        engine = Engine(pool, locks, channels, chance=lambda: 0.5, pace=pace)
        running = asyncio.create_task(engine.run(stopping))
        try:
            yield
        finally:
            stopping.set()
            await asyncio.wait_for(running, 30)
            await locks.close()


async def submitted(server: Server, host_ids: list[int]) -> int:
    """A job for these hosts."""
    pool = server.services.pool
    await Fleet.made(pool)
    rows = await pool.fetch("SELECT name FROM hosts WHERE id = ANY ($1)", host_ids)
    job = new_job(
        external_id=f"engine-{next(numbers())}",
        command_type="look",
        params={"argv": ["true"]},
        selector=[row["name"] for row in rows],
        max_concurrency=None,
        requested_by="ann",
        params_max_bytes=1_000,
    )
    return (await jobs.submit(pool, job)).job_id


async def states(server: Server, job_id: int) -> list[tuple[str, str | None, int]]:
    rows = await server.services.pool.fetch(
        "SELECT status, cause, retries FROM executions WHERE job_id = $1 ORDER BY id", job_id
    )
    return [tuple(row) for row in rows]


async def test_a_job_waits_for_its_host_and_goes_on_when_the_agent_connects(
    server: Server, shared: Onward
):
    host_id = await server.host()
    pool = server.services.pool
    async with driven(server, shared):
        job_id = await submitted(server, [host_id])

        async def waits() -> bool:
            return await states(server, job_id) == [("QUEUED", "OFFLINE", 0)]

        await until(waits)
        execution_id = await pool.fetchval("SELECT id FROM executions WHERE job_id = $1", job_id)
        row = await browse.why(pool, execution_id, lost_after_s=5)
        assert row is not None
        assert why(row).reason is Reason.HOST_OFFLINE
        faithful = Faithful(server.agent(host_id))
        async with faithful.staying():

            async def done() -> bool:
                return await states(server, job_id) == [("SUCCESS", None, 0)]

            await until(done)
            # Only once it is on disk is it receipted.
            await until(lambda: not faithful.unreceipted and len(faithful.receipted) == 1)
            assert faithful.ran == [str(execution_id)]
    lines = await pool.fetch(
        "SELECT text FROM execution_logs WHERE execution_id = $1", execution_id
    )
    assert [line["text"] for line in lines] == ["done"]


async def test_a_fleet_whose_connections_break_all_the_time_gets_everything_done_once(
    server: Server, shared: Onward
):
    host_ids = [await server.host() for _ in range(20)]
    agents = [Faithful(server.agent(host_id)) for host_id in host_ids]
    async with driven(server, shared), asyncio.TaskGroup() as group:
        staying = [group.create_task(_stay(agent)) for agent in agents]
        made = [await submitted(server, host_ids) for _ in range(5)]
        breaking = group.create_task(_break(agents))

        async def done() -> bool:
            return all([{s for s, *_ in await states(server, job)} == {"SUCCESS"} for job in made])

        await until(done, within_s=60)
        breaking.cancel()
        for agent in agents:
            await until(partial(_receipted, agent))
        for each in staying:
            each.cancel()
    for agent in agents:
        assert len(agent.ran) == len(set(agent.ran)) == 5


def _receipted(agent: Faithful) -> bool:
    return not agent.unreceipted


async def _stay(agent: Faithful) -> None:
    async with agent.staying():
        await asyncio.get_running_loop().create_future()


async def _break(agents: list[Faithful]) -> None:
    """Reset one connection after the other, for as long as it takes."""
    while True:
        for agent in agents:
            if agent.agent.socket is not None:
                agent.agent.socket.transport.abort()
            await asyncio.sleep(0.02)
