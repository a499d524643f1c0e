"""All of it in one process: servers, API, engine and reaper, until somebody asks it to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

import structlog

import onward
from onward.api import first_key
from onward.api.app import create_app
from onward.api.events import end_streams
from onward.channels.keyring import key_ring
from onward.engines.equipment import Simulated, pace
from onward.service import leaving, waiting
from onward.service.listening import Listener, listening, serve
from onward.service.serving import services
from onward.service.trading import trade
from onward.service.working import work
from onward.settings import Settings
from onward.trading.money import currencies
from onward.wiring import Onward

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.service")


@dataclass(frozen=True, slots=True)
class Service:
    """What is to be run."""

    settings: Settings
    simulated: Simulated | None  # none: no engine, the API alone
    access_log: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """What somebody needs to know to use it."""

    address: str
    loopback: bool
    key: str  # where the key of an admin is, never the key
    data: str  # where everything is kept


def run(service: Service, ready: Callable[[Ready], None]) -> None:
    """Run the service until it is told to leave; `ready` is called once it answers."""
    # What is wrong with the settings is said before anything is started.
    pace(service.settings)
    currencies(service.settings.currencies)
    with listening(service.settings.host, service.settings.port) as listener:
        leaving.run(partial(_run, service, listener, ready))


async def _run(
    service: Service,
    listener: Listener,
    ready: Callable[[Ready], None],
    stopping: asyncio.Event,
) -> None:
    settings = service.settings
    async with _opening(service, stopping) as opened:
        if opened is None:
            return
        key = await _key(opened)
        if stopping.is_set():
            return

        def answering() -> None:
            ready(Ready(listener.address, listener.loopback, key, _data(settings)))
            log.info("up", address=listener.address)

        found = services(opened, keyring=key_ring(settings), url=listener.address)
        app = create_app(found)
        async with asyncio.TaskGroup() as group:
            attending = group.create_task(found.attendance.run(found.hub))
            group.create_task(trade(found.market, opened.database_url, settings, stopping))
            engine = None
            if service.simulated is not None:
                engine = group.create_task(
                    work(opened.database_url, settings, service.simulated, stopping, found.hub)
                )
            serving = group.create_task(
                serve(
                    app,
                    listener,
                    _over(group, stopping, engine),
                    access_log=service.access_log,
                    ready=answering,
                    hang_up=partial(end_streams, app),
                )
            )
            await serving
            attending.cancel()
    log.info("left")


def _over(
    group: asyncio.TaskGroup, stopping: asyncio.Event, engine: asyncio.Task[None] | None
) -> asyncio.Event:
    """Return what is set when nobody needs the connections any more.

    What runs on agents comes to its end over them, so the engine leaves first.
    """
    if engine is None:
        return stopping
    over = asyncio.Event()

    async def watch() -> None:
        await asyncio.wait([engine])
        over.set()

    group.create_task(watch())
    return over


def _opening(
    service: Service, stopping: asyncio.Event
) -> AbstractAsyncContextManager[Onward | None]:
    if service.simulated is None:
        return waiting.opened(service.settings, stopping, valkey=True)
    # All of it in one process is started by a person, who wants to know what is missing.
    return onward.open(service.settings, valkey=True, may_be_away=True)


def _data(settings: Settings) -> str:
    if settings.database_url is not None:
        return "in the PostgreSQL of ONWARD_DATABASE_URL"
    return str(settings.data_dir)


async def _key(opened: Onward) -> str:
    """See to it that there is a key, and say where."""
    settings = opened.settings
    made = await first_key.first_key(opened.commands.pool, settings)
    path = settings.data_dir / first_key.FILE
    if made is not None:
        return f"{made.path} (an admin's, made just now; only you can read it)"
    if settings.admin_key is not None:
        return f"what {first_key.FROM_ENVIRONMENT} holds (an admin's)"
    if path.is_file():
        return f"{path} (an admin's, made by the first start)"
    return "an admin has one; the first was made elsewhere"
