"""One process of a worker: an event loop in a thread of its own, and the hands that live there.

Celery calls tasks in the process's main thread; they are handed to the loop and waited for. If the
loop dies, the process does, and Celery starts another: one that takes messages and does nothing
would look alive.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import urlsplit

import billiard.pool
import structlog
from anyio.from_thread import BlockingPortal, start_blocking_portal
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from onward.engines.celery import names
from onward.engines.celery.hands import Hands, Message
from onward.engines.equipment import Simulated, pace
from onward.engines.ways import ways
from onward.errors import InvalidInput, InvariantBroken, ServerProblem
from onward.settings import Settings
from onward.store import database
from onward.store.host_locks import HostLocks

READY_S: Final = 60.0
_PAUSE_S: Final = 0.2  # between looks for a server that is away
_ANSWERS_HEARD_TRIES: Final = 10  # of a tenth of a second each
_BROKEN: Final = 70  # the process's own exit code: a bug, not a wish to leave

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.celery")


def broker_url(settings: Settings) -> str:
    """Return where messages go, in the words of Celery."""
    given = settings.broker_url or settings.redis_url
    if given is None:
        raise InvalidInput(
            "ONWARD_BROKER_URL", "is not set; name a Redis, Valkey or RabbitMQ, or ONWARD_REDIS_URL"
        )
    parts = urlsplit(given)
    if parts.scheme == "unix":
        return f"redis+socket://{parts.path}?virtual_host=0"
    return given


class CeleryBroker:
    """The broker of a Celery application, for whoever only sends hints."""

    def __init__(self, app: Celery[Any]) -> None:
        self._app = app
        known = app.connection_for_write().connection_errors
        self._away: tuple[type[BaseException], ...] = (OperationalError, OSError, *known)

    def send(self, task: str, messages: Sequence[Message]) -> None:
        """Send messages; one that cannot be sent is given up."""
        try:
            with self._app.producer_or_acquire() as producer:
                for message in messages:
                    self._app.send_task(
                        task,
                        args=(message.argument,),
                        headers={names.TRACE: dict(message.trace)},
                        producer=producer,
                        retry=False,
                        ignore_result=True,
                    )
        except self._away as error:
            log.warning("broker_away", problem=type(error).__name__)

    def waiting(self) -> int | None:
        """Say how many messages nobody has taken yet; nothing, if it does not say."""
        try:
            with self._app.connection_or_acquire() as connection:
                return sum(self._waiting(connection, queue) for queue in names.QUEUES)
        except self._away as error:
            log.warning("broker_away", problem=type(error).__name__)
            return None

    def _waiting(self, connection: Connection, queue: str) -> int:
        connection.default_channel  # noqa: B018 - connects, if that is to be done
        try:
            # A channel of its own, because RabbitMQ closes the one that asks in vain.
            with connection.channel() as channel:
                declare = channel.queue_declare  # type: ignore[attr-defined]  # left out there
                return int(declare(queue, passive=True).message_count)
        except connection.channel_errors:
            return 0  # there is no such queue, so nobody has ever sent anything


class Crew:
    """What one process has: the loop, and the hands in it."""

    def __init__(self, app: Celery[Any]) -> None:
        self._app = app
        self._left = ExitStack()
        self._ready = threading.Event()
        self._hands: Hands | None = None

    def begin(self) -> None:
        """Start the loop, and wait until the hands are there."""
        portal = start_blocking_portal("asyncio", backend_options={"use_uvloop": True})
        self._portal: BlockingPortal = self._left.enter_context(portal)
        self._living = self._portal.start_task_soon(self._live)
        self._living.add_done_callback(_die_of)
        if not self._ready.wait(READY_S):
            # Celery would only log an error, and keep a process that can do nothing.
            log.error("worker_died", problem=f"it did not begin within {READY_S:g} s")
            os._exit(_BROKEN)

    def call(self, deed: str, *given: object) -> None:
        """Do something in the loop, and wait until it is done."""
        try:
            self._portal.call(getattr(self._hands, deed), *given)
        except ServerProblem as error:
            # What the message was about is in the tables, and will be found there.
            log.warning("server_away", problem=str(error))

    def end(self) -> None:
        """Let what runs end, and leave."""
        if self._hands is not None:
            self._portal.call(self._hands.leave)
            self._living.result()
        self._left.close()

    async def _live(self) -> None:
        settings = Settings()
        url = settings.database_url
        if url is None:
            raise InvalidInput("ONWARD_DATABASE_URL", "is not set; workers need a PostgreSQL")
        await _until_there(url)
        locks = HostLocks(url)
        simulated = Simulated(settings.simulated_network, 0, settings.simulated_fleet)
        async with (
            database.pooled(url, size=settings.pool_size, walking=True) as pool,
            ways(settings, pool, simulated) as found,
        ):
            try:
                self._hands = Hands(
                    pool,
                    locks,
                    found,
                    broker=CeleryBroker(self._app),
                    chance=random.SystemRandom().random,
                    pace=pace(settings),
                )
                await self._hands.live(self._ready.set)
            finally:
                await locks.close()


async def _until_there(url: str) -> None:
    """Wait for a server: if this process died for want of one, Celery would start the next."""
    while True:
        try:
            connection = await database.connect(url)
        except ServerProblem as error:
            log.warning("server_away", problem=str(error))
            await asyncio.sleep(_PAUSE_S)
        else:
            await connection.close()
            return


_crews: list[Crew] = []  # of this process: one, from when it begins until it ends


def crew() -> Crew:
    """Return the crew of this process."""
    if not _crews:
        raise InvariantBroken("a task was called in a process that has no worker: use prefork")
    return _crews[0]


def begin(app: Celery[Any]) -> None:
    """Make the crew of this process."""
    # A process that is to end first waits until all that it has done was taken note of. That may
    # never be, if the main process looked away too early: not for the half minute of the default.
    billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = _ANSWERS_HEARD_TRIES
    made = Crew(app)
    made.begin()
    _crews.append(made)


def end() -> None:
    """Let the crew of this process leave."""
    while _crews:
        _crews.pop().end()


def _die_of(living: object) -> None:
    error = living.exception()  # type: ignore[attr-defined]
    if error is not None:
        log.error("worker_died", problem=repr(error))
        os._exit(_BROKEN)
