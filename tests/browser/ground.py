"""What the tests of the dashboard stand on: people with keys, hosts and jobs, and the way in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeVar

import asyncpg
import httpx2
from playwright.sync_api import Page, expect

from tests.cli.running import BOUND_S, Up, until

# Somebody of each role, two approvers because they race, and two traders because it takes two.
PEOPLE: Final[Mapping[str, str]] = {
    "ann": "operator",
    "bob": "approver",
    "eve": "approver",
    "vic": "viewer",
    "tom": "trader",
    "tim": "trader",
    "root": "admin",
}

# What hostile or merely unlucky people call things. None may become markup, or break the page.
NASTY: Final = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "\"'><svg onload=alert(1)>",
    "{{7*7}} ${7*7} javascript:alert(1)",
    "\u202egnp.exe\u202c مرحبا",
    "🧨" * 20 + "e\u0301" * 20,
    "w" * 255,
)

_numbers = count(1)
T = TypeVar("T")


@dataclass(frozen=True)
class Ground:
    """A service, and callers of it that are no browser."""

    up: Up
    client: httpx2.Client  # of an admin
    database_url: str
    keys: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def made(cls, up: Up, client: httpx2.Client, url: str) -> Ground:
        ground = cls(up, client, url)
        for person, role in PEOPLE.items():
            ground.keys[person] = ground.key(person, role)["key"]
        return ground

    @property
    def address(self) -> str:
        return self.up.address

    def key(self, person: str, role: str, name: str = "of a test") -> dict[str, Any]:
        """Make a key; the answer has its `key` and its `id`."""
        return self._made("/keys", {"name": name, "person": person, "role": role})

    def calling(self, person: str) -> AbstractContextManager[httpx2.Client]:
        """Call as somebody, as any program does."""
        headers = {"Authorization": f"Bearer {self.keys[person]}"}
        return httpx2.Client(
            base_url=self.address,
            headers=headers,
            timeout=BOUND_S,
            verify=False,  # plain HTTP; to read whom one may trust takes long
        )

    def hosts(self, *names: str, **labels: str) -> list[int]:
        """Make simulated hosts; returns their ids."""
        return [self._made("/hosts", {"name": n, "labels": labels})["host_id"] for n in names]

    def command_type(self, name: str, **rules: object) -> str:
        """Make a command type."""
        plain = {"needs_approval": False, "read_only": False, "timeout_s": 60, "max_retries": 0}
        answer = self.client.put(f"/command-types/{name}", json={**plain, **rules})
        assert answer.is_success, answer.text
        return name

    def job(self, command_type: str, selector: object, *, by: str = "ann", **asked: object) -> int:
        """Send a job as somebody; returns its id."""
        body = {"external_id": f"b-{next(_numbers)}", "command_type": command_type, **asked}
        with self.calling(by) as client:
            answer = client.post("/webhook/jobs", json={**body, "selector": selector})
        assert answer.status_code == 202, answer.text
        return int(answer.json()["job_id"])

    def seen(self, path: str, *, by: str = "root") -> tuple[dict[str, Any], str]:
        """Look at something: what there is, and its version."""
        with self.calling(by) as client:
            answer = client.get(path).raise_for_status()
        return answer.json(), answer.headers.get("etag", "")

    def listeners(self) -> int:
        """How many listen to the stream of changes."""
        found = re.search(
            r"^onward_event_streams (\d+)", self.client.get("/metrics").text, re.MULTILINE
        )
        assert found is not None
        return int(found[1])

    def until_listeners(self, number: int) -> None:
        """Wait until so many listen."""
        until(lambda: self.listeners() == number)

    def sql(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """Ask the database itself, for what takes no API, or too many calls of it."""

        async def asked() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.database_url)
            try:
                await connection.execute("SET search_path TO onward")
                return await connection.fetch(statement, *values)
            finally:
                await connection.close()

        return awaited(asked())

    def _made(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        answer = self.client.post(path, json=body)
        assert answer.is_success, answer.text
        return dict(answer.json())


def awaited(deed: Coroutine[Any, Any, T]) -> T:
    """Await something in a thread of its own: in this one, the loop of the browser is running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, deed).result()


def log_in(page: Page, key: str, path: str = "") -> None:
    """Show a key at the door, and go to a page."""
    page.goto(f"/#/{path}")
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()


def sees(page: Page, texts: Iterable[str]) -> None:
    """Check that all of these stand on the page, as they were written."""
    for text in texts:
        expect(page.get_by_text(text, exact=False).first).to_be_visible()
