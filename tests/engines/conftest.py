"""Each engine on a ground of its own, started once for all tests of a module that share it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engines.ground import Ground, at_work, ground


@pytest.fixture(scope="session")
def server(server_url: str, template: str) -> tuple[str, str]:
    """Where databases are made, and from what."""
    return server_url, template


@pytest.fixture(scope="module")
async def embedded(server: tuple[str, str]) -> AsyncIterator[Ground]:
    """The engine in one process, at work."""
    async with ground("embedded", server) as found, at_work(found):
        yield found


@pytest.fixture(scope="module")
async def celery(server: tuple[str, str]) -> AsyncIterator[Ground]:
    """A worker of Celery and Beat, at work."""
    async with ground("celery", server) as found, at_work(found):
        yield found


@pytest.fixture(params=["embedded", "celery"])
def working(request: pytest.FixtureRequest) -> Ground:
    """An engine at work; its hosts are reached over a calm network."""
    found: Ground = request.getfixturevalue(request.param)
    return found
