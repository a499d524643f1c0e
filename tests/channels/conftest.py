"""Every test of the contract runs for each way to the simulated hosts."""

from __future__ import annotations

import pytest

from tests.channels.worlds import WAYS, Way


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """How a channel reaches the fleet."""
    return WAYS[request.param]
