"""A market for all tests of a module: every test trades items of its own, so they need no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from onward.store.database import Pool, pooled
from tests.databases import copied
from tests.trading.traders import Traders, endow

USERS = ("ann", "bob", "cyd", "dan", "eve")

_items = count(1)


@pytest.fixture(scope="module")
def market_url(server_url: str, template: str) -> Iterator[str]:
    """A database of the module's own."""
    with copied(server_url, template) as url:
        yield url


@pytest.fixture(scope="module")
async def market(market_url: str) -> AsyncIterator[Pool]:
    """Connections to it."""
    async with pooled(market_url, size=8) as pool:
        yield pool


@pytest.fixture
def traders(market: Pool) -> Traders:
    """Those who place orders there, and know their tokens."""
    return Traders(market)


@pytest.fixture
async def item(market: Pool) -> int:
    """An item that nobody has traded yet, and everybody has enough of."""
    number = next(_items)
    await endow(market, USERS, [number])
    return number
