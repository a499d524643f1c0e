"""A service with a small fleet and a few people, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.crew import ROLES, Crew
from tests.cli.running import folder_for_servers, on_database, onward_up
from tests.databases import copied

FLEET = "name,role,zone\n" + "".join(
    f"web{n},web,{'eu' if n % 2 else 'us'}\n" for n in range(1, 13)
)

# What fails is tried again at once.
SOON = {"ONWARD_BASE_BACKOFF_S": "0.01", "ONWARD_MAX_BACKOFF_S": "0.02"}


@pytest.fixture(scope="module")
def crew(server_url: str, template: str) -> Iterator[Crew]:
    """Twelve web servers and a database, an operator, an approver, a viewer and a trader."""
    with (
        folder_for_servers() as folder,
        copied(server_url, template) as url,
        onward_up(folder, "--network", "perfect", **on_database(url), **SOON) as up,
    ):
        found = Crew(up, folder, {"root": up.key})
        fleet = Path(folder) / "fleet.csv"
        fleet.write_text(f"{FLEET}db1,db,eu\n")
        found.ok("hosts", "import", str(fleet))
        for person, role in ROLES.items():
            made = found.ok("keys", "make", "test", "--person", person, "--role", role)
            found.keys[person] = made.said.strip()
        yield found
