"""The way to simulated hosts that live in another process.

One connection carries every call of this process. It is made when it is first needed, and again
after it broke. What was not written when it broke is `NotDelivered`; what was is `DeliveryUnknown`.
"""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from onward.channels.base import Delivery, Output, Report, Stream
from onward.channels.frames import Frame, delivery_out, error_in
from onward.channels.simulated.wire import MAX_ANSWER, MAX_REQUEST, packed, read_frame
from onward.errors import DeliveryUnknown, NotDelivered


class _Call:
    """A call that waits for its end."""

    __slots__ = ("done", "output")

    def __init__(self, output: Output | None) -> None:
        self.output = output
        # The last frame about the call; none if the connection broke before it came.
        self.done: asyncio.Future[Frame | None] = asyncio.get_running_loop().create_future()


class _Connection:
    """A connection that is open, or was."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.loop = asyncio.get_running_loop()
        self.writer = writer
        self.calls: dict[int, _Call] = {}
        self._reading = self.loop.create_task(self._read(reader))

    @property
    def usable(self) -> bool:
        """Whether it can be written to, here: a loop of before a fork is not ours."""
        return self.loop is asyncio.get_running_loop() and not self.writer.is_closing()

    async def aclose(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while (frame := await read_frame(reader)) is not None:
                self._take(frame)
        finally:
            self.writer.close()
            for call in self.calls.values():
                if not call.done.done():
                    call.done.set_result(None)

    def _take(self, frame: Frame) -> None:
        call = self.calls.get(frame["id"])
        if call is None or call.done.done():
            return
        if "output" not in frame:
            call.done.set_result(frame)
        elif call.output is not None:
            stream, line = frame["output"]
            try:
                call.output(Stream(stream), line)
            except Exception as bug:  # noqa: BLE001 - raised again by the call that listens
                call.done.set_exception(bug)


class RemoteSimulatedChannel:
    """A channel to the fleet that `serve` runs at `path`.

    A server that is connected but says nothing is given up after what the host may take and
    `patience_s`, in real seconds.
    """

    def __init__(self, path: Path, *, patience_s: float = 60.0) -> None:
        self._path = path
        self._patience_s = patience_s
        self._numbers = count(1)
        self._connection: _Connection | None = None
        self._opening: asyncio.Task[_Connection | OSError] | None = None

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Hand over one attempt, pass its output on as it comes, and return what the host says."""
        frame = await self._call("deliver", delivery, output, delivery.timeout_s)
        return Report(**frame["report"])

    async def cancel(self, delivery: Delivery) -> bool:
        """Ask the host to stop an attempt; true once it confirms that it has stopped."""
        frame = await self._call("cancel", delivery, None, 0.0)
        return bool(frame["stopped"])

    async def aclose(self) -> None:
        """Close the connection; calls that still wait end with DeliveryUnknown."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.loop is asyncio.get_running_loop():
            await connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _call(
        self, do: str, delivery: Delivery, output: Output | None, timeout_s: float
    ) -> Frame:
        number = next(self._numbers)
        request = _packed({"id": number, do: delivery_out(delivery)})
        connection = await self._connected()
        call = connection.calls[number] = _Call(output)
        # From here on the other side may have got it.
        connection.writer.write(request)
        try:
            async with asyncio.timeout(timeout_s + self._patience_s):
                frame = await call.done
        except TimeoutError:
            raise DeliveryUnknown("The process of the simulated fleet does not answer.") from None
        finally:
            del connection.calls[number]
            if (call.done.cancelled() or not call.done.done()) and connection.usable:
                connection.writer.write(packed({"id": number, "forget": True}))
        if frame is None or "error" in frame:
            _fail(frame)
        return frame

    async def _connected(self) -> _Connection:
        if self._connection is not None and self._connection.usable:
            return self._connection
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening.done() or self._opening.get_loop() is not loop:
            self._opening = loop.create_task(self._open())
        # Shielded: the others who wait for the connection want it still when one gives up.
        opened = await asyncio.shield(self._opening)
        if isinstance(opened, OSError) or not opened.usable:
            raise NotDelivered(
                f"No simulated fleet answers at {self._path}; "
                "start one with python -m onward.channels.simulated."
            )
        return opened

    async def _open(self) -> _Connection | OSError:
        try:
            streams = await asyncio.open_unix_connection(self._path, limit=MAX_ANSWER)
        except OSError as error:
            return error
        self._connection = _Connection(*streams)
        return self._connection


def _packed(frame: Frame) -> bytes:
    try:
        request = packed(frame)
    except RecursionError:
        raise NotDelivered("The parameters are nested too deeply to be sent.") from None
    if len(request) > MAX_REQUEST:
        raise NotDelivered(f"The request is {len(request)} bytes; {MAX_REQUEST} may be sent.")
    return request


def _fail(frame: Frame | None) -> NoReturn:
    if frame is None:
        raise DeliveryUnknown("The simulated fleet was lost after it had been sent the request.")
    raise error_in(frame["error"])
