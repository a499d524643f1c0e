"""A server that agents connect to, on a database of the module's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import onward
from onward.wiring import Onward
from tests.agents.ground import Server, serving
from tests.conftest import settings_for


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
