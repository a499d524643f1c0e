"""The address of the API, and the HTTP server on it."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from onward.channels.agent.wire import FRAME_MAX
from onward.errors import InvalidInput
from onward.service.heads import BoundedHead
from onward.service.sockets import MortalSocket

_BACKLOG: Final = 2_048
_PATIENCE_S: Final = 5  # for answers that are being written when the process is asked to leave


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that takes connections; they wait until somebody serves them."""

    socket: socket.socket
    address: str
    loopback: bool


@contextmanager
def listening(host: str, port: int) -> Iterator[Listener]:
    """Take the port before anything is started: whoever cannot have it learns so at once."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        taken = socket.create_server(address, family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        raise _refusal(host, port, error) from error
    with taken:
        # An answer is two writes. Connections have this from here: asyncio sets it for none that
        # comes from a socket of somebody else's, and the second write would wait for 40 ms.
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found, number, *_ = taken.getsockname()
        shown = f"[{found}]" if family is socket.AF_INET6 else found
        loopback = ipaddress.ip_address(found.partition("%")[0]).is_loopback
        yield Listener(taken, f"http://{shown}:{number}", loopback=loopback)


def _refusal(host: str, port: int, error: OSError | UnicodeError) -> InvalidInput:
    if isinstance(error, UnicodeError | socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return InvalidInput("host", f"{host!a} is no address of this machine; try 127.0.0.1")
    if error.errno == errno.EADDRINUSE:
        return InvalidInput(
            "port",
            f"{port} at {host} is taken by another program; end it, "
            "or choose another with --port or ONWARD_PORT",
        )
    return InvalidInput("port", f"{port} at {host} cannot be listened on ({error.strerror})")


async def serve(
    app: ASGIApp,
    listener: Listener,
    stopping: asyncio.Event,
    *,
    access_log: bool,
    ready: Callable[[], object],
    hang_up: Callable[[], object],
    keepalive_s: float = 20.0,
) -> None:
    """Answer requests until `stopping` is set and the last answer is written.

    `hang_up` has to end what would go on for as long as we do. A WebSocket whose other side has
    not answered for twice `keepalive_s` is cut off.
    """
    config = uvicorn.Config(
        app,
        loop="none",
        http=BoundedHead,
        ws=MortalSocket,
        ws_max_size=FRAME_MAX,
        ws_ping_interval=keepalive_s,
        ws_ping_timeout=keepalive_s,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=access_log,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    server = _Server(config, ready)
    serving = asyncio.create_task(server.serve([listener.socket]))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        hang_up()
        server.should_exit = True
        await serving
    finally:
        serving.cancel()
        stopped.cancel()


class _Server(uvicorn.Server):
    """A server that leaves signals to the process, and says when it serves."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, and say so."""
        await super().startup(sockets)
        self._ready()
