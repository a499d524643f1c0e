"""A connection to the hub of another process, and the calls that go over it.

What was not written when it broke is `NotDelivered`; what was is `DeliveryUnknown`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count
from secrets import token_bytes
from typing import Final, NoReturn
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from onward.channels.agent.outbox import Outbox
from onward.channels.agent.relay import Place, Seals
from onward.channels.agent.wire import (
    FRAME_MAX,
    NONCE_BYTES,
    Close,
    FrameRefused,
    Hello,
    read_welcome,
    say_hello,
)
from onward.channels.base import Delivery, Output, Report, Stream
from onward.channels.frames import Frame, delivery_out, error_in
from onward.errors import DeliveryUnknown, HostOffline, HostRefused, NotDelivered

_CONNECT_S: Final = 5.0
_KEEPALIVE_S: Final = 20.0  # after which a connection that has died in silence is noticed
_UNREAD: Final = 64 * 2**20


class Call:
    """Somebody who waits for the last word about a call."""

    __slots__ = ("done", "output", "written")

    def __init__(self, output: Output | None) -> None:
        self.output = output
        self.written = False
        # None: the connection was lost before its end was heard.
        self.done: asyncio.Future[Frame | None] = asyncio.get_running_loop().create_future()

    def hear(self, pieces: list[tuple[str, str]]) -> None:
        """Pass on output."""
        if self.output is None:
            return
        try:
            for stream, text in pieces:
                self.output(Stream(stream), text)
        except Exception as bug:  # noqa: BLE001 - raised again by the call that listens
            if not self.done.done():
                self.done.set_exception(bug)

    def end(self, frame: Frame | None) -> None:
        """Let whoever waits go on."""
        if not self.done.done():
            self.done.set_result(frame)


class Link:
    """An open connection to one hub."""

    def __init__(self, place: Place, socket: ClientConnection, seals: Seals) -> None:
        self.place = place
        self.loop = asyncio.get_running_loop()
        self._socket = _Socket(socket)
        self._seals = seals
        self._numbers = count(1)
        self._calls: dict[int, Call] = {}
        self._outbox = Outbox(self._socket, room=_UNREAD, lost=self._lost)
        self._reading = self.loop.create_task(self._read())

    @property
    def usable(self) -> bool:
        """Whether it can be written to."""
        return not self._outbox.over

    async def aclose(self) -> None:
        """Close it; calls that still wait learn that it was lost."""
        self._outbox.end(1000, "")
        await self._outbox.closed()
        await self._reading

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Hand over one attempt, pass its output on as it comes, and return what the host says."""
        frame = await self._call({"deliver": delivery_out(delivery)}, delivery, output)
        return Report(**frame["report"])

    async def cancel(self, delivery: Delivery) -> bool:
        """Ask the host to stop an attempt; true once it confirms that it has stopped."""
        frame = await self._call({"cancel": delivery_out(delivery)}, delivery, None)
        return bool(frame["stopped"])

    def receipt(self, delivery: Delivery) -> None:
        """Tell the host that the report of this attempt is on disk."""
        # Nobody needs to know on that way what the command was given.
        named = delivery._replace(params={}, argv=None, masked=())
        self._put({"receipt": delivery_out(named)})

    async def _call(self, frame: Frame, delivery: Delivery, output: Output | None) -> Frame:
        number = next(self._numbers)
        call = self._calls[number] = Call(output)
        try:
            self._put({"id": number, **frame}, call)
            answer = await call.done
        except FrameRefused as refusal:
            raise HostRefused(f"The command cannot be sent to an agent: {refusal}.") from None
        finally:
            del self._calls[number]
            # Nobody waits any more. Who has been answered needs no such word.
            if call.done.cancelled() or not call.done.done():
                self._put({"id": number, "forget": True})
        if answer is None or "error" in answer:
            _fail(answer, delivery, written=call.written)
        return answer

    def _put(self, frame: Frame, call: Call | None = None) -> None:
        if self._outbox.over:
            if call is not None:
                call.end(None)
        elif not self._outbox.put(self._seals.seal(frame), call):
            self._outbox.end(Close.TOO_MUCH, "what is sent is not read")

    async def _read(self) -> None:
        try:
            while (sealed := await self._socket.receive()) is not None:
                self._take(self._seals.open(sealed))
        except FrameRefused as refused:
            self._outbox.end(refused.code, str(refused))
        finally:
            self._outbox.give_up()

    def _take(self, frame: Frame) -> None:
        call = self._calls.get(frame.get("id", 0))
        if call is None:
            return
        if "output" in frame:
            call.hear(frame["output"])
        else:
            call.end(frame)

    def _lost(self) -> None:
        for call in list(self._calls.values()):
            call.end(None)


class _Socket:
    """A connection of the `websockets` library as the outbox takes it."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> bytes | None:
        try:
            return await self._connection.recv(decode=False)
        except ConnectionClosed:
            return None

    async def send(self, frame: bytes) -> None:
        try:
            await self._connection.send(frame)
        except ConnectionClosed as closed:
            raise ConnectionResetError(str(closed)) from None

    async def close(self, code: int, reason: str) -> None:
        await self._connection.close(code, reason)


async def open_link(place: Place, *, clock: Callable[[], float] = time.time) -> Link:
    """Connect to the hub of another process; `HostOffline` if nobody is there, or it is no hub."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            socket = await connect(
                _address(place.url),
                compression=None,
                max_size=FRAME_MAX,
                proxy=None,
                ping_interval=_KEEPALIVE_S,
                ping_timeout=_KEEPALIVE_S,
                close_timeout=1.0,
            )
            try:
                return Link(place, socket, await _introduced(place, socket, clock))
            except BaseException:
                socket.transport.abort()
                raise
    except (OSError, TimeoutError, InvalidURI, InvalidHandshake, ConnectionClosed, FrameRefused):
        # What went wrong in detail may quote the address as it was resolved; this says enough.
        raise HostOffline(
            f"The process at {place.url} that the agent is connected to cannot be reached: "
            "if it runs, set its ONWARD_HUB_URL to where other processes reach it."
        ) from None


async def _introduced(place: Place, socket: ClientConnection, clock: Callable[[], float]) -> Seals:
    hello = Hello(place.hub_id, 0, token_bytes(NONCE_BYTES))
    await socket.send(say_hello(place.secret, hello, now=clock()))
    answer = await socket.recv(decode=False)
    welcome = read_welcome(answer, place.secret, hello)
    return Seals(place.secret, hello, welcome, calling=True)


def _address(url: str) -> str:
    scheme, where, path, *_ = urlsplit(url)
    return urlunsplit(
        ("wss" if scheme in {"https", "wss"} else "ws", where, f"{path.rstrip('/')}/relay", "", "")
    )


def _fail(frame: Frame | None, delivery: Delivery, *, written: bool) -> NoReturn:
    if frame is not None:
        raise error_in(frame["error"])
    name = delivery.target.name
    if written:
        raise DeliveryUnknown(
            f"The process that the agent of {name} is connected to was lost before it answered."
        )
    raise NotDelivered(f"The process that the agent of {name} is connected to was lost.")
