"""HTTP servers to be measured, each in a process of its own, on loopback.

`onward` is the API as `onward up` serves it, without an engine. `nothing` is a plain FastAPI
application with one route, which reads no body and does nothing. Both are served by the same
uvicorn, with uvloop and httptools.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from fastapi import FastAPI

import onward
from onward.api.app import create_app
from onward.api.first_key import FROM_ENVIRONMENT, first_key
from onward.api.services import Services
from onward.errors import InvariantBroken
from onward.service import leaving
from onward.service.listening import Listener, listening, serve
from onward.settings import Settings
from onward.store.keys import Keys, new_key

NOTHING: Final = "/nothing"
_READY_S: Final = 60.0


@asynccontextmanager
async def serving_onward(database_url: str) -> AsyncIterator[tuple[int, str]]:
    """Serve the API on a database; gives the port, and a key of an admin."""
    key = new_key()
    environment = {"ONWARD_DATABASE_URL": database_url, FROM_ENVIRONMENT: key}
    async with _process("onward", environment) as port:
        yield port, key


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


async def _onward(listener: Listener, stopping: asyncio.Event) -> None:
    async with onward.open(Settings()) as opened:
        pool = opened.commands.pool
        await first_key(pool, opened.settings)
        services = Services(opened.settings, pool, opened.commands, Keys(pool))
        await _serve(create_app(services), listener, stopping)


async def _nothing(listener: Listener, stopping: asyncio.Event) -> None:
    app = FastAPI()

    @app.post(NOTHING)
    async def nothing() -> None:
        pass

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
        leaving.run(partial({"onward": _onward, "nothing": _nothing}[kind], listener))


if __name__ == "__main__":
    _main(*sys.argv[1:])
