"""The Redis or Valkey beside PostgreSQL: it only helps, but is there when it is asked for."""

from __future__ import annotations

from typing import Final

import redis.asyncio
from redis.exceptions import RedisError

from onward.errors import InvalidInput, ServerTooOld, ServerUnreachable

_OLDEST: Final = (6, 2)
_CONNECT_S: Final = 5.0


async def check(url: str) -> None:
    """Refuse a server that does not answer, or that is too old."""
    try:
        client = redis.asyncio.from_url(
            url, socket_timeout=_CONNECT_S, socket_connect_timeout=_CONNECT_S
        )
    except ValueError as error:
        raise InvalidInput("ONWARD_REDIS_URL", f"not a Redis address ({error})") from error
    try:
        info = await client.info("server")
    except (RedisError, OSError, TimeoutError) as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise ServerUnreachable(
            f"Redis cannot be used: {reason}; check ONWARD_REDIS_URL and that the server runs."
        ) from error
    finally:
        await client.aclose()
    refuse_old(str(info["redis_version"]))


def refuse_old(version: str) -> None:
    """Refuse a server that lacks what we rely on."""
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise ServerTooOld(
            f"Redis {version} is too old: Onward needs 6.2 or newer, or any Valkey; upgrade it, "
            "or unset ONWARD_REDIS_URL to use the embedded Valkey."
        )
