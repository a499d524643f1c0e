"""One connection of an agent, as the server holds it: what is to be said, and who waits for what.

Whoever sends too much is read more slowly, which costs nobody else anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from onward.channels.agent.messages import Down, Pieces, Refused, Result
from onward.channels.agent.outbox import Outbox, Socket
from onward.channels.agent.wire import Close, ServerSession
from onward.channels.base import Output, Stream

Attempt = tuple[str, int]  # the command and its epoch

_BYTES_A_TOKEN: Final = 4_096  # so much of a frame counts as another message
_UNCLAIMED_MAX: Final = 2 * 2**20  # characters of output that nobody waits for yet, of one agent


class Limits(NamedTuple):
    """What is allowed to an agent."""

    hello_s: float = 5.0  # in which it has to show who it is
    strangers: int = 5_000  # that may be about to do so at once
    messages_a_second: float = 500.0  # read from one agent; one of 4 KiB counts as two
    burst: float = 5_000.0
    unwritten_bytes: int = 8 * 2**20  # until it is taken for too slow a reader
    late_at_once: int = 64  # results of one agent that are on their way to the disk


class Quota:
    """Says how long to wait before more is read."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, limits: Limits, now: float) -> None:
        self._rate = limits.messages_a_second
        self._burst = self._left = limits.burst
        self._at = now

    def wait_s(self, frame_bytes: int, now: float) -> float:
        """Count a frame; the wait is 0 unless too many have come."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        self._left -= 1 + frame_bytes // _BYTES_A_TOKEN
        return 0.0 if self._left >= 0 else -self._left / self._rate


class Call:
    """Somebody who waits for the end of an attempt."""

    __slots__ = ("_heard", "_output", "done", "written")

    def __init__(self, output: Output) -> None:
        self._output = output
        self._heard = 0  # characters
        self.written = False  # whether the agent may have got it
        # None: the connection was lost before its end was heard.
        self.done: asyncio.Future[Result | Refused | None]
        self.done = asyncio.get_running_loop().create_future()

    def hear(self, said: Pieces) -> None:
        """Pass on what is new of a piece of output: some of it may come again."""
        again, self._heard = self._heard - said.at, max(self._heard, said.at)
        for stream, text in said.pieces:
            new = text[again:] if again > 0 else text
            again -= len(text)
            if new:
                self._heard += len(new)
                self._pass_on(stream, new)

    def end(self, message: Result | Refused | None) -> None:
        """Let whoever waits go on."""
        if not self.done.done():
            self.done.set_result(message)

    def _pass_on(self, stream: Stream, text: str) -> None:
        try:
            self._output(stream, text)
        except Exception as bug:  # noqa: BLE001 - raised again by the call that listens
            if not self.done.done():
                self.done.set_exception(bug)


class Told(NamedTuple):
    """What the agent of a host was last told to be forbidden there."""

    version: int  # of the host
    generation: int
    session: int


@dataclass(slots=True, eq=False)
class Line:
    """The connection of one agent that has shown its key."""

    host_id: int
    session: ServerSession
    clock: Callable[[], float]
    told: Told
    remote: str
    calls: dict[Attempt, list[Call]] = field(default_factory=dict)
    stops: dict[Attempt, list[asyncio.Future[bool | None]]] = field(default_factory=dict)
    stopped: set[Attempt] = field(default_factory=set)  # that it has stopped because we asked
    settling: set[asyncio.Task[None]] = field(default_factory=set)
    _outbox: Outbox = field(init=False)
    _unclaimed: dict[Attempt, list[Pieces]] = field(default_factory=dict)
    _unclaimed_chars: int = 0

    def over(self, socket: Socket, limits: Limits) -> Self:
        """Begin to write to a socket."""
        self._outbox = Outbox(socket, room=limits.unwritten_bytes, lost=self._lost)
        return self

    @property
    def is_over(self) -> bool:
        """Whether nothing more is said or heard."""
        return self._outbox.over

    def say(self, message: Down, call: Call | None = None) -> None:
        """Have a message written, in its turn; `FrameRefused` if it is too large for a frame."""
        if not self._outbox.put(self.session.seal(message, self.clock()), call):
            self.end(Close.TOO_MUCH, "the agent does not read what is sent to it")

    def end(self, code: int, reason: str) -> None:
        """End the connection: nothing more is said over it, and whoever waits learns so."""
        self._outbox.end(code, reason)

    async def left(self) -> None:
        """Tell whoever waits that nothing more will be heard."""
        self._outbox.give_up()
        await self._outbox.closed()

    def _lost(self) -> None:
        for call in [call for calls in self.calls.values() for call in calls]:
            call.end(None)
        for stopping in [each for stops in self.stops.values() for each in stops]:
            if not stopping.done():
                stopping.set_result(None)

    def waiting_for(self, attempt: Attempt) -> list[Call]:
        """Return those who still wait for the end of an attempt."""
        return [call for call in self.calls.get(attempt, ()) if not call.done.done()]

    def keep(self, said: Pieces) -> None:
        """Keep output that nobody waits for: it may belong to a result that follows."""
        size = sum(len(text) for _, text in said.pieces)
        if self._unclaimed_chars + size <= _UNCLAIMED_MAX:
            self._unclaimed_chars += size
            self._unclaimed.setdefault((said.cmd, said.epoch), []).append(said)

    def kept(self, attempt: Attempt) -> tuple[tuple[Stream, str], ...]:
        """Return what was kept of the output of an attempt, once, each part of it once."""
        kept = self._unclaimed.pop(attempt, [])
        self._unclaimed_chars -= sum(len(text) for said in kept for _, text in said.pieces)
        heard: list[tuple[Stream, str]] = []
        whole = Call(lambda stream, text: heard.append((stream, text)))
        for said in kept:
            whole.hear(said)
        return tuple(heard)


def forget(waiting: dict[Attempt, list[Call]], attempt: Attempt, call: Call) -> None:
    """Take a call off the list of those who wait."""
    calls = waiting.get(attempt, [])
    if call in calls:
        calls.remove(call)
    if not calls:
        waiting.pop(attempt, None)
