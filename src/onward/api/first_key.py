"""The first key: without one nobody could make another.

Either the environment names it (`ONWARD_ADMIN_KEY`), or the first start makes one and leaves it in
a file that only its owner can read. Ten processes that start at once make one key.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onward.errors import InvalidInput
from onward.settings import Settings
from onward.store import keys
from onward.store.audit import Doer
from onward.store.database import Connection, Pool, answering
from onward.store.keys import Key

FROM_ENVIRONMENT: Final = "ONWARD_ADMIN_KEY"
FILE: Final = "admin-key"
_USABLE = re.compile(r"[!-~]{32,255}").fullmatch


@dataclass(frozen=True, slots=True)
class FirstKey:
    """A key that was made because there was none."""

    path: Path  # where it can be read


async def first_key(pool: Pool, settings: Settings) -> FirstKey | None:
    """See to it that there is a key of an admin; says where it is if it was made just now."""
    given = None if settings.admin_key is None else settings.admin_key.get_secret_value()
    if given is not None and not _USABLE(given):
        raise InvalidInput(
            FROM_ENVIRONMENT,
            "is not a key: it takes 32 to 255 printable ASCII characters without spaces",
        )
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            await keys.lock(connection)
            if given is not None:
                await _install(connection, given)
                return None
            if await connection.fetchval(keys.SQL["has_admin"]):
                return None
            return await _make(connection, settings.data_dir / FILE)


async def _install(connection: Connection, key: str) -> None:
    digest = keys.hashed(key.encode())
    by = Doer("environment")
    for row in await connection.fetch(keys.SQL["install"], FROM_ENVIRONMENT, digest):
        await keys.noted(connection, by, "make", Key(*row))
    for row in await connection.fetch(keys.SQL["replace"], FROM_ENVIRONMENT, digest):
        await keys.over(connection, by, Key(*row))


async def _make(connection: Connection, path: Path) -> FirstKey:
    by = Doer("first start")
    _, key = await keys.make(connection, FILE, person="admin", role="admin", by=by)
    # Written before the COMMIT: a file that opens nothing is replaced by the next start, but a key
    # that nobody has read would lock everybody out.
    try:
        await asyncio.to_thread(_write, path, key)
    except OSError as error:
        raise InvalidInput(
            "ONWARD_DATA_DIR", f"the first key cannot be written there ({error.strerror})"
        ) from error
    return FirstKey(path)


def _write(path: Path, key: str) -> None:
    """Write a file whole or not at all, that was never readable by anybody else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{key}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        _keep(path.parent)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def _keep(folder: Path) -> None:
    """Make what was renamed in a folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
