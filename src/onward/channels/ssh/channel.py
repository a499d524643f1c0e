"""The way to hosts over SSH: one program for each attempt, over connections that are kept.

1. Until the request to run something is sent, nothing has happened: `NotDelivered`.
2. From then on the host may have run it, until it says how it ended: `DeliveryUnknown`. A shell
   that ends without having begun the program has refused it.
3. SSH has no memory: a repeat runs again, and nobody but the caller can know.
4. What takes longer than it may, is cancelled or is given up by its caller is stopped, with all its
   children, over a session of its own.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

import asyncssh

from onward.channels.base import Delivery, Output, Report, Stream
from onward.channels.program import Program, program_for
from onward.channels.ssh.address import Address, parse
from onward.channels.ssh.dial import Dialler, SshWay
from onward.channels.ssh.pool import Line, Pool
from onward.channels.ssh.script import lines_for, lines_to_stop
from onward.channels.ssh.session import Exit, Session, started
from onward.errors import ChannelError, DeliveryUnknown, HostRefused, InvalidInput, NotDelivered

TIMED_OUT: Final = 124
# Beside what the program may take. Whoever waits for us waits a little longer, and believes then
# that it may have run.
_WAITS_S: Final = 3.0
_STOPS_WITHIN_S: Final = 20.0  # beside the grace: a connection of its own may be needed
_ANSWERS_WITHIN_S: Final = 5.0  # or the connection is not good enough to stop something over it


class _Attempt:
    """An attempt that is under way here."""

    def __init__(self, delivery: Delivery, program: Program, address: Address) -> None:
        self.delivery = delivery
        self.program = program
        self.address = address
        self.cancelled = False
        self.asked = False  # the host may have it
        self.waiting: asyncio.Timeout | None = None  # until it is asked
        self.line: Line | None = None
        self.session: Session | None = None  # once the request is sent
        self.begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def name(self) -> str:
        return self.delivery.target.name

    def check(self) -> None:
        """Go no further with what was cancelled."""
        if self.cancelled:
            raise NotDelivered("It was cancelled before it was sent.") from None

    def may_ask(self) -> bool:
        """Whether the host may be asked now; whoever says yes waits for it as long as it takes."""
        if self.cancelled or self.waiting is None or self.waiting.expired():
            return False
        self.asked = True
        self.waiting.reschedule(None)
        return True

    @property
    def runs(self) -> bool:
        return self.session is not None and not self.session.ended.done()

    def begun(self) -> None:
        if not self.begins.done():
            self.begins.set_result(None)


class SshChannel:
    """A channel to hosts that run sshd."""

    def __init__(self, way: SshWay) -> None:
        self._way = way
        self._pool = Pool(Dialler(way))
        self._attempts: dict[tuple[str, int, int], _Attempt] = {}
        self._stopping: set[asyncio.Task[bool]] = set()
        self._closed = False

    @property
    def connections(self) -> int:
        """How many are open now."""
        return self._pool.open

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Run one attempt, pass its output on as it comes, and return how it ended."""
        attempt = _Attempt(delivery, program_for(delivery), _address(delivery))
        lines = lines_for(attempt.program)
        self._attempts[_key(delivery)] = attempt
        limit_s = delivery.timeout_s + _WAITS_S
        try:
            async with asyncio.timeout(limit_s) as attempt.waiting:
                return await self._run(attempt, lines, output)
        except TimeoutError:
            if attempt.asked:
                raise _lost(attempt.name) from None
            raise NotDelivered(
                f"There was no session with {attempt.name} for {limit_s:g} s: it was sent nothing."
            ) from None
        finally:
            attempt.begun()
            if self._attempts.get(_key(delivery)) is attempt:
                del self._attempts[_key(delivery)]

    async def cancel(self, delivery: Delivery) -> bool:
        """Stop an attempt that is under way here; true once nothing of it is left."""
        attempt = self._attempts.get(_key(delivery))
        if attempt is None:
            return False
        attempt.cancelled = True
        if not attempt.asked:
            return True  # It waits for the host still, and sees this before it is sent.
        await asyncio.wait([attempt.begins])
        return attempt.runs and await self._stop(attempt)

    async def aclose(self) -> None:
        """Stop what was given up, then close every connection."""
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=self._way.grace_s + _STOPS_WITHIN_S)
        self._closed = True
        for task in self._stopping:
            task.cancel()
        await self._pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _run(self, attempt: _Attempt, lines: bytes, output: Output) -> Report:
        while True:
            try:
                async with self._pool.session(attempt.address, attempt.name) as seat:
                    attempt.line = seat.line
                    session = await self._start(attempt, seat.line, lines, output)
                    seat.closed = session.closed
                    try:
                        return await self._end(attempt, session)
                    finally:
                        session.close()
            except _NoMoreSessions:
                attempt.line = attempt.session = None  # Nothing was sent, and it waits again.
                attempt.check()

    async def _start(self, attempt: _Attempt, line: Line, lines: bytes, output: Output) -> Session:
        """Ask the host to run it; a kept connection may turn out to be dead, a new one may not."""
        while True:
            attempt.check()
            session = attempt.session = Session(
                lines, output, may_ask=attempt.may_ask, on_begun=attempt.begun
            )
            kept, line.kept = line.kept, True
            try:
                await self._ask(line, session, attempt.name)
            except _NotAsked as failure:
                attempt.session = None
                attempt.check()
                if not kept:
                    raise failure.meaning from None
                if isinstance(failure.meaning, HostRefused) and line.used > 1:
                    raise _NoMoreSessions from None  # Others have come meanwhile.
                await self._pool.reopen(line, attempt.name)
            else:
                return session

    async def _ask(self, line: Line, session: Session, name: str) -> None:
        connection = line.connection
        others = line.sessions - 1
        if connection is None or connection.is_closed():
            raise _NotAsked(_broken(name))
        try:
            await started(connection, session, within_s=self._way.connect_timeout_s)
        except (asyncssh.Error, OSError, TimeoutError) as error:
            dead = isinstance(error, TimeoutError) or connection.is_closed()
            refusal = HostRefused(f"{name} lets nobody run anything: {error}.")
            if session.channel is not None:
                raise (_lost(name) if dead else refusal) from None
            if dead:
                raise _NotAsked(_broken(name)) from None
            if others:
                line.allows(others)
                raise _NoMoreSessions from None
            # It may count a session still that has ended; on a new connection it cannot.
            raise _NotAsked(refusal) from None

    async def _end(self, attempt: _Attempt, session: Session) -> Report:
        try:
            async with asyncio.timeout(attempt.delivery.timeout_s):
                how = await asyncio.shield(session.ended)
        except TimeoutError:
            return await self._end_late(attempt, session)
        except BaseException:
            self._stop_later(attempt)  # Nobody will hear of it again.
            raise
        return _report(attempt, how)

    async def _end_late(self, attempt: _Attempt, session: Session) -> Report:
        timeout_s = attempt.delivery.timeout_s
        stopped = await self._stop(attempt)
        if session.ended.done() and session.ended.result() is None:
            raise _lost(attempt.name)
        if not stopped and not session.ended.done():
            raise DeliveryUnknown(
                f"{attempt.name} has not confirmed that it stopped after {timeout_s:g} s: "
                "it may run still."
            )
        return Report(succeeded=False, exit_code=TIMED_OUT, error=f"stopped after {timeout_s:g} s")

    async def _stop(self, attempt: _Attempt) -> bool:
        """Stop a program with all its children; true once nothing of it is left."""
        session, line = attempt.session, attempt.line
        if session is None or line is None or session.begun is None:
            return False
        lines = lines_to_stop(session.begun, user=attempt.program.user, grace_s=self._way.grace_s)
        try:
            async with asyncio.timeout(self._way.grace_s + _STOPS_WITHIN_S):
                stopped = await self._stop_over(line, lines, attempt.name)
                # Its end is heard before the end of what stopped it, or is on its way.
                await asyncio.wait([session.ended], timeout=1)
        except (asyncssh.Error, OSError, TimeoutError, ChannelError):
            return False
        return stopped

    async def _stop_over(self, line: Line, lines: bytes, name: str) -> bool:
        with self._pool.held(line) as connection:
            if connection is not None:
                try:
                    return await _carried_out(connection, lines)
                except (asyncssh.Error, OSError, TimeoutError):
                    pass  # The host may allow no more sessions on this one, or be gone from it.
            async with self._pool.alone(line.address, name) as own:
                return await _carried_out(own, lines)

    def _stop_later(self, attempt: _Attempt) -> None:
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._stop(attempt))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


class _NotAsked(Exception):
    """Nothing was asked of the host over this connection."""

    def __init__(self, meaning: NotDelivered) -> None:
        self.meaning = meaning  # if it was a new one


class _NoMoreSessions(Exception):
    """The host allows fewer sessions than we thought."""


async def _carried_out(connection: asyncssh.SSHClientConnection, lines: bytes) -> bool:
    """Have a shell carry out something; true if it ends well."""
    session = Session(lines, _ignore)
    await started(connection, session, within_s=_ANSWERS_WITHIN_S)
    try:
        how = await session.ended
    finally:
        session.close()
    return how is not None and how.code == 0


def _address(delivery: Delivery) -> Address:
    try:
        return parse(delivery.target.address)
    except InvalidInput as error:
        raise HostRefused(f"The host has no address for SSH: {error}.") from None


def _key(delivery: Delivery) -> tuple[str, int, int]:
    return delivery.command_id, delivery.epoch, delivery.target.host_id


def _report(attempt: _Attempt, how: Exit | None) -> Report:
    if how is None:
        raise _lost(attempt.name)
    if attempt.session is None or attempt.session.begun is None:
        raise HostRefused(_unbegun(attempt))
    if how.code == 0:
        return Report(succeeded=True, exit_code=0)
    error = f"killed by {how.killed_by}" if how.killed_by else f"exit code {how.code}"
    return Report(succeeded=False, exit_code=how.code, error=error)


def _unbegun(attempt: _Attempt) -> str:
    said = attempt.session.said_before if attempt.session else ""
    for secret in attempt.program.secrets.values():
        said = said.replace(secret, "***") if secret else said
    what = f"it says: {said}" if said else "it says nothing; can its login shell start /bin/sh?"
    return f"{attempt.name} has not begun the program: {what}"


def _lost(name: str) -> DeliveryUnknown:
    return DeliveryUnknown(
        f"The connection to {name} was lost after it had been asked: it may have run, or run still."
    )


def _broken(name: str) -> NotDelivered:
    return NotDelivered(f"The connection to {name} was lost before anything was asked.")


def _ignore(_stream: Stream, _text: str) -> None:
    """What stops a program has nothing to say."""
