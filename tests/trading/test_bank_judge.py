"""The judge of the bank test can say no: whatever is planted in sound books, it finds.

Most of what is planted adds up: money was moved and written down, but nobody had asked for it, or
somebody had been told otherwise. Only the clients' own notes give it away.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from onward.api.app import create_app
from onward.service.serving import services
from onward.store import orders
from onward.wiring import Onward
from tests.api.conftest import calling
from tests.present import TESTER
from tests.trading.bank import books, judge
from tests.trading.bank.clients import Client, Person
from tests.trading.bank.lines import Answer
from tests.trading.bank.notes import UNKNOWN, Note, Notes
from tests.trading.bank.plants import MISTOLD, PLANTS
from tests.trading.bank.wishes import Kind, Slip, Wish

Written = dict[str, Note]  # what was done on the day, by what it is called below


class Indoors:
    """Calls to the application in this process, as a line makes them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def call(
        self,
        method: str,
        path: str,
        body: object | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        said = await self._client.request(method, path, json=body, headers=dict(headers or {}))
        replayed = said.headers.get("idempotency-replayed") == "true"
        return Answer(said.status_code, said.headers.get("etag", ""), replayed, said.json())

    def close(self) -> None:
        pass


DAY: list[tuple[str, str, Wish]] = [
    ("a piece", "bob", Wish(Kind.ISSUE, 5, item=1, keyed=False)),
    ("deposit", "ann", Wish(Kind.DEPOSIT, 50_000, repeats=True)),
    ("bob's deposit", "bob", Wish(Kind.DEPOSIT, 5_000, keyed=False)),
    ("withdrawal", "ann", Wish(Kind.WITHDRAW, 1_000)),
    ("stale", "ann", Wish(Kind.WITHDRAW, 2_000, slip=Slip.OLD_TAG)),
    ("too much", "ann", Wish(Kind.WITHDRAW, 10**11, slip=Slip.TOO_MUCH)),
    ("no tag", "ann", Wish(Kind.DEPOSIT, 70, slip=Slip.NO_TAG)),
    ("reused", "ann", Wish(Kind.DEPOSIT, 71, slip=Slip.REUSED)),
    ("lost", "ann", Wish(Kind.DEPOSIT, 300, keyed=False)),
    ("no order", "ann", Wish(Kind.CANCEL, 0)),
    ("bought", "ann", Wish(Kind.BUY, 10_000, item=1)),
    ("sold", "bob", Wish(Kind.SELL, 9_950, item=1)),
    ("waits to buy", "ann", Wish(Kind.BUY, 9_000, item=1)),
    ("waits to sell", "bob", Wish(Kind.SELL, 9_500, item=1)),
    ("waits, too", "bob", Wish(Kind.SELL, 9_400, item=1, keyed=False)),
    ("withdrawn", "bob", Wish(Kind.CANCEL, 0, which=0.99)),
]


@pytest.fixture
async def day(opened: Onward) -> Written:
    """A day at the bank, on which everything goes well, and what its clients wrote down."""
    found = services(opened)
    app, notes, written = create_app(found), Notes(), dict[str, Note]()
    async with AsyncExitStack() as stack:
        clients = {}
        for name, role in (("ann", "trader"), ("bob", "trader"), ("root", "admin")):
            _, key = await found.keys.make(name, person=name, role=role, by=TESTER)
            caller = await stack.enter_async_context(
                calling(app, {"Authorization": f"Bearer {key}"})
            )
            of = Person("bob" if role == "admin" else name)
            clients[name] = Client(name, of, Indoors(caller), notes)
        for what, who, wish in DAY:
            by = "root" if wish.kind is Kind.ISSUE else who
            written[what] = await clients[by].ask(wish)
            await orders.match(found.pool, limit=16, again_s=0.0)
    assert not notes.oddities
    written["lost"] = replace(written["lost"], status=UNKNOWN, body={}, etag="")
    return written


def named(day: Written) -> dict[str, object]:
    """What the plants call the day's operations, orders and keys."""
    return {
        "paid_in": day["deposit"].operation_id,
        "paid_out": day["withdrawal"].operation_id,
        "key": day["deposit"].key,
        "refused_key": day["no tag"].key,
        "bought": day["bought"].body["id"],
        "offered": day["waits to sell"].body["id"],
        "withdrawn": day["waits, too"].body["id"],
    }


async def test_whatever_is_planted_in_the_books_is_found(pool: asyncpg.Pool, day: Written):
    missed = []
    async with pool.acquire() as connection:
        for plant in PLANTS:
            transaction = connection.transaction()
            await transaction.start()
            for statement in plant.statements:
                said = await connection.execute(statement.format(**named(day)))
                assert not said.endswith(" 0"), statement
            found = judge.faults(await books.read(connection), day.values())
            await transaction.rollback()
            if not any(plant.found in fault for fault in found):
                missed.append((plant.name, found))
    assert missed == []


async def test_whoever_was_told_something_else_is_found(pool: asyncpg.Pool, day: Written):
    async with pool.acquire() as connection:
        found = await books.read(connection)
    assert judge.faults(found, day.values()) == []
    assert len(found.deals) == 1
    for mistold in MISTOLD:
        notes = {**day, mistold.which: mistold.told(day[mistold.which])}
        faults = judge.faults(found, notes.values())
        assert any(mistold.found in fault for fault in faults), (mistold.name, faults)
