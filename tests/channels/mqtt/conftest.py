"""One broker for the tests that do not stop it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.channels.mqtt.mosquitto import NEEDED, Mosquitto, installed, mosquitto


@pytest.fixture(scope="module")
async def broker() -> AsyncIterator[Mosquitto]:
    """A broker that a module shares."""
    if not installed:
        pytest.skip(NEEDED)
    async with mosquitto() as found:
        yield found


@pytest.fixture
async def own_broker() -> AsyncIterator[Mosquitto]:
    """A broker that a test may stop, or leave sessions at."""
    if not installed:
        pytest.skip(NEEDED)
    async with mosquitto() as found:
        yield found
