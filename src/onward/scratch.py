"""A PostgreSQL that is thrown away: what the storm and the measurements run on.

It is as durable as any other, because neither would mean anything on a server that may forget.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from onward.embedded import Servers, servers
from onward.errors import InvalidInput


@contextmanager
def scratch_servers(
    purpose: str, data_dir: Path | None = None, *, valkey: bool = False
) -> Iterator[Servers]:
    """Start a server in a directory of its own and remove both in the end; `data_dir` is kept."""
    if data_dir is not None:
        with servers(data_dir, valkey=valkey) as running:
            yield running
        return
    folder = Path(tempfile.mkdtemp(prefix=f"onward-{purpose}-"))
    try:
        with servers(folder, valkey=valkey) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch_folder(purpose: str, data_dir: Path | None = None) -> Iterator[Path]:
    """Give a folder that is removed in the end; or `data_dir`, which has to be new and is kept."""
    if data_dir is not None:
        folder = data_dir.expanduser().resolve()
        if folder.exists() and any(folder.iterdir()):
            raise InvalidInput("data-dir", f"{folder} is not empty; name a folder that is new")
        yield folder
        return
    with tempfile.TemporaryDirectory(
        prefix=f"onward-{purpose}-", ignore_cleanup_errors=True
    ) as temporary:
        yield Path(temporary)


async def new_database(server_url: str, name: str) -> str:
    """Make an empty database, in place of a former one of that name, and return its address."""
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    finally:
        await connection.close()
    return database_at(server_url, name)


def database_at(server_url: str, name: str) -> str:
    """Return the address of another database of the same server."""
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()
