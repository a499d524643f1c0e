"""A database for all races of a module: every case has rows of its own, so they need no more."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.races.stage import Stage, staged


@pytest.fixture(scope="module")
async def stage(shared_url: str) -> AsyncIterator[Stage]:
    """Two sessions and an observer, on the guarded path."""
    async with staged(shared_url) as opened:
        yield opened
