"""Puts the parts together: the only module that knows all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg
import structlog

from onward.errors import NotOpen, ServerUnreachable
from onward.settings import Settings
from onward.store import database, schema
from onward.store.commands import Commands
from onward.store.ledger import Posts
from onward.store.locks import Locks
from onward.store.valkey import check as check_redis
from onward.trading.tokens import Tokens

if TYPE_CHECKING:
    from onward.embedded import Servers


log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.wiring")


@dataclass(frozen=True, slots=True)
class Onward:
    """What is open: settings, and the stores on top of one database."""

    settings: Settings
    database_url: str
    redis_url: str | None  # only where it was asked for
    commands: Commands
    locks: Locks
    tokens: Tokens
    posts: Posts


# Whoever was opened by the code around us; and, for code that runs in a context of its own (a
# callback, another task's fixture), whoever was opened last in this process.
_around: ContextVar[Onward | None] = ContextVar("onward_around", default=None)
_opened: list[Onward] = []


def current() -> Onward:
    """Return what is open here."""
    if found := _around.get() or (_opened[-1] if _opened else None):
        return found
    raise NotOpen("Nothing is open here: put the call inside `async with onward.open():`.")


@asynccontextmanager
async def open(  # noqa: A001 - `onward.open()` is the name users read
    settings: Settings | None = None, *, valkey: bool = False, may_be_away: bool = False
) -> AsyncIterator[Onward]:
    """Open Onward: on the embedded PostgreSQL, or on the one that the settings name.

    With `valkey`, a Valkey or Redis as well: the embedded one, or the one that the settings name.
    It only helps: a service that is started while the one of its settings is away does without it
    for a while, if it `may_be_away`.

    The database is migrated first if it needs to be. On leaving, calls that still wait are
    answered, and the embedded server is stopped if nobody else uses it.
    """
    settings = settings or Settings()
    async with AsyncExitStack() as stack:
        url, redis_url = await _servers(stack, settings, valkey=valkey)
        identity = await _prepare(url, settings)
        if redis_url:
            await _look_for(redis_url, may_be_away=may_be_away)
        pool = await stack.enter_async_context(database.pooled(url, size=settings.pool_size))
        commands = Commands(
            pool,
            batch_max=settings.batch_max_events,
            group_wait_s=settings.group_commit_ms / 1_000,
        )
        stack.push_async_callback(commands.close)
        locks = Locks(redis_url, database=identity)
        stack.push_async_callback(locks.close)
        tokens = Tokens(pool, redis_url, database=identity)
        stack.push_async_callback(tokens.close)
        posts = Posts(pool, wait_s=settings.group_commit_ms / 1_000)
        stack.push_async_callback(posts.close)
        opened = Onward(settings, url, redis_url, commands, locks, tokens, posts)
        _opened.append(opened)
        stack.callback(_opened.remove, opened)
        token = _around.set(opened)
        try:
            yield opened
        finally:
            try:
                _around.reset(token)
            except ValueError:
                # Left in another context than it was entered in, as test fixtures do.
                _around.set(None)


async def _look_for(redis_url: str, *, may_be_away: bool) -> None:
    try:
        await check_redis(redis_url)
    except ServerUnreachable as error:
        if not may_be_away:
            raise
        log.warning("redis_away", problem=str(error))


async def _prepare(url: str, settings: Settings) -> str:
    """Make the database ready for us; returns what no other is called."""
    connection = await database.connect(url)
    try:
        await database.check_server(connection, durable=settings.require_durable)
        await schema.upgrade(connection, timeline_keep_months=settings.timeline_keep_months)
        return await database.identity(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise ServerUnreachable(
            f"PostgreSQL does not let this role prepare the database ({error}); "
            "grant it CREATE there, or run `onward db upgrade` as the owner first."
        ) from error
    finally:
        await connection.close()


async def _servers(
    stack: AsyncExitStack, settings: Settings, *, valkey: bool
) -> tuple[str, str | None]:
    """Return the addresses of PostgreSQL and Valkey, starting what the settings do not name."""
    url, redis_url = settings.database_url, settings.redis_url if valkey else None
    if url and (redis_url or not valkey):
        return url, redis_url

    from onward import embedded  # noqa: PLC0415 - not needed with servers of the user's own

    running = await _entered(
        stack,
        embedded.servers(
            settings.data_dir, postgresql=url is None, valkey=valkey and redis_url is None
        ),
    )
    return url or running.database_url, redis_url or running.redis_url


async def _entered(stack: AsyncExitStack, servers: AbstractContextManager[Servers]) -> Servers:
    """Start servers and leave them to the stack; both wait for processes, so they do in a thread.

    A thread cannot be called back: whoever gives up while the servers start waits until they can
    be stopped again.
    """
    entering = asyncio.get_running_loop().run_in_executor(None, servers.__enter__)

    async def leave() -> None:
        await asyncio.wait({entering})
        if entering.exception() is None:
            await asyncio.to_thread(servers.__exit__, None, None, None)

    stack.push_async_callback(leave)
    return await asyncio.shield(entering)
