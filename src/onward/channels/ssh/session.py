"""One program on one host: what it prints, and how it ended.

Until the shell has said that the program begins, what comes is the chatter of a login and no
output. A program that has ended while a child of its own keeps the output open is not waited for:
its end is told once nothing has come for a moment.
"""

from __future__ import annotations

import asyncio
import codecs
import signal
from collections.abc import Callable
from typing import Final, NamedTuple

import asyncssh

from onward.channels.base import Output, Stream
from onward.channels.ssh.script import BEGUN, COMMAND, Begun

_QUIET_S: Final = 2.0
_CHATTER_MAX: Final = 64 * 1024
_ON_STDERR: Final = asyncssh.EXTENDED_DATA_STDERR

_decoder = codecs.getincrementaldecoder("utf-8")


class Exit(NamedTuple):
    """How a program ended."""

    code: int | None
    killed_by: str | None = None  # the signal, as in SIGKILL


class Session(asyncssh.SSHClientSession[bytes]):
    """Hears one program over one channel of a connection.

    `ended` is done with how the program ended, or with nothing if that will never be known.
    """

    def __init__(
        self,
        send: bytes,
        output: Output,
        *,
        may_ask: Callable[[], bool] = lambda: True,
        on_begun: Callable[[], None] = lambda: None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.begun: Begun | None = None
        self.ended: asyncio.Future[Exit | None] = loop.create_future()
        self.closed = loop.create_future()
        self._loop = loop
        self._send = send
        self._output = output
        self._may_ask = may_ask  # the last word before the request is sent
        self._on_begun = on_begun
        self._chatter = b""
        self._errors_before = b""
        self._decoders = {stream: _decoder("backslashreplace") for stream in Stream}
        self._exit: Exit | None = None
        self._eof = False
        self._given_up = False
        self._quiet: asyncio.TimerHandle | None = None
        self.channel: asyncssh.SSHClientChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """Send right behind the request, without waiting a round trip for its answer."""
        if self._given_up or not self._may_ask():
            chan.abort()  # The request is then not sent either.
            return
        self.channel = chan
        self._loop.call_soon(self._write)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Take what was printed."""
        if self._quiet is not None:
            self._await_quiet()
        if self.begun is None:
            self._before(data, datatype)
        else:
            self._tell(Stream.STDERR if datatype == _ON_STDERR else Stream.STDOUT, data)

    def exit_status_received(self, status: int) -> None:
        """Take the word of the host that the program has exited."""
        self._take_exit(Exit(status))

    def exit_signal_received(
        self,
        signal: str,
        core_dumped: bool,  # noqa: FBT001, ARG002 - asyncssh calls it so
        msg: str,  # noqa: ARG002
        lang: str,  # noqa: ARG002
    ) -> None:
        """Take the word of the host that a signal has ended the program."""
        number = _NUMBERS.get(signal)
        self._take_exit(Exit(None if number is None else 128 + number, f"SIG{signal}"))

    def eof_received(self) -> bool:
        """Take the word that nothing more is printed."""
        self._eof = True
        if self._exit is not None:
            self._end()
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        """End, with what is known by now."""
        self._end()
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """Hear no more of it; what has not been asked for will not be."""
        self._given_up = True
        self._end()
        if self.channel is not None:
            self.channel.abort()

    @property
    def said_before(self) -> str:
        """What was said instead of beginning, in one line."""
        said = self._errors_before or self._chatter
        return " ".join(said.decode(errors="backslashreplace").split())[-300:]

    def _write(self) -> None:
        if self.channel is not None and not self.channel.is_closing():
            self.channel.write(self._send)
            self.channel.write_eof()
        self._send = b""

    def _before(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype == _ON_STDERR:
            self._errors_before = (self._errors_before + data)[-_CHATTER_MAX:]
            return
        self._chatter += data
        found = BEGUN.search(self._chatter)
        if found is None:
            self._chatter = self._chatter[-_CHATTER_MAX:]
            return
        self.begun = Begun(int(found[1]), int(found[2]))
        self._on_begun()
        self._tell(Stream.STDERR, self._errors_before)
        self._tell(Stream.STDOUT, self._chatter[found.end() :])
        self._chatter = self._errors_before = b""

    def _tell(self, stream: Stream, data: bytes, *, final: bool = False) -> None:
        if self.ended.done():
            return
        text = self._decoders[stream].decode(data, final)
        if not text:
            return
        try:
            self._output(stream, text)
        except Exception as bug:  # noqa: BLE001 - raised again by the call that listens
            self.ended.set_exception(bug)

    def _take_exit(self, how: Exit) -> None:
        self._exit = how
        if self._eof:
            self._end()
        else:
            self._await_quiet()

    def _await_quiet(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
        self._quiet = self._loop.call_later(_QUIET_S, self._end)

    def _end(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        for stream in Stream:
            self._tell(stream, b"", final=True)
        if not self.ended.done():
            self.ended.set_result(self._exit)


async def started(
    connection: asyncssh.SSHClientConnection, session: Session, *, within_s: float
) -> None:
    """Ask the host to run what a session has to send.

    The session has a channel from the moment before the request is sent: whoever fails without one
    has asked for nothing.
    """
    # A task of its own: a channel that is opened for somebody who has given up has to be closed.
    asked = asyncio.ensure_future(
        connection.create_session(lambda: session, COMMAND, encoding=None)
    )
    try:
        async with asyncio.timeout(within_s):
            await asyncio.shield(asked)
    except BaseException:
        session.close()
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


_NUMBERS: Final = {each.name.removeprefix("SIG"): each.value for each in signal.Signals}
