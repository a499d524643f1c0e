"""The agents that are connected to this process, and how commands reach them.

1. An agent counts as connected once it has shown its host's key, has said that it is ready, and
   that is written down. A newer connection of the same host displaces the older one.
2. What was not written to the connection when it broke is `NotDelivered`. What was, and whose end
   was not heard, is `DeliveryUnknown`: the agent keeps the result until it can tell it.
3. A result that nobody waits for, because its worker died or gave up, is settled all the same, and
   receipted once that is on disk.
4. Nothing is done because of a frame that is not the next one of its connection, signed for it.

What follows from any of that is not decided here: the `Desk` knows the keys and writes things down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from secrets import token_bytes
from typing import Final, NamedTuple, Protocol

import structlog

from onward.channels.agent.attempts import INTERRUPTED, report_of, reported, run_of, storable
from onward.channels.agent.line import Attempt, Call, Limits, Line, Quota, Told, forget
from onward.channels.agent.messages import (
    Block,
    Blocks,
    Pieces,
    Ready,
    Receipt,
    Refused,
    Result,
    Stop,
    Stopped,
    Up,
)
from onward.channels.agent.outbox import Socket
from onward.channels.agent.wire import (
    NONCE_BYTES,
    Close,
    FrameRefused,
    Hello,
    ServerSession,
    Welcome,
    check_hello,
    read_hello,
    say_welcome,
    server_session,
)
from onward.channels.base import Delivery, Output, Report, Stream, Target
from onward.errors import (
    DeliveryUnknown,
    HostOffline,
    HostRefused,
    ServerProblem,
)

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.hub")

_AGAIN_S: Final = 1.0  # until a result is settled that could not be

# Codes of WebSocket's own.
_LEAVING: Final = 1012
_TRY_AGAIN_LATER: Final = 1013


class Arrived(NamedTuple):
    """An agent that has shown its key and is ready."""

    host_id: int
    generation: int
    version: str
    remote: str
    seen: int  # the highest epoch that it has seen


class Admitted(NamedTuple):
    """How an agent was written down, and what it is to be told first."""

    session: int  # counts the connections of the host
    version: int  # of the host, as it was when the rules were looked up
    rules: Sequence[Block]


class Late(NamedTuple):
    """A result that nobody waits for."""

    command_id: str
    epoch: int
    report: Report | None  # none: it was interrupted, and may have run
    error: str  # what the agent says of an interruption
    output: tuple[tuple[Stream, str], ...]


class Desk(Protocol):
    """Who knows the keys of hosts, and writes down what the hub hears."""

    def key_of(self, host_id: int, generation: int) -> bytes:
        """Return a key of a host, whether or not there is such a host, or that key any more."""
        ...

    async def is_present(self, host_id: int, generation: int) -> bool:
        """Say whether this is the present key of a host."""
        ...

    async def arrived(self, agent: Arrived) -> Admitted | None:
        """Write down that an agent is connected; none if its key was taken from it meanwhile."""
        ...

    async def ready(self, host_id: int) -> None:
        """Let go on what has waited for this host."""
        ...

    async def left(self, host_id: int, session: int) -> None:
        """Write down that a connection is over."""
        ...

    async def late(self, host_id: int, late: Late) -> bool:
        """Settle a result that nobody waits for; true once it is on disk."""
        ...


class Hub:
    """The connected agents of this process, by host."""

    def __init__(
        self,
        desk: Desk,
        *,
        clock: Callable[[], float] = time.time,
        limits: Limits | None = None,
        nonce: Callable[[int], bytes] = token_bytes,
    ) -> None:
        self._desk = desk
        self._clock = clock
        self._limits = limits or Limits()
        self._nonce = nonce
        self._lines: dict[int, Line] = {}
        self._strangers = 0

    def __len__(self) -> int:
        return len(self._lines)

    def has(self, host_id: int) -> bool:
        """Say whether the agent of a host is connected to this process."""
        return host_id in self._lines

    def told(self) -> Iterator[tuple[int, Told]]:
        """Return what each agent was last told, by host."""
        return ((line.host_id, line.told) for line in list(self._lines.values()))

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Hand over one attempt, pass its output on as it comes, and return what the host says."""
        run = run_of(delivery)
        line = self._line(delivery.target)
        attempt = (delivery.command_id, delivery.epoch)
        call = Call(output)
        line.calls.setdefault(attempt, []).append(call)
        try:
            line.say(run, call)
            message = await call.done
        except FrameRefused as refusal:
            raise HostRefused(f"The command is too large for an agent: {refusal}.") from None
        finally:
            forget(line.calls, attempt, call)
        return report_of(delivery, message, written=call.written)

    async def cancel(self, delivery: Delivery) -> bool:
        """Ask the host to stop an attempt; true once it confirms that it has stopped."""
        line = self._line(delivery.target)
        attempt = (delivery.command_id, delivery.epoch)
        stopped: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        stops = line.stops.setdefault(attempt, [])
        stops.append(stopped)
        try:
            line.say(Stop(*attempt))
            answer = await stopped
        finally:
            stops.remove(stopped)
            if not stops and line.stops.get(attempt) is stops:
                del line.stops[attempt]
        if answer is None:
            raise DeliveryUnknown(
                f"The agent of {delivery.target.name} was lost before it said whether it stopped."
            )
        return answer

    async def receipt(self, delivery: Delivery) -> None:
        """Tell the host that the report of this attempt is on disk. It may get lost."""
        self._receipt(delivery.target.host_id, (delivery.command_id, delivery.epoch))

    async def serve(self, socket: Socket, *, remote: str) -> None:
        """Talk to whoever has connected until one of the two has had enough."""
        line = await self._met(socket, remote)
        if line is None:
            return
        try:
            await self._listen(line, socket)
        finally:
            await self._gone(line)

    def dismiss(self, host_id: int, code: int, reason: str, *, session: int | None = None) -> None:
        """End the connection of a host, or only this one of its sessions."""
        line = self._lines.get(host_id)
        if line is not None and session in {None, line.told.session}:
            del self._lines[host_id]
            log.info("agent_dismissed", host_id=host_id, reason=reason)
            line.end(code, reason)

    def tell_rules(self, host_id: int, version: int, rules: Sequence[Block]) -> None:
        """Tell an agent what is forbidden on its host as of this version of the host."""
        line = self._lines.get(host_id)
        if line is not None:
            line.told = line.told._replace(version=version)
            _say_rules(line, rules)

    def close(self) -> None:
        """Let all agents go; they will call again, and find whoever is there then."""
        for host_id in list(self._lines):
            self.dismiss(host_id, _LEAVING, "the server is leaving")

    def _line(self, target: Target) -> Line:
        line = self._lines.get(target.host_id)
        if line is None or line.is_over:
            raise HostOffline(
                f"The agent of {target.name} is not connected: it gets the command when it calls."
            )
        return line

    async def _met(self, socket: Socket, remote: str) -> Line | None:
        """Find out who has connected, for a bounded time; none if that is nobody of ours."""
        if self._strangers >= self._limits.strangers:
            await socket.close(_TRY_AGAIN_LATER, "too many are connecting at once")
            return None
        self._strangers += 1
        try:
            async with asyncio.timeout(self._limits.hello_s):
                return await self._introduced(socket, remote)
        except TimeoutError:
            refused = FrameRefused(Close.EXPIRED, "it has not shown in time who it is")
        except FrameRefused as error:
            refused = error
        except ServerProblem as error:
            log.warning("agent_not_looked_up", problem=str(error))
            await socket.close(_TRY_AGAIN_LATER, "the server cannot look it up at the moment")
            return None
        except OSError:
            return None
        finally:
            self._strangers -= 1
        await _turn_away(socket, refused, remote=remote)
        return None

    async def _introduced(self, socket: Socket, remote: str) -> Line | None:
        frame = await socket.receive()
        if frame is None:
            return None
        hello = read_hello(frame)
        session = await self._welcomed(socket, frame, hello)
        first = await socket.receive()
        if first is None:
            return None
        ready = session.open(first, self._clock())
        if not isinstance(ready, Ready):
            raise FrameRefused(Close.MALFORMED, "an agent says first that it is ready")
        return await self._admitted(socket, session, hello, Arrived(
            hello.host, hello.gen, storable(ready.version), remote, ready.seen
        ))  # fmt: skip

    async def _welcomed(self, socket: Socket, frame: bytes, hello: Hello) -> ServerSession:
        key = self._desk.key_of(hello.host, hello.gen)
        # First, so that whoever guesses hosts learns nothing, and keeps nobody busy.
        check_hello(frame, key, now=self._clock())
        if not await self._desk.is_present(hello.host, hello.gen):
            raise FrameRefused(Close.UNKNOWN_HOST, "there is no such host with this key")
        welcome = Welcome(self._nonce(NONCE_BYTES), self._clock())
        await socket.send(say_welcome(key, hello, welcome))
        return server_session(key, hello, welcome)

    async def _admitted(
        self, socket: Socket, session: ServerSession, hello: Hello, agent: Arrived
    ) -> Line:
        admitted = await self._desk.arrived(agent)
        if admitted is None:
            raise FrameRefused(Close.REVOKED, "the key of this host has been taken from it")
        told = Told(admitted.version, hello.gen, admitted.session)
        line = Line(hello.host, session, self._clock, told, agent.remote)
        line = line.over(socket, self._limits)
        before = self._lines.get(hello.host)
        if before is not None and before.told.session > admitted.session:
            raise FrameRefused(Close.DISPLACED, "a newer connection of this host is there")
        if before is not None:
            before.end(Close.DISPLACED, "a newer connection of this host is there")
        self._lines[hello.host] = line
        _say_rules(line, admitted.rules)
        log.info("agent_connected", host_id=hello.host, remote=agent.remote, version=agent.version)
        return line

    async def _listen(self, line: Line, socket: Socket) -> None:
        await self._desk.ready(line.host_id)
        loop = asyncio.get_running_loop()
        quota = Quota(self._limits, loop.time())
        try:
            while not line.is_over and (frame := await socket.receive()) is not None:
                await self._take(line, line.session.open(frame, self._clock()))
                if (wait_s := quota.wait_s(len(frame), loop.time())) > 0:
                    await asyncio.sleep(wait_s)
        except FrameRefused as refused:
            _log_refused(refused, remote=line.remote, host_id=line.host_id)
            line.end(refused.code, str(refused))

    async def _take(self, line: Line, message: Up) -> None:
        match message:
            case Pieces():
                calls = line.waiting_for((message.cmd, message.epoch))
                for call in calls:
                    call.hear(message)
                if not calls:
                    line.keep(message)
            case Result():
                await self._result(line, message)
            case Refused():
                for call in line.waiting_for((message.cmd, message.epoch)):
                    call.end(message)
            case Stopped():
                _stopped(line, message)
            case _:
                pass  # Accepted, or ready once more: nothing depends on either.

    async def _result(self, line: Line, result: Result) -> None:
        attempt = (result.cmd, result.epoch)
        if calls := line.waiting_for(attempt):
            for call in calls:
                call.end(result)
            return
        output = line.kept(attempt)
        if attempt in line.stopped and not result.succeeded:
            # It ended because we asked for that, and whoever asked has said so already.
            line.stopped.discard(attempt)
            line.say(Receipt(*attempt))
            return
        report = None if result.unknown else reported(result)
        late = Late(*attempt, report, storable(result.error or INTERRUPTED), output)
        # More than so many at once are not read before those are on disk.
        while len(line.settling) >= self._limits.late_at_once:
            await asyncio.wait(line.settling, return_when=asyncio.FIRST_COMPLETED)
        settling = asyncio.create_task(self._settle(line, late))
        line.settling.add(settling)
        settling.add_done_callback(line.settling.discard)

    async def _settle(self, line: Line, late: Late) -> None:
        """Settle a result, as often as it takes; an agent that has left will say it again."""
        while not await self._desk.late(line.host_id, late):
            if line.is_over:
                return
            await asyncio.sleep(_AGAIN_S)
        self._receipt(line.host_id, (late.command_id, late.epoch))

    def _receipt(self, host_id: int, attempt: Attempt) -> None:
        line = self._lines.get(host_id)
        if line is not None:
            line.say(Receipt(*attempt))

    async def _gone(self, line: Line) -> None:
        if self._lines.get(line.host_id) is line:
            del self._lines[line.host_id]
            log.info("agent_left", host_id=line.host_id)
        await line.left()
        await self._desk.left(line.host_id, line.told.session)


def _stopped(line: Line, message: Stopped) -> None:
    attempt = (message.cmd, message.epoch)
    if message.stopped:
        line.stopped.add(attempt)
    for stopping in line.stops.get(attempt, ()):
        if not stopping.done():
            stopping.set_result(message.stopped)


def _say_rules(line: Line, rules: Sequence[Block]) -> None:
    try:
        line.say(Blocks(tuple(rules)))
    except FrameRefused as error:
        # The server keeps to them in any case; the agent would only have been the second to.
        log.warning("rules_too_many", host_id=line.host_id, reason=str(error))


async def _turn_away(socket: Socket, refused: FrameRefused, *, remote: str) -> None:
    _log_refused(refused, remote=remote)
    await socket.close(refused.code, str(refused))


def _log_refused(refused: FrameRefused, **who: object) -> None:
    log.warning("agent_refused", code=int(refused.code), reason=str(refused), **who)
