"""What the server does with connected agents: commands reach them, and nothing they say is lost."""

from __future__ import annotations

import asyncio

import pytest

from onward.channels.agent.messages import Pieces, Refused, Result
from onward.channels.base import Stream
from onward.errors import DeliveryUnknown, HostBusy, HostOffline, HostRefused
from tests.agents.ground import Server, delivery, silent, until


async def test_a_command_reaches_its_agent_and_its_report_comes_back(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        wanted = delivery(
            host_id, params={"argv": ["echo", "指令"], "word": "hush"}, masked=["word"]
        )
        report = await server.services.hub.deliver(wanted, silent)
        assert (report.succeeded, report.exit_code) == (True, 0)
        (run,) = agent.runs()
        assert (run.cmd, run.epoch, run.type) == (wanted.command_id, wanted.epoch, "RUN")
        assert run.program is not None
        assert run.program.argv == ("echo", "指令")
        assert dict(run.program.secrets) == {"ONWARD_WORD": "hush"}
        assert dict(run.params) == {}, "the program has it"
        wanted = delivery(
            host_id, params={"n": 1, "word": "hush"}, masked=["word"], argv=["echo", "{n}"]
        )
        await server.services.hub.deliver(wanted, silent)
        run = agent.runs()[-1]
        assert run.program is not None
        assert run.program.argv == ("echo", "1")
        assert dict(run.params) == {"n": 1}


async def test_a_ping_needs_no_program(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        wanted = delivery(host_id, command_type="PING", params={})
        assert (await server.services.hub.deliver(wanted, silent)).succeeded
        assert agent.runs()[0].program is None


async def test_who_is_not_connected_gets_nothing(server: Server):
    host_id = await server.host()
    for call in (server.services.hub.deliver(delivery(host_id), silent),
                 server.services.hub.cancel(delivery(host_id))):  # fmt: skip
        with pytest.raises(HostOffline):
            await call
    await server.services.hub.receipt(delivery(host_id))


async def test_an_agent_that_has_not_said_that_it_is_ready_is_not_there(server: Server):
    host_id = await server.host()
    agent = server.agent(host_id)
    await agent.meet()
    with pytest.raises(HostOffline):
        await server.services.hub.deliver(delivery(host_id), silent)
    assert agent.socket is not None
    await agent.socket.close()


async def test_output_is_passed_on_once_also_when_it_comes_again(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        agent.answers = False
        heard: list[tuple[Stream, str]] = []
        wanted = delivery(host_id)
        running = asyncio.create_task(
            server.services.hub.deliver(wanted, lambda *piece: heard.append(piece))
        )
        await until(agent.runs)
        attempt = (wanted.command_id, wanted.epoch)
        await agent.say(Pieces(*attempt, 0, ((Stream.STDOUT, "one"), (Stream.STDERR, "two"))))
        await agent.say(Pieces(*attempt, 0, ((Stream.STDOUT, "one"), (Stream.STDERR, "twothree"))))
        await agent.say(Pieces(*attempt, 11, ((Stream.STDOUT, "four"),)))
        await agent.say(Result(*attempt, succeeded=False, exit_code=3, error="no"))
        report = await running
        assert (report.succeeded, report.exit_code, report.error) == (False, 3, "no")
        assert heard == [
            (Stream.STDOUT, "one"), (Stream.STDERR, "two"), (Stream.STDERR, "three"),
            (Stream.STDOUT, "four"),
        ]  # fmt: skip


@pytest.mark.parametrize(("busy", "kind"), [(True, HostBusy), (False, HostRefused)])
async def test_what_an_agent_refuses_has_not_run(
    server: Server, *, busy: bool, kind: type[HostRefused]
):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        agent.answers = False
        wanted = delivery(host_id)
        running = asyncio.create_task(server.services.hub.deliver(wanted, silent))
        await until(agent.runs)
        await agent.say(Refused(wanted.command_id, wanted.epoch, busy, "not\0now \ud800"))
        with pytest.raises(kind, match=r"not\\x00now \\ud800") as refusal:
            await running
        assert type(refusal.value) is kind


async def test_what_was_interrupted_on_the_host_is_unknown(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        agent.answers = False
        wanted = delivery(host_id)
        running = asyncio.create_task(server.services.hub.deliver(wanted, silent))
        await until(agent.runs)
        await agent.say(
            Result(wanted.command_id, wanted.epoch, succeeded=False, unknown=True, error="a crash")
        )
        with pytest.raises(DeliveryUnknown, match="a crash"):
            await running


async def test_a_connection_that_is_lost_leaves_it_unknown(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        agent.answers = False
        running = asyncio.create_task(server.services.hub.deliver(delivery(host_id), silent))
        stopping = asyncio.create_task(server.services.hub.cancel(delivery(host_id)))
        await until(agent.runs)
        assert agent.socket is not None
        agent.socket.transport.abort()
        for call in (running, stopping):
            with pytest.raises(DeliveryUnknown):
                await call
    await until(lambda: not server.services.hub.has(host_id))


async def test_a_run_is_stopped_once_its_agent_says_so(server: Server):
    host_id = await server.host()
    async with server.connected(host_id):
        assert await server.services.hub.cancel(delivery(host_id))


async def test_what_the_agent_reported_is_receipted(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        wanted = delivery(host_id)
        await server.services.hub.deliver(wanted, silent)
        assert agent.receipts() == []
        await server.services.hub.receipt(wanted)
        await until(lambda: agent.receipts() == [(wanted.command_id, wanted.epoch)])


async def test_a_command_that_fits_into_no_frame_is_refused(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        with pytest.raises(HostRefused, match="too large"):
            await server.services.hub.deliver(
                delivery(host_id, params={"argv": ["x" * 2**20]}), silent
            )
        assert (await server.services.hub.deliver(delivery(host_id), silent)).succeeded
        assert len(agent.runs()) == 1


async def test_a_newer_connection_displaces_the_older_one(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as old, server.connected(host_id) as new:
        assert old.closed is not None
        assert await asyncio.wait_for(old.closed, 5) == 4409
        assert (await server.services.hub.deliver(delivery(host_id), silent)).succeeded
        assert (len(old.runs()), len(new.runs())) == (0, 1)
        # The late word about the old one changes nothing.
        rows = await server.services.pool.fetch(
            "SELECT hub_id IS NOT NULL AS there, session FROM agents WHERE host_id = $1", host_id
        )
        assert [tuple(row) for row in rows] == [(True, 2)]


async def test_a_call_that_was_given_up_disturbs_no_other(server: Server):
    host_id = await server.host()
    async with server.connected(host_id) as agent:
        agent.answers = False
        wanted = delivery(host_id)
        given_up = asyncio.create_task(server.services.hub.deliver(wanted, silent))
        await until(agent.runs)
        given_up.cancel()
        again = asyncio.create_task(server.services.hub.deliver(wanted, silent))
        await until(lambda: len(agent.runs()) == 2)
        await agent.say(Result(wanted.command_id, wanted.epoch, succeeded=True, repeated=True))
        assert (await again).repeated
