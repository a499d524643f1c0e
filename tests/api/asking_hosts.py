"""What the tests of hosts, blocks and command types have in common."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import httpx2

from onward.store.database import Connection

BOUND_S = 30.0
_numbers = count(1)


def fresh(prefix: str = "h") -> str:
    """A name that no other test of this run has."""
    return f"{prefix}{next(_numbers)}"


async def made(
    client: httpx2.AsyncClient, name: str | None = None, **fields: Any
) -> dict[str, Any]:
    """A host that was made just now, as the answer shows it."""
    answer = await client.post("/hosts", json={"name": name or fresh(), **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def shown(client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    """What there is at an address."""
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def pages(client: httpx2.AsyncClient, path: str, **query: Any) -> list[list[dict[str, Any]]]:
    """All pages of a list."""
    found: list[list[dict[str, Any]]] = []
    cursor, cursors = None, set()
    while True:
        params = {**query, "cursor": cursor} if cursor else query
        answer = await client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["items"])
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found
        assert cursor not in cursors, "the list goes round in a circle"
        cursors.add(cursor)


async def until_waiting(watcher: Connection, sessions: int) -> None:
    """Return when so many sessions of this database wait for a lock; not for ever."""
    async with asyncio.timeout(BOUND_S):
        while sessions != await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND cardinality(pg_blocking_pids(pid)) > 0"
        ):
            pass  # every query gives the loop a turn


# Bodies that no route takes, whatever it is for.
NO_BODY: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 400),
    "spaces": (b"  \n", 400),
    "no JSON": (b"{", 400),
    "two values": (b"{}{}", 400),
    "NaN": (b'{"x": NaN}', 400),
    "a key twice": (b'{"x": 1, "x": 2}', 400),
    "UTF-16": ("{}".encode("utf-16"), 400),
    "a byte order mark": (b"\xef\xbb\xbf{}", 400),
    "no UTF-8": (b'{"x": "\xff"}', 400),
    "deep": (b"[" * 10_000, 400),
    "a long number": (b'{"x": ' + b"9" * 5_000 + b"}", 400),
    "null": (b"null", 422),
    "a list": (b"[]", 422),
    "a text": (b'"x"', 422),
    "an unknown field": (b'{"is_admin": true}', 422),
    "half a surrogate pair": (b'{"x": "\\ud800"}', 422),
}


async def refuses_what_no_route_takes(
    client: httpx2.AsyncClient, method: str, path: str, headers: dict[str, str] | None = None
) -> int:
    """Check that an address refuses every body that no route takes; returns how many."""
    sent = {"Content-Type": "application/json", **(headers or {})}
    for case, (content, status) in NO_BODY.items():
        answer = await client.request(method, path, content=content, headers=sent)
        assert answer.status_code == status, (case, answer.text)
        assert answer.headers["content-type"] == "application/problem+json", case
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await client.request(
            method, path, content=b"{}", headers={**sent, "Content-Type": kind}
        )
        assert answer.status_code == 415, kind
    large = b'{"x": "' + b"x" * (8 * 1024 * 1024) + b'"}'
    answer = await client.request(method, path, content=large, headers=sent)
    assert answer.status_code == 413
    return len(NO_BODY) + 4
