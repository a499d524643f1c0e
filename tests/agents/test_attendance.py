"""Who is there is written down, what waits for them goes on, and what they say late is settled."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from onward.channels.agent.messages import Block, Pieces, Result
from onward.channels.base import Stream
from onward.errors import HostOffline
from onward.fleet.output import Output
from onward.fleet.report import Attempt, unreported
from onward.service.serving import services as services_for
from onward.store import agents, executions, hosts
from onward.store.database import Pool
from onward.store.executions import Claimed, ExecutionEvent
from onward.wiring import Onward
from tests.agents.ground import BOUND_S, VERSION, Agent, Server, delivery, serving, silent, until
from tests.api.fleet import Fleet
from tests.present import TESTER


async def claimed(server: Server, *, max_retries: int = 3) -> tuple[int, Claimed]:
    """A host, and an execution that runs there."""
    pool = server.services.pool
    fleet = await Fleet.made(pool)
    (name,) = await fleet.hosts(1)
    await pool.execute(
        "UPDATE hosts SET channel = 'agent', key_generation = 1 WHERE name = $1", name
    )
    job_id = await _submitted(pool, fleet, max_retries)
    (run,) = await fleet.claim(job_id)
    return run.host_id, run


async def _submitted(pool: Pool, fleet: Fleet, max_retries: int) -> int:
    from onward.fleet.submit import new_job  # noqa: PLC0415 - only here
    from onward.store import jobs  # noqa: PLC0415 - as above

    job = new_job(
        external_id=f"job of {fleet.tag}",
        command_type="noop",
        params={},
        selector=fleet.selector,
        max_concurrency=None,
        requested_by="ann",
        params_max_bytes=1_000,
    )
    submitted = await jobs.submit(pool, job)
    await pool.execute(
        "UPDATE jobs SET max_retries = $2 WHERE id = $1", submitted.job_id, max_retries
    )
    return submitted.job_id


async def state(pool: Pool, execution_id: int) -> tuple[str, str | None, int | None]:
    row = await pool.fetchrow(
        "SELECT status, cause, exit_code FROM executions WHERE id = $1", execution_id
    )
    assert row is not None
    return tuple(row)


async def verdicts(pool: Pool, execution_id: int) -> list[tuple[str, str]]:
    """What the agent of its host has said about an execution, and what became of that."""
    rows = await pool.fetch(
        "SELECT event, verdict FROM execution_timeline "
        "WHERE execution_id = $1 AND source = 'agent' ORDER BY seq",
        execution_id,
    )
    return [tuple(row) for row in rows]


async def lines(pool: Pool, execution_id: int) -> list[str]:
    rows = await pool.fetch(
        "SELECT text FROM execution_logs WHERE execution_id = $1 ORDER BY epoch, line", execution_id
    )
    return [row["text"] for row in rows]


# Coming and going


async def test_it_is_written_down_who_is_there_and_since_when(server: Server):
    host_id = await server.host()
    pool = server.services.pool

    async def shown() -> agents.ShownAgent | None:
        page = await agents.page(pool, after=host_id - 1, limit=1, lost_after_s=5)
        return page[0] if page and page[0].host_id == host_id else None

    assert await shown() is None
    async with server.connected(host_id):
        there = await shown()
        assert there is not None
        assert (there.connected, there.version) == (True, VERSION)
        assert there.remote.startswith("127.0.0.1:")

    async def away() -> bool:
        found = await shown()
        return found is not None and not found.connected and found.since > there.since

    await until(away)


async def test_agents_of_a_process_that_has_stopped_beating_are_not_there(server: Server):
    host_id = await server.host()
    pool = server.services.pool
    place = await server.services.attendance.registered()
    dead = await agents.register_hub(pool, url="http://127.0.0.1:1", secret=b"s")
    arrival = agents.Arrival(host_id, 1, VERSION, "")
    assert await agents.connected(pool, [arrival], hub_id=dead) == {host_id: 1}
    assert list(await agents.places(pool, [host_id], lost_after_s=5)) == [host_id]
    await pool.execute("UPDATE hubs SET beat_at = now() - interval '6 s' WHERE id = $1", dead)
    assert await agents.places(pool, [host_id], lost_after_s=5) == {}
    (shown,) = await agents.page(pool, after=host_id - 1, limit=1, lost_after_s=5)
    assert not shown.connected
    # One that was only slow is there again, and knows that it has been taken for dead.
    late = agents.Place(dead, "http://127.0.0.1:1", b"s")
    assert await agents.beat_hub(pool, late, lost_after_s=5)
    assert not await agents.beat_hub(pool, late, lost_after_s=5)
    assert list(await agents.places(pool, [host_id], lost_after_s=5)) == [host_id]
    # Also one whose row somebody has swept away.
    await agents.leave_hub(pool, dead)
    assert await agents.beat_hub(pool, late, lost_after_s=5)
    assert place.hub_id != dead


async def test_a_late_word_about_a_former_connection_changes_nothing(server: Server):
    host_id = await server.host()
    pool = server.services.pool
    hub_id = (await server.services.attendance.registered()).hub_id
    arrival = agents.Arrival(host_id, 1, VERSION, "")
    for session in (1, 2):
        assert await agents.connected(pool, [arrival], hub_id=hub_id) == {host_id: session}
    await agents.left(pool, [(host_id, 1)])
    assert await agents.places(pool, [host_id], lost_after_s=5)
    await agents.left(pool, [(host_id, 2)])
    assert not await agents.places(pool, [host_id], lost_after_s=5)


async def test_what_was_written_down_and_is_not_there_is_swept_up(server: Server):
    """As after a connection that broke while the database was away."""
    host_id = await server.host()
    pool = server.services.pool
    hub_id = (await server.services.attendance.registered()).hub_id
    arrival = agents.Arrival(host_id, 1, VERSION, "")
    await agents.connected(pool, [arrival], hub_id=hub_id)

    async def swept() -> bool:
        server.services.attendance.nudge()
        return not await agents.places(pool, [host_id], lost_after_s=5)

    await until(swept)


# What is forbidden, and whose key it is


async def test_an_agent_is_told_what_is_forbidden_at_once_and_when_that_changes(server: Server):
    host_id = await server.host()
    pool = server.services.pool
    rule = {"reason": "its disk is full", "owner": "eve", "expires_at": None}
    await hosts.block(pool, host_id, "DEPLOY", version=1, **rule, by=TESTER)  # type: ignore[arg-type]
    async with server.connected(host_id) as agent:
        await until(agent.blocks)
        assert agent.blocks()[0].rules == (Block("DEPLOY", "its disk is full", "eve", None),)
        await hosts.unblock(pool, host_id, "DEPLOY", version=2, by=TESTER)
        server.services.attendance.nudge()
        await until(lambda: agent.blocks()[-1].rules == ())


async def test_an_agent_whose_key_was_taken_elsewhere_is_sent_away(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        await agents.take_key(server.services.pool, host_id, by=TESTER)
        server.services.attendance.nudge()
        assert agent.closed is not None
        assert await asyncio.wait_for(agent.closed, BOUND_S) == 4410
    again = server.agent(host_id)
    with pytest.raises(Exception, match="4404"):
        await again.connect()


async def test_an_agent_that_has_connected_to_another_process_is_displaced_here(
    server: Server, shared: Onward
):
    host_id = await server.host()
    services = replace(services_for(shared), keyring=server.services.keyring)
    other = services_for(shared, keyring=server.services.keyring)
    assert services.hub is not other.hub
    async with server.connected(host_id) as old, serving(shared, services=other) as elsewhere:
        agent = elsewhere.agent(host_id)
        async with agent.connected():
            await until(lambda: elsewhere.services.hub.has(host_id))
            server.services.attendance.nudge()
            assert old.closed is not None
            assert await asyncio.wait_for(old.closed, BOUND_S) == 4409
            assert elsewhere.services.hub.has(host_id)


# What waits for a host


async def test_what_waited_for_an_agent_is_due_when_it_connects(server: Server):
    host_id, run = await claimed(server)
    pool = server.services.pool
    with pytest.raises(HostOffline) as error:
        await server.services.hub.deliver(delivery(host_id), silent)
    attempt = Attempt(run.execution_id, run.epoch, 0, 3)
    backoff = services_backoff(server)
    event = unreported(attempt, error.value, backoff, 0.5)
    await executions.report(pool, [event], ())
    assert not await executions.wanted(pool, [run.execution_id])
    async with server.connected(host_id):

        async def due() -> object:
            return await executions.wanted(pool, [run.execution_id])

        await until(due)
    row = await pool.fetchrow(
        "SELECT e.due_at = q.due_at AS same, e.retries FROM executions e "
        "JOIN queue q ON q.execution_id = e.id WHERE e.id = $1",
        run.execution_id,
    )
    assert row is not None
    assert tuple(row) == (True, 0)


async def test_what_waits_for_something_else_is_left_alone(server: Server):
    host_id, run = await claimed(server)
    pool = server.services.pool
    attempt = Attempt(run.execution_id, run.epoch, 0, 3)
    from onward.errors import NotDelivered  # noqa: PLC0415 - only here

    event = unreported(attempt, NotDelivered("no"), services_backoff(server), 0.9)
    await executions.report(pool, [event], ())
    before = await pool.fetchval("SELECT due_at FROM executions WHERE id = $1", run.execution_id)
    await agents.wake(pool, [host_id])
    after = await pool.fetchval("SELECT due_at FROM executions WHERE id = $1", run.execution_id)
    assert after == before


def services_backoff(server: Server):
    return server.services.attendance._backoff


# Results that nobody waits for


async def say_late(agent: Agent, run: Claimed, **said: object) -> None:
    result = Result(str(run.execution_id), run.epoch, **({"succeeded": True} | said))  # type: ignore[arg-type]
    await agent.say(result)


async def test_a_result_that_nobody_waits_for_is_settled_and_then_receipted(server: Server):
    host_id, run = await claimed(server)
    pool = server.services.pool
    async with server.connected(host_id) as agent:
        attempt = (str(run.execution_id), run.epoch)
        await agent.say(Pieces(*attempt, 0, ((Stream.STDOUT, "one\ntwo\n"),)))
        await agent.say(Pieces(*attempt, 8, ((Stream.STDOUT, "three"),)))
        await say_late(agent, run, exit_code=0)
        await until(lambda: agent.receipts() == [attempt])
        assert await state(pool, run.execution_id) == ("SUCCESS", None, 0)
        assert await lines(pool, run.execution_id) == ["one", "two", "three"]
        assert await output(pool, run.execution_id) == digest("one\ntwo\nthree")
        # Said once more, it is evidence and no more than that, and its output is not doubled.
        await agent.say(Pieces(*attempt, 0, ((Stream.STDOUT, "one\ntwo\nthree"),)))
        await say_late(agent, run, exit_code=0)
        await until(lambda: agent.receipts() == [attempt, attempt])
        assert await verdicts(pool, run.execution_id) == [
            ("succeed", "OK"),
            ("succeed", "TERMINAL"),
        ]
        assert await lines(pool, run.execution_id) == ["one", "two", "three"]


def digest(text: str) -> str | None:
    """What is kept of somebody who printed this."""
    printed = Output(1, 1, 1)
    printed(Stream.STDOUT, text)
    printed.close()
    return printed.digest


async def output(pool: Pool, execution_id: int) -> str | None:
    found: str | None = await pool.fetchval(
        "SELECT encode(output, 'hex') FROM executions WHERE id = $1", execution_id
    )
    return found


async def test_what_was_printed_by_one_that_was_given_up_is_known_when_it_says_so(server: Server):
    host_id, run = await claimed(server, max_retries=0)
    pool = server.services.pool
    timeout = ExecutionEvent(run.execution_id, "timeout", run.epoch)
    await executions.report(pool, [timeout], ())
    assert await output(pool, run.execution_id) is None
    async with server.connected(host_id) as agent:
        attempt = (str(run.execution_id), run.epoch)
        await agent.say(Pieces(*attempt, 0, ((Stream.STDOUT, "done after all\n"),)))
        await say_late(agent, run, exit_code=0)
        await until(agent.receipts)
    assert (await state(pool, run.execution_id))[0] == "TIMEOUT"
    assert await output(pool, run.execution_id) == digest("done after all\n")


@pytest.mark.parametrize(
    ("max_retries", "said", "expected"),
    [
        (3, {"succeeded": False, "exit_code": 2}, ("QUEUED", "FAILED", 2)),
        (0, {"succeeded": False, "exit_code": 2}, ("FAILED", "FAILED", 2)),
        (0, {"succeeded": False, "exit_code": 124}, ("TIMEOUT", "TIMED_OUT", 124)),
        (0, {"succeeded": False, "unknown": True}, ("TIMEOUT", "DELIVERY_UNKNOWN", None)),
        (3, {"succeeded": False, "unknown": True}, ("QUEUED", "DELIVERY_UNKNOWN", None)),
        (
            0,
            {"succeeded": False, "exit_code": 2**40, "error": "\0\ud800"},
            ("FAILED", "FAILED", None),
        ),
    ],
)
async def test_a_late_result_is_judged_like_any_other(
    server: Server, max_retries: int, said: dict[str, object], expected: tuple[object, ...]
):
    host_id, run = await claimed(server, max_retries=max_retries)
    async with server.connected(host_id) as agent:
        await say_late(agent, run, **said)
        await until(agent.receipts)
    assert await state(server.services.pool, run.execution_id) == expected


async def test_a_late_result_of_a_former_attempt_is_evidence(server: Server):
    host_id, run = await claimed(server)
    pool = server.services.pool
    async with server.connected(host_id) as agent:
        await say_late(agent, run._replace(epoch=run.epoch - 1))
        await until(agent.receipts)
    assert (await state(pool, run.execution_id))[0] == "RUNNING"
    assert await verdicts(pool, run.execution_id) == [("succeed", "STALE_EPOCH")]


async def test_an_agent_cannot_speak_for_another_host(server: Server):
    _, run = await claimed(server)
    stranger = await server.host()
    pool = server.services.pool
    async with server.connected(stranger) as agent:
        await say_late(agent, run)
        for odd in ("", "0", "-1", "x", "9" * 18, "9" * 30, "\N{FULLWIDTH DIGIT ONE}"):
            await agent.say(Result(odd, 1, succeeded=True))
        # Each is receipted: there is nobody who could do anything about it.
        await until(lambda: len(agent.receipts()) == 8)
    assert (await state(pool, run.execution_id))[0] == "RUNNING"
    assert await verdicts(pool, run.execution_id) == []


async def test_what_was_stopped_on_our_word_is_not_reported_as_failed(server: Server):
    host_id, run = await claimed(server)
    async with server.connected(host_id) as agent:
        wanted = delivery(host_id, command_id=str(run.execution_id), epoch=run.epoch)
        assert await server.services.hub.cancel(wanted)
        await say_late(agent, run, succeeded=False, exit_code=143)
        await until(agent.receipts)
    assert (await state(server.services.pool, run.execution_id))[0] == "RUNNING"
