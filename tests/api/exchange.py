"""A service that is called over HTTP, on a real PostgreSQL and a real Valkey, and people who trade.

Whoever trades has a name that nobody else has, so that tests share a database and a Valkey and do
not mind each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import uuid4

import httpx2
import redis.asyncio
from fastapi import FastAPI

import onward
from onward.api.app import create_app
from onward.api.events import end_streams
from onward.api.services import Services
from onward.service.listening import listening, serve
from onward.service.serving import services as services_for
from onward.store import database, ledger, orders
from onward.store.database import Pool
from onward.store.ledger import item_asset
from onward.store.locks import Locks
from onward.store.orders import NO_TOKEN, Side
from onward.trading.audit import Audit, audit
from tests.conftest import settings_for
from tests.present import TESTER

BOUND_S: Final = 30.0
BILLING: Final = "/api/v1/billing"
TRADING: Final = "/api/v1/trading"
ORDERS: Final[dict[Side, str]] = {
    "buy": f"{TRADING}/purchase-orders",
    "sell": f"{TRADING}/sell-orders",
}
FIRST: Final = f'"{NO_TOKEN}"'
ITEM: Final = 7


class Change(NamedTuple):
    """Something that may be asked for, once somebody has been made rich."""

    path: str
    first: str  # the tag of what nobody else has changed since
    field: str
    more: Mapping[str, int] = MappingProxyType({})

    def body(self, amount: int = 5) -> dict[str, int]:
        return {self.field: amount, **self.more}


CHANGES: Final[Mapping[str, Change]] = {
    "deposit": Change(f"{BILLING}/deposit", '"2"', "amount"),
    "withdraw": Change(f"{BILLING}/withdraw", '"2"', "amount"),
    "buy": Change(ORDERS["buy"], FIRST, "price", {"item_id": ITEM}),
    "sell": Change(ORDERS["sell"], FIRST, "price", {"item_id": ITEM}),
}


@dataclass
class Trader:
    """Somebody who calls, and what they have."""

    name: str
    client: httpx2.AsyncClient
    pool: Pool

    async def post(
        self, path: str, body: object, *, seen: str | None = None, key: str | None = None
    ) -> httpx2.Response:
        """Ask for a change of what was seen."""
        headers = {"If-Match": seen, "Idempotency-Key": key}
        told = {name: value for name, value in headers.items() if value is not None}
        return await self.client.post(path, json=body, headers=told)

    async def deposit(self, amount: int, *, seen: str, key: str | None = None) -> httpx2.Response:
        return await self.post(f"{BILLING}/deposit", {"amount": amount}, seen=seen, key=key)

    async def withdraw(self, amount: int, *, seen: str, key: str | None = None) -> httpx2.Response:
        return await self.post(f"{BILLING}/withdraw", {"amount": amount}, seen=seen, key=key)

    async def place(
        self, side: Side, price: int, *, seen: str, key: str | None = None
    ) -> httpx2.Response:
        body = {"item_id": ITEM, "price": price}
        return await self.post(ORDERS[side], body, seen=seen, key=key)

    async def account(self) -> ledger.Account:
        return await ledger.account(self.pool, self.name, "EUR")

    async def pieces(self) -> ledger.Account:
        return await ledger.account(self.pool, self.name, item_asset(ITEM))

    async def operations(self) -> list[ledger.Operation]:
        return await ledger.operations(self.pool, self.name, limit=1_000)

    async def asked_for(self) -> list[ledger.Operation]:
        """What came of their own requests."""
        return [each for each in await self.operations() if each.kind != "issue"]

    async def orders(self, side: Side) -> list[orders.Order]:
        return await orders.page(self.pool, self.name, side, limit=1_000)

    async def rich(self, *, money: int = 1_000_000, pieces: int = 10) -> Trader:
        """Give them something to trade with, from outside."""
        for asset, amount in (("EUR", money), (item_asset(ITEM), pieces)):
            if amount:
                await ledger.post(self.pool, ledger.Post(self.name, asset, None, "issue", amount))
        return self


def refused(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Return a problem, which has to be this one."""
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem["detail"]
    return problem


@dataclass
class Exchange:
    """A service that listens, and what it stands on."""

    app: FastAPI
    services: Services
    base_url: str
    redis_url: str
    database: str  # what no other database is called
    valkey: redis.asyncio.Redis
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def pool(self) -> Pool:
        return self.services.pool

    async def trader(self, name: str = "ann", *, role: str = "trader") -> Trader:
        """Let somebody call; `name` is only the beginning of their name."""
        name = f"{name}-{uuid4().hex[:12]}"
        _, key = await self.services.keys.make("of a test", person=name, role=role, by=TESTER)
        return await self._calling(name, f"Bearer {key}")

    async def same(self, trader: Trader) -> Trader:
        """Let somebody who calls another process call this one, with the same key."""
        return await self._calling(trader.name, trader.client.headers["authorization"])

    async def _calling(self, name: str, authorization: str) -> Trader:
        client = httpx2.AsyncClient(
            base_url=self.base_url,
            headers={"Authorization": authorization},
            timeout=BOUND_S,
            trust_env=False,
        )
        return Trader(name, await self._stack.enter_async_context(client), self.pool)

    async def is_locked(self, name: str) -> bool:
        """Say whether Valkey has a lock of this name."""
        return bool(await self.valkey.exists(f"onward:lock:{self.database}:{name}"))

    def locks_elsewhere(self) -> Locks:
        """Return the locks of another process on the same servers."""
        return Locks(self.redis_url, database=self.database)

    async def audited(self) -> Audit:
        """Derive everything again; nothing may be wrong."""
        found = await audit(self.pool)
        assert found.faults == ()
        return found


@asynccontextmanager
async def exchanging(database_url: str, redis_url: str, **changes: Any) -> AsyncIterator[Exchange]:
    """Open a service on these servers, as a process of its own would."""
    settings = settings_for(database_url, redis_url=redis_url, **changes)
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(onward.open(settings, valkey=True))
        services = services_for(opened)
        app = create_app(services)
        base_url = await stack.enter_async_context(_serving(app))
        valkey = redis.asyncio.from_url(redis_url)
        stack.push_async_callback(valkey.aclose)
        async with services.pool.acquire() as connection:
            identity = await database.identity(connection)
        found = Exchange(app, services, base_url, redis_url, identity, valkey)
        stack.push_async_callback(found._stack.aclose)
        yield found


@asynccontextmanager
async def _serving(app: FastAPI) -> AsyncIterator[str]:
    stopping, ready = asyncio.Event(), asyncio.Event()
    with listening("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(
            serve(
                app,
                listener,
                stopping,
                access_log=False,
                ready=ready.set,
                hang_up=partial(end_streams, app),
            )
        )
        await ready.wait()
        try:
            yield listener.address
        finally:
            stopping.set()
            await asyncio.wait_for(serving, BOUND_S)
