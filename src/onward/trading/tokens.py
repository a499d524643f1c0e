"""The token of each user's last order, remembered in Redis or Valkey.

PostgreSQL has the token, and compares it in the transaction that places an order. What is kept here
spares it being asked when somebody looks at their orders. An old token that is still remembered is
refused there like any other, with the present one; and that is remembered then.
"""

from __future__ import annotations

import time
from typing import Final
from uuid import UUID

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from onward.store import orders
from onward.store.database import Pool
from onward.store.orders import Side

_PREFIX: Final = "onward:token:"
_KEPT_S: Final = 600
_PATIENCE_S: Final = 0.25
_REST_S: Final = 1.0  # how long a server that did not answer is left alone

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.tokens")


class Tokens:
    """What is known of tokens; without a `url`, PostgreSQL is asked every time."""

    def __init__(self, pool: Pool, url: str | None, *, database: str = "") -> None:
        """`database` tells the tokens of one from those of another that uses the same server."""
        self._pool = pool
        self._prefix = f"{_PREFIX}{database}:" if database else _PREFIX
        self._client = None
        if url is not None:
            self._client = redis.asyncio.from_url(
                url, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S
            )
        self._rests_until = 0.0

    async def present(self, user: str, side: Side) -> UUID:
        """Return the token that the next order has to name, as far as is known."""
        if found := await self._remembered(user, side):
            return found
        token = await orders.token_of(self._pool, user, side)
        # Only where nothing is: whoever has placed an order meanwhile knows better.
        await self._ask("set", self._name(user, side), str(token), nx=True, ex=_KEPT_S)
        return token

    async def remember(self, user: str, side: Side, token: UUID) -> None:
        """Take note of a token that PostgreSQL has just told."""
        await self._ask("set", self._name(user, side), str(token), ex=_KEPT_S)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _remembered(self, user: str, side: Side) -> UUID | None:
        kept = await self._ask("get", self._name(user, side))
        if not isinstance(kept, bytes):
            return None
        try:
            return UUID(kept.decode())
        except ValueError:  # not ours: somebody else writes there too
            return None

    async def _ask(self, command: str, *given: object, **options: object) -> object:
        """Ask the server; nothing is as good an answer as any."""
        if self._client is None or time.monotonic() < self._rests_until:
            return None
        try:
            return await getattr(self._client, command)(*given, **options)
        except (RedisError, OSError, TimeoutError) as error:
            self._rests_until = time.monotonic() + _REST_S
            log.warning("tokens_not_remembered", problem=type(error).__name__)
            return None

    def _name(self, user: str, side: Side) -> str:
        return f"{self._prefix}{side}:{user}"
