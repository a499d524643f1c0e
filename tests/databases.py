"""Databases for tests: copies of one that has the schema, each dropped when its test is done."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from urllib.parse import urlsplit, urlunsplit

import asyncpg

_numbers = count(1)


class copied:  # noqa: N801 - used as a function
    """Make a database from the template, and drop it in the end."""

    def __init__(self, server_url: str, template: str) -> None:
        self._server_url = server_url
        self._template = template
        self._name = f"onward_test_{os.getpid()}_{next(_numbers)}"

    def __enter__(self) -> str:
        make(self._server_url, self._name, self._template)
        return on(self._server_url, self._name)

    def __exit__(self, *_: object) -> None:
        drop(self._server_url, self._name)


def make(server_url: str, name: str, template: str = "template0") -> None:
    """Make a database of this name, whether there is one or not."""
    run(
        server_url,
        f"DROP DATABASE IF EXISTS {name} WITH (FORCE)",
        f"CREATE DATABASE {name} TEMPLATE {template}",
    )


def drop(server_url: str, name: str) -> None:
    """Drop a database, whoever is still connected to it."""
    run(server_url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def run(url: str, *statements: str) -> None:
    """Run statements, each for itself."""

    async def connected() -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(connected())


def on(url: str, database: str) -> str:
    """The same server, another database."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{database}", netloc=parts.netloc or "")).replace(
        "postgresql:/" + database, "postgresql:///" + database
    )
