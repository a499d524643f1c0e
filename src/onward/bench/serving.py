"""HTTP servers to be measured, each in a process of its own, on loopback.

`onward` is the API as `onward up` serves it, without an engine; `unlocked` is the same with no lock
in front of anything. `nothing` is a plain FastAPI
application with one route, which reads no body and does nothing. `bare` is one whose route moves
money without asking anybody: the statement below, and no more. All of them are served by the same
uvicorn, with uvloop and httptools.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from fastapi import FastAPI
from pydantic import BaseModel

import onward
from onward.api.app import create_app
from onward.api.first_key import FROM_ENVIRONMENT, first_key
from onward.errors import InvariantBroken
from onward.service import leaving
from onward.service.listening import Listener, listening, serve
from onward.service.serving import services
from onward.settings import Settings
from onward.store import database
from onward.store.keys import new_key
from onward.store.locks import Lease, Locks

NOTHING: Final = "/nothing"
BARE: Final = "/bare"
_READY_S: Final = 60.0

# An UPDATE and two INSERTs in one commit, in the form that costs the fewest round trips.
BARE_TABLES: Final = """
CREATE TABLE bare_accounts (id bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE bare_operations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account_id bigint, amount bigint,
    at timestamptz NOT NULL DEFAULT now());
CREATE TABLE bare_entries (
    operation_id bigint, account_id bigint, amount bigint, PRIMARY KEY (operation_id, account_id));
"""
_WITHDRAW_BARE: Final = """
WITH changed AS (
    UPDATE bare_accounts SET balance = balance - $2 WHERE id = $1 RETURNING id
), made AS (
    INSERT INTO bare_operations (account_id, amount) SELECT id, $2 FROM changed RETURNING id
)
INSERT INTO bare_entries
SELECT made.id, e.account_id, e.amount
  FROM made, (VALUES ($1::bigint, -$2::bigint), (0, $2)) AS e (account_id, amount)
RETURNING operation_id
"""


@asynccontextmanager
async def serving_onward(
    database_url: str, *, redis_url: str | None = None, locked: bool = True
) -> AsyncIterator[tuple[int, str]]:
    """Serve the API on a database, with or without locks; gives the port, and a key of an admin."""
    key = new_key()
    environment = {"ONWARD_DATABASE_URL": database_url, FROM_ENVIRONMENT: key}
    if redis_url is not None:
        environment["ONWARD_REDIS_URL"] = redis_url
    async with _process("onward" if locked else "unlocked", environment) as port:
        yield port, key


@asynccontextmanager
async def serving_bare(database_url: str) -> AsyncIterator[int]:
    """Serve the route that moves money and asks nobody; gives the port."""
    async with _process("bare", {"ONWARD_DATABASE_URL": database_url}) as port:
        yield port


@asynccontextmanager
async def serving_nothing() -> AsyncIterator[int]:
    """Serve the route that does nothing; gives the port."""
    async with _process("nothing", {}) as port:
        yield port


@asynccontextmanager
async def _process(kind: str, environment: dict[str, str]) -> AsyncIterator[int]:
    command = (sys.executable, "-m", __name__, kind)
    server = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, env={**os.environ, **environment}
    )
    assert server.stdout is not None  # noqa: S101 - it is a pipe
    try:
        async with asyncio.timeout(_READY_S):
            told = await server.stdout.readline()
        if not told:
            raise InvariantBroken(f"the server {kind} did not start")
        yield int(told)
    finally:
        if server.returncode is None:
            server.terminate()
            await server.wait()


async def _onward(listener: Listener, stopping: asyncio.Event, *, locked: bool = True) -> None:
    settings = Settings()
    async with onward.open(settings, valkey=settings.redis_url is not None) as opened:
        await first_key(opened.commands.pool, settings)
        found = services(opened)
        found = found if locked else replace(found, locks=_Unlocked(None))
        await _serve(create_app(found), listener, stopping)


class _Unlocked(Locks):
    """Grants whatever is asked for, to everybody."""

    async def take(self, name: str) -> Lease:
        return Lease(name, "", math.inf, kept=False)


async def _nothing(listener: Listener, stopping: asyncio.Event) -> None:
    app = FastAPI()

    @app.post(NOTHING)
    async def nothing() -> None:
        pass

    await _serve(app, listener, stopping)


class Withdrawal(BaseModel):
    """What is to be taken from which account."""

    account_id: int
    amount: int


async def _bare(listener: Listener, stopping: asyncio.Event) -> None:
    app, settings = FastAPI(), Settings()
    async with database.pooled(str(settings.database_url), size=settings.pool_size) as pool:

        @app.post(BARE, status_code=202)
        async def withdraw(wanted: Withdrawal) -> dict[str, int]:
            made = await pool.fetchval(_WITHDRAW_BARE, wanted.account_id, wanted.amount)
            return {"operation_id": made}

        await _serve(app, listener, stopping)


async def _serve(app: FastAPI, listener: Listener, stopping: asyncio.Event) -> None:
    await serve(
        app,
        listener,
        stopping,
        access_log=False,
        ready=partial(_say_port, listener),
        hang_up=lambda: None,
    )


def _say_port(listener: Listener) -> None:
    sys.stdout.write(f"{listener.socket.getsockname()[1]}\n")
    sys.stdout.flush()


def _main(kind: str) -> None:
    with listening("127.0.0.1", 0) as listener:
        kinds: dict[str, Callable[[Listener, asyncio.Event], Coroutine[object, object, None]]] = {
            "onward": _onward,
            "unlocked": partial(_onward, locked=False),
            "nothing": _nothing,
            "bare": _bare,
        }
        leaving.run(partial(kinds[kind], listener))


if __name__ == "__main__":
    _main(*sys.argv[1:])
