"""Locks in Redis or Valkey: they shed contention, and decide nothing.

Whoever finds a lock taken is told so at once, instead of waiting at a row that another is changing.
Nothing is allowed because of a lock: what may be changed is asked of PostgreSQL, in the statement
that changes it. So a server that is away, slow or emptied takes nothing from anybody; it only lets
more of them come as far as the row.

1. A lock is a key with a token of its holder's and a time to live, and only its token frees it.
2. What is asked for while a message is under way goes with the next one, in the order in which it
   was asked for: one message for many callers, and one after the other on one connection.
3. Whoever is released waits for the server's word, because their next request may come to another
   process. Whoever is cancelled does not wait, and their lock is freed all the same.
4. A message without an answer may have been heard. What it wanted to take or free is freed with
   the next one that is answered.
5. Within the process a holder is known without asking.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Final, NamedTuple

import redis.asyncio
import structlog
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as HungUp
from redis.exceptions import NoScriptError

from onward.errors import InvalidInput

_PREFIX: Final = "onward:lock:"
_REST_S: Final = 1.0  # how long a server that did not answer is left alone
_MESSAGE_MAX: Final = 500  # locks that one message takes or frees
_OWED_MAX: Final = 10_000  # to be freed when the server is back; what is more ends by itself
_TAKE, _FREE = "+", "-"

# Keys are taken and freed in the order in which they stand here; the answer has a digit for each.
# Taking what the token already has is granted again, so that a message may be sent twice.
_SCRIPT: Final = """\
local said = {}
for at, key in ipairs(KEYS) do
  local deed, token = string.sub(ARGV[at + 1], 1, 1), string.sub(ARGV[at + 1], 2)
  said[at] = '1'
  if deed == '+' then
    local set = redis.call('SET', key, token, 'NX', 'PX', ARGV[1])
    if not set and redis.call('GET', key) ~= token then said[at] = '0' end
  elseif redis.call('GET', key) == token then
    redis.call('DEL', key)
  end
end
return table.concat(said)
"""
_SHA: Final = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.locks")


class Lease(NamedTuple):
    """A lock that was granted."""

    name: str
    token: str
    until: float  # on the clock of the event loop; from then on it holds nobody back
    kept: bool  # whether the server may know of it


class _Wish(NamedTuple):
    """What is to be asked of the server, and who waits for its word."""

    deed: str
    name: str
    token: str
    answer: asyncio.Future[bool | None] | None = None  # None comes when the server is silent


class Locks:
    """The locks of one process on one server."""

    def __init__(
        self,
        url: str | None,
        *,
        database: str = "",
        ttl_s: float = 5.0,
        patience_s: float = 0.25,
    ) -> None:
        """Without an address there is no server, and only this process knows of its locks.

        `database` tells locks of one database from those of another that uses the same server. A
        lock ends by itself after `ttl_s`; the server is waited for no longer than `patience_s`.
        """
        prefix = f"{_PREFIX}{database}:" if database else _PREFIX
        self._server = None if url is None else _Server(url, prefix=prefix, ttl_s=ttl_s)
        self._ttl_s = ttl_s
        self._patience_s = patience_s
        self._held: dict[str, Lease] = {}
        self._wishes: deque[_Wish] = deque()
        self._owed: dict[str, str] = {}  # the name by the token, for want of an answer
        self._away = False
        self._sending: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None

    async def take(self, name: str) -> Lease | None:
        """Take a lock; `None` when another holds it.

        While the server is away, a lease holds back nobody but the callers of this process.
        """
        now = asyncio.get_running_loop().time()
        held = self._held.get(name)
        if held is not None and held.until > now:
            return None
        kept = self._server is not None and not self._away
        lease = Lease(name, secrets.token_hex(16), now + self._ttl_s, kept)
        self._held[name] = lease
        return await self._confirmed(lease) if kept else lease

    async def free(self, lease: Lease) -> None:
        """Free a lock, unless it has ended and is another's by now; raises nothing of its own.

        Whoever is cancelled here has freed it all the same.
        """
        self._drop(lease)
        if lease.kept:
            await self._ask(_FREE, lease)

    @asynccontextmanager
    async def holding(self, name: str) -> AsyncIterator[bool]:
        """Hold a lock as long as the block lasts; false when another holds it."""
        lease = await self.take(name)
        try:
            yield lease is not None
        finally:
            if lease is not None:
                await self.free(lease)

    async def close(self) -> None:
        """Wait for what is still to be freed, and hang up; locks are then this process's own."""
        while self._sending is not None:
            await asyncio.wait({self._sending})
        self._away = True
        if self._again is not None:
            self._again.cancel()
        if self._server is not None:
            await self._server.hang_up()

    async def _confirmed(self, lease: Lease) -> Lease | None:
        """Return the lease if the server grants it, or says nothing."""
        try:
            granted = await self._ask(_TAKE, lease)
        except BaseException:
            # The wish may be on its way. The one to free it goes behind it, and nobody waits.
            self._drop(lease)
            self._hand_in(_Wish(_FREE, lease.name, lease.token))
            raise
        if granted is False:
            self._drop(lease)
            return None
        return lease if granted else lease._replace(kept=False)

    def _drop(self, lease: Lease) -> None:
        held = self._held.get(lease.name)
        # It may have ended, and be another caller's by now.
        if held is not None and held.token == lease.token:
            del self._held[lease.name]

    async def _ask(self, deed: str, lease: Lease) -> bool | None:
        answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._hand_in(_Wish(deed, lease.name, lease.token, answer))
        return await answer

    def _hand_in(self, wish: _Wish) -> None:
        if self._away:
            self._miss([wish])
            return
        self._wishes.append(wish)
        if self._sending is None:
            self._send()

    def _send(self) -> None:
        # It begins in the next turn of the loop, and takes along whoever asks in this one.
        self._sending = asyncio.create_task(self._send_all())
        self._sending.add_done_callback(self._sent)

    def _sent(self, _: asyncio.Task[None]) -> None:
        self._sending = None
        if self._wishes:
            self._send()

    async def _send_all(self) -> None:
        while self._wishes:
            size = min(len(self._wishes), _MESSAGE_MAX)
            if not await self._told([self._wishes.popleft() for _ in range(size)]):
                break

    async def _told(self, wishes: Sequence[_Wish]) -> bool:
        """Send one message and hand out its answers; false if there were none."""
        assert self._server is not None  # noqa: S101 - nobody asks where there is no server
        try:
            async with asyncio.timeout(self._patience_s):
                said = await self._server.said(wishes)
            for wish, digit in zip(wishes, said, strict=True):
                _answer(wish, granted=digit == ord("1"))
        except BaseException as error:
            self._silent(wishes, error)
            if not isinstance(error, Exception):
                raise
            return False
        return True

    def _silent(self, wishes: Sequence[_Wish], error: BaseException) -> None:
        """Go on without the server: nobody else is to wait for it until it has answered again."""
        # Whatever the message wanted, it may have been heard.
        self._owe(wishes)
        self._miss([*wishes, *self._wishes])
        self._wishes.clear()
        if not self._away:
            # Nothing but the kind: what an error says may hold addresses and names.
            log.warning("locks go on without their server", reason=type(error).__name__)
        self._away = True
        self._again = asyncio.get_running_loop().call_later(_REST_S, self._try_again)

    def _owe(self, wishes: Sequence[_Wish]) -> None:
        for wish in wishes:
            if len(self._owed) < _OWED_MAX:
                self._owed[wish.token] = wish.name

    def _miss(self, wishes: Sequence[_Wish]) -> None:
        """Release those who wait for a server that says nothing; what they hold there is owed."""
        self._owe([wish for wish in wishes if wish.deed == _FREE])
        for wish in wishes:
            _answer(wish, granted=None)

    def _try_again(self) -> None:
        self._sending = asyncio.create_task(self._ask_whether_back())
        self._sending.add_done_callback(self._sent)

    async def _ask_whether_back(self) -> None:
        """Free what is owed, and see that a lock can be taken: a full server only says no to that.

        Connections are heard in turn, so a message that was left without an answer comes before.
        """
        token = secrets.token_hex(16)
        wishes = [_Wish(deed, token, token) for deed in (_TAKE, _FREE)]
        while wishes or self._owed:
            owed = list(islice(self._owed.items(), _MESSAGE_MAX))
            wishes.extend(_Wish(_FREE, name, each) for each, name in owed)
            if not await self._told(wishes):
                return
            for each, _ in owed:
                self._owed.pop(each, None)
            wishes.clear()
        self._away = False
        log.info("locks have their server again")


class _Server:
    """One connection, over which one message goes after the other.

    The connection itself, without redis-py's client around it, costs half of what a call costs.
    """

    def __init__(self, url: str, *, prefix: str, ttl_s: float) -> None:
        self._prefix = prefix
        try:
            # Whoever asks sets the time; retrying is not worth what it makes others wait.
            self._pool = redis.asyncio.ConnectionPool.from_url(
                url, retry=Retry(NoBackoff(), 0), socket_timeout=None, socket_connect_timeout=None
            )
        except ValueError as error:
            raise InvalidInput("ONWARD_REDIS_URL", f"not a Redis address ({error})") from error
        self._ttl_ms = str(max(1, round(ttl_s * 1_000)))
        self._connection: AbstractConnection | None = None

    async def said(self, wishes: Sequence[_Wish]) -> bytes:
        """Send one message, and return its answer: a digit for each wish."""
        keys = [f"{self._prefix}{wish.name}" for wish in wishes]
        given = [f"{wish.deed}{wish.token}" for wish in wishes]
        rest = (str(len(keys)), *keys, self._ttl_ms, *given)
        known = self._connection is not None
        try:
            return await self._run(*rest)
        except HungUp:
            # It was started anew, or has hung up on a connection that was silent for long.
            if not known:
                raise
            return await self._run(*rest)

    async def _run(self, *rest: str) -> bytes:
        try:
            return await self._call("EVALSHA", _SHA, *rest)
        except NoScriptError:
            # A server that was started anew does not know it. Nothing of it has been done.
            return await self._call("EVAL", _SCRIPT, *rest)

    async def _call(self, *words: str) -> bytes:
        try:
            if self._connection is None:
                self._connection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py's own
                await self._connection.connect()
            packed = self._connection.pack_command(*words)
            await self._connection.send_packed_command(packed, check_health=False)
            return bytes(await self._connection.read_response(disable_decoding=True))
        except NoScriptError:
            raise
        except BaseException:
            # An answer that comes after all must not be taken for that to the next message.
            await self.hang_up()
            raise

    async def hang_up(self) -> None:
        """Close the connection; the next message makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await connection.disconnect(nowait=True)


def _answer(wish: _Wish, *, granted: bool | None) -> None:
    if wish.answer is not None and not wish.answer.done():
        wish.answer.set_result(granted)
