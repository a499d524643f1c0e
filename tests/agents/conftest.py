"""A server that agents connect to, on a database of the module's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

import onward
from onward.wiring import Onward
from tests.agents.ground import Server, serving
from tests.conftest import settings_for
from tests.databases import copied


@pytest.fixture(scope="module")
def shared_url(server_url: str, template: str) -> Iterator[str]:
    """A database of the module's own."""
    with copied(server_url, template) as url:
        yield url


@pytest.fixture(scope="module")
async def shared(shared_url: str) -> AsyncIterator[Onward]:
    """Onward, open on a database of the module's own."""
    async with onward.open(settings_for(shared_url)) as found:
        yield found


@pytest.fixture(scope="module")
async def server(shared: Onward) -> AsyncIterator[Server]:
    """A server for the module."""
    async with serving(shared) as found:
        yield found
