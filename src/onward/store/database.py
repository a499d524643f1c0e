"""The connection to PostgreSQL: who may serve us, how a pool is made, how its errors are told."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from onward.errors import (
    InvalidInput,
    NotOpen,
    ServerNotDurable,
    ServerProblem,
    ServerTooOld,
    ServerUnreachable,
)

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Connection: TypeAlias = (
    "asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
)

_OLDEST: Final = 15
_CONNECT_S: Final = 15.0
# What the driver raises when nobody is there, or not yet. It is left to whoever starts a program
# whether to wait; a refusal (a password, a name, a certificate) stays one however long one waits.
_AWAY: Final = (
    OSError,
    TimeoutError,
    asyncpg.CannotConnectNowError,
    asyncpg.InsufficientResourcesError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.PostgresConnectionError,
)
_REFUSED: Final = (ssl.SSLCertVerificationError, PermissionError)
_DURABILITY: Final = ("fsync", "full_page_writes", "synchronous_commit")

_SESSION: Final = {
    "application_name": "onward",
    "search_path": "onward, public",
    # The guarded path relies on seeing the newest committed row when it has waited for a lock;
    # under a stricter level it would be an error instead.
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    # A client that hangs in the middle of a transaction must not hold rows for ever.
    "idle_in_transaction_session_timeout": "60s",
    # A plan is chosen in the functions; here compiling costs more than it saves.
    "jit": "off",
}


async def connect(url: str) -> asyncpg.Connection[asyncpg.Record]:
    """Open one connection, or say in one sentence why there is none."""
    with _explained(url):
        return await asyncpg.connect(url, timeout=_CONNECT_S, server_settings=_SESSION)


def is_away(error: ServerProblem) -> bool:
    """Whether a server that could not be used was not there, and may be the next time."""
    cause = error.__cause__
    return isinstance(cause, _AWAY) and not isinstance(cause, _REFUSED)


async def identity(connection: Connection) -> str:
    """Return what no other database is called, on this server or any other; the same for ever.

    For names in a place that several installations share.
    """
    number = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()"
    server = "SELECT system_identifier FROM pg_control_system()"
    found = f"{await connection.fetchval(number):x}"
    try:
        return f"{await connection.fetchval(server):x}-{found}"
    except asyncpg.InsufficientPrivilegeError:
        # Some hosters keep the number of their servers to themselves; the name has to do.
        return f"{await connection.fetchval('SELECT current_database()')}-{found}"


async def _as_it_is(_connection: Connection) -> None:
    """Put a connection back into its pool.

    Nothing of ours changes a session, and the driver rolls back a transaction that was left open;
    the reset that it would add costs every statement a second round trip.
    """


# For whoever walks: each question is answered by an index, one step after the other. A plan that
# was made while a table was small must not read all of it when it has grown, and a bitmap gathers
# what has been dead since the last vacuum.
_WALKING: Final = {"enable_seqscan": "off", "enable_bitmapscan": "off"}


@asynccontextmanager
async def pooled(url: str, *, size: int, walking: bool = False) -> AsyncIterator[Pool]:
    """Keep up to `size` connections open, and close them in the end.

    With `walking`, for the questions of an engine, which only ever want a few rows of many.
    """
    with _explained(url):
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=size,
            timeout=_CONNECT_S,
            server_settings=_SESSION | _WALKING if walking else _SESSION,
            reset=_as_it_is,
        )
    try:
        yield pool
    finally:
        await pool.close()


async def check_server(connection: Connection, *, durable: bool = True) -> None:
    """Refuse a server that is too old, or that may forget what it has acknowledged."""
    rows = await connection.fetch(
        "SELECT name, setting FROM pg_settings WHERE name = ANY ($1)",
        ["server_version_num", "server_version", *_DURABILITY],
    )
    settings: dict[str, str] = {row["name"]: row["setting"] for row in rows}
    refuse_old(int(settings["server_version_num"]), settings["server_version"])
    if durable:
        refuse_forgetful(settings)


def refuse_old(number: int, shown: str) -> None:
    """Refuse a server that lacks what we rely on."""
    if number < _OLDEST * 10_000:
        raise ServerTooOld(
            f"PostgreSQL {shown} is too old: Onward needs {_OLDEST} or newer; "
            "upgrade the server, or unset ONWARD_DATABASE_URL to use the embedded one."
        )


def refuse_forgetful(settings: dict[str, str]) -> None:
    """Refuse a server whose COMMIT does not mean that the data is safe."""
    if off := [name for name in _DURABILITY if settings[name] == "off"]:
        raise ServerNotDurable(
            f"PostgreSQL has {' and '.join(off)} switched off and may lose what it has confirmed: "
            "switch it on, or set ONWARD_REQUIRE_DURABLE=false if the data may be lost."
        )


@contextmanager
def answering() -> Iterator[None]:
    """Turn a connection that broke under a statement into one sentence."""
    try:
        yield
    except asyncpg.InterfaceError as error:
        if "pool is clos" in str(error):
            raise NotOpen(
                "What was open here has been closed: open it again with `onward.open()`."
            ) from error
        raise _unanswered(error) from error
    except (
        asyncpg.PostgresConnectionError,
        # What the driver says when the connection is cut between two of its own messages.
        asyncpg.InternalClientError,
        asyncpg.CannotConnectNowError,
        # Too many connections, no memory, no disk: the server's trouble, and not for ever.
        asyncpg.InsufficientResourcesError,
        # Two who waited for each other in a circle: whoever was sent away may come again.
        asyncpg.DeadlockDetectedError,
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        # What the server says to a pool that wants another connection and gets none.
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        OSError,
    ) as error:
        raise _unanswered(error) from error


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except ValueError:
        # Without what the driver says, and without the cause: both may quote the password.
        raise InvalidInput(
            "ONWARD_DATABASE_URL",
            "not a PostgreSQL address such as postgresql://user@host:5432/database; "
            "write # / ? and @ in a password as %23 %2F %3F and %40",
        ) from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise ServerUnreachable(
            f"PostgreSQL at {_place(url)} cannot be used: {_reason(error)}; "
            "check ONWARD_DATABASE_URL and that the server runs."
        ) from error


def _unanswered(error: Exception) -> ServerUnreachable:
    return ServerUnreachable(
        f"PostgreSQL did not answer ({_reason(error)}), so it is not known whether the events "
        "were taken; saying them again is safe, the verdict tells which were."
    )


def _reason(error: BaseException) -> str:
    told = str(error) or type(error).__name__
    return told.splitlines()[0].rstrip(".")


def _place(url: str) -> str:
    """Name the server of an address without the password in it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "that address"
    where = parts.hostname or "the local socket"
    return f"{where}:{port}" if port else where
