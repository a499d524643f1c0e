"""The agent as a whole: its state opened, its past taken up, its host enrolled, its line held."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

import onward
from onward.agent import enrolment
from onward.agent.carrying import At
from onward.agent.host import Host
from onward.agent.journal import Journal
from onward.agent.line import PAUSE_MAX_S, Line, ServerClock
from onward.agent.running import Limits, Place
from onward.agent.server import Server
from onward.agent.state import State, opened

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.agent")


@dataclass(frozen=True, slots=True)
class Options:
    """How an agent is started."""

    server: Server
    state: Path
    token: str | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits)
    run_as: str | None = None
    drain_s: float = 30.0
    pause_max_s: float = PAUSE_MAX_S
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


async def run(options: Options, stopping: asyncio.Event, *, at: At = lambda _: None) -> None:
    """Be the agent of this host until asked to leave; then what runs may end first."""
    with opened(options.state) as state:
        journal = Journal(state.journal)
        try:
            await _serve(options, state, journal, stopping=stopping, at=at)
        finally:
            journal.close()


async def _serve(
    options: Options, state: State, journal: Journal, *, stopping: asyncio.Event, at: At
) -> None:
    clock = ServerClock()
    place = Place(state.temporary, options.environment, options.run_as)
    host = Host(journal, limits=options.limits, place=place, at=at, clock=clock)
    host.recover()
    place.clear()
    identity = await enrolment.identity(state, options.server, options.token)
    line = Line(
        options.server,
        identity,
        host,
        clock=clock,
        version=onward.__version__,
        pause_max_s=options.pause_max_s,
    )
    tasks = [asyncio.create_task(line.hold()), asyncio.create_task(host.care())]
    asked = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({*tasks, asked}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            await host.leave(options.drain_s)
    finally:
        for task in (*tasks, asked):
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error
