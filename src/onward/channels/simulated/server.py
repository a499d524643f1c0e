"""The simulated hosts in a process of their own, behind a unix socket.

Real hosts do not die with the worker that talks to them, and neither do these: a connection that
breaks ends the waiting, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from onward.channels.frames import Frame, delivery_in, error_out
from onward.channels.simulated.channel import SimulatedChannel
from onward.channels.simulated.hosts import SimulatedFleet
from onward.channels.simulated.network import Network
from onward.channels.simulated.wire import MAX_REQUEST, packed, read_frame
from onward.errors import ChannelError

_MAX_UNREAD = 64 * 2**20  # a client that does not read its output is cut off


async def serve(
    fleet: SimulatedFleet,
    network: Network,
    path: Path,
    *,
    ready: Callable[[], object] = lambda: None,
) -> None:
    """Let clients reach the fleet over the network through a socket at `path`, until cancelled."""
    channel = SimulatedChannel(fleet, network)
    try:
        async with asyncio.TaskGroup() as connections:

            def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                connections.create_task(_Connection(channel, reader, writer).serve())

            server = await asyncio.start_unix_server(meet, path, limit=MAX_REQUEST)
            try:
                ready()
                await asyncio.get_running_loop().create_future()
            finally:
                server.close()
    finally:
        await channel.aclose()
        await fleet.aclose()


class _Connection:
    """One client."""

    def __init__(
        self,
        channel: SimulatedChannel,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._channel = channel
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as calls:
                await self._take_calls(calls)
                for call in self._calls.values():
                    call.cancel()
        finally:
            self._writer.close()

    async def _take_calls(self, calls: asyncio.TaskGroup) -> None:
        while (frame := await read_frame(self._reader)) is not None:
            number = frame["id"]
            if "forget" in frame:
                if (call := self._calls.get(number)) is not None:
                    call.cancel()
            elif number not in self._calls:
                call = calls.create_task(self._answer(number, frame))
                self._calls[number] = call
                call.add_done_callback(partial(self._forget, number))
            if self._writer.is_closing():
                return

    def _forget(self, number: int, _: asyncio.Task[None]) -> None:
        del self._calls[number]

    async def _answer(self, number: int, frame: Frame) -> None:
        try:
            if "deliver" in frame:
                report = await self._channel.deliver(
                    delivery_in(frame["deliver"]),
                    lambda stream, line: self._send({"id": number, "output": [stream, line]}),
                )
                self._send({"id": number, "report": asdict(report)})
            else:
                stopped = await self._channel.cancel(delivery_in(frame.get("cancel", {})))
                self._send({"id": number, "stopped": stopped})
        except ValueError:
            self._writer.transport.abort()  # Whoever talks nonsense is not talked to.
        except ChannelError as error:
            self._send({"id": number, "error": error_out(error)})

    def _send(self, frame: Frame) -> None:
        if self._writer.is_closing():
            return
        self._writer.write(packed(frame))
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD:
            self._writer.transport.abort()
