"""The door of a hub: where other processes come in, to send through the agents that are here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from secrets import token_bytes
from typing import Final

import structlog

from onward.channels.agent.hub import Hub
from onward.channels.agent.messages import cut_pieces
from onward.channels.agent.outbox import Outbox, Socket
from onward.channels.agent.relay import Place, Seals, report_out
from onward.channels.agent.wire import (
    NONCE_BYTES,
    Close,
    FrameRefused,
    Welcome,
    check_hello,
    read_hello,
    say_welcome,
)
from onward.channels.base import Stream
from onward.channels.frames import Frame, delivery_in, error_out
from onward.errors import ChannelError

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.hub")

_HELLO_S: Final = 5.0
_STRANGERS: Final = 200  # that may be about to show who they are at once
_UNREAD: Final = 64 * 2**20  # bytes that a caller may leave unread
_TRY_AGAIN_LATER: Final = 1013


class Door:
    """Lets in who knows the secret of `place`, and answers their calls with the agents of a hub."""

    def __init__(
        self,
        hub: Hub,
        place: Callable[[], Place | None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._hub = hub
        self._place = place
        self._clock = clock
        self._strangers = 0

    async def serve(self, socket: Socket, *, remote: str) -> None:
        """Talk to whoever has connected until one of the two has had enough."""
        seals = await self._met(socket, remote)
        if seals is not None:
            await _Caller(self._hub, socket, seals).serve(remote)

    async def _met(self, socket: Socket, remote: str) -> Seals | None:
        if self._strangers >= _STRANGERS:
            await socket.close(_TRY_AGAIN_LATER, "too many are connecting at once")
            return None
        self._strangers += 1
        try:
            async with asyncio.timeout(_HELLO_S):
                return await self._introduced(socket)
        except TimeoutError:
            refused = FrameRefused(Close.EXPIRED, "it has not shown in time who it is")
        except FrameRefused as error:
            refused = error
        except OSError:
            return None
        finally:
            self._strangers -= 1
        await _turn_away(socket, refused, remote)
        return None

    async def _introduced(self, socket: Socket) -> Seals | None:
        frame = await socket.receive()
        if frame is None:
            return None
        hello, place = read_hello(frame), self._place()
        if place is None or hello.host != place.hub_id:
            raise FrameRefused(Close.UNKNOWN_HOST, "this is another process")
        check_hello(frame, place.secret, now=self._clock())
        welcome = Welcome(token_bytes(NONCE_BYTES), self._clock())
        await socket.send(say_welcome(place.secret, hello, welcome))
        return Seals(place.secret, hello, welcome, calling=False)


class _Caller:
    """One process that sends through this one."""

    def __init__(self, hub: Hub, socket: Socket, seals: Seals) -> None:
        self._hub = hub
        self._socket = socket
        self._seals = seals
        self._outbox = Outbox(socket, room=_UNREAD, lost=self._lost)
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self, remote: str) -> None:
        try:
            while not self._outbox.over and (sealed := await self._socket.receive()) is not None:
                await self._take(self._seals.open(sealed))
        except FrameRefused as refused:
            await _turn_away(self._socket, refused, remote)
        finally:
            self._outbox.give_up()
            await self._outbox.closed()

    async def _take(self, frame: Frame) -> None:
        try:
            if "receipt" in frame:
                await self._hub.receipt(delivery_in(frame["receipt"]))
                return
            number = int(frame["id"])
        except (KeyError, TypeError, ValueError):
            raise FrameRefused(Close.MALFORMED, "the frame is none of ours") from None
        if "forget" in frame:
            if (call := self._calls.get(number)) is not None:
                call.cancel()
        elif number not in self._calls:
            call = asyncio.create_task(self._answer(number, frame))
            self._calls[number] = call
            call.add_done_callback(partial(self._forget, number))

    def _forget(self, number: int, _: asyncio.Task[None]) -> None:
        del self._calls[number]

    async def _answer(self, number: int, frame: Frame) -> None:
        output = _Pieces(partial(self._output, number))
        try:
            if "deliver" in frame:
                report = await self._hub.deliver(delivery_in(frame["deliver"]), output)
                output.flush()
                self._say({"id": number, "report": report_out(report)})
            else:
                stopped = await self._hub.cancel(delivery_in(frame.get("cancel") or {}))
                self._say({"id": number, "stopped": stopped})
        except ValueError:
            self._outbox.end(Close.MALFORMED, "the frame is none of ours")
        except ChannelError as error:
            output.flush()
            self._say({"id": number, "error": error_out(error)})

    def _output(self, number: int, pieces: list[tuple[Stream, str]]) -> None:
        for part in cut_pieces(pieces):
            self._say({"id": number, "output": part})

    def _say(self, frame: Frame) -> None:
        if not self._outbox.over and not self._outbox.put(self._seals.seal(frame)):
            self._outbox.end(Close.TOO_MUCH, "what is sent to it is not read")

    def _lost(self) -> None:
        # Whoever waited is gone; what runs on the hosts goes on, and is reported as late.
        for call in self._calls.values():
            call.cancel()


class _Pieces:
    """Gathers the output of one turn of the loop, so that it goes in one frame."""

    __slots__ = ("_pieces", "_say")

    def __init__(self, say: Callable[[list[tuple[Stream, str]]], None]) -> None:
        self._say = say
        self._pieces: list[tuple[Stream, str]] = []

    def __call__(self, stream: Stream, text: str) -> None:
        if not self._pieces:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pieces.append((stream, text))

    def flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces:
            self._say(pieces)


async def _turn_away(socket: Socket, refused: FrameRefused, remote: str) -> None:
    log.warning("relay_refused", code=int(refused.code), reason=str(refused), remote=remote)
    await socket.close(refused.code, str(refused))
