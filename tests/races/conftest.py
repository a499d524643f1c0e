"""A database for all races of a module: every case has rows of its own, so they need no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.databases import copied
from tests.races.stage import Stage, staged


@pytest.fixture(scope="module")
def shared_url(server_url: str, template: str) -> Iterator[str]:
    """A database of the module's own."""
    with copied(server_url, template) as url:
        yield url


@pytest.fixture(scope="module")
async def stage(shared_url: str) -> AsyncIterator[Stage]:
    """Two sessions and an observer, on the guarded path."""
    async with staged(shared_url) as opened:
        yield opened
