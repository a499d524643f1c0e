"""Looks at the bank while it is at work: in one snapshot, every cent is somewhere."""

from __future__ import annotations

import asyncio
from typing import Final

from onward.store.database import Pool
from onward.trading.audit import audit
from tests.mortal_valkey import MortalValkey
from tests.trading.bank import books, judge
from tests.trading.bank.books import Transfer
from tests.trading.bank.chaos import Progress
from tests.trading.bank.clients import ACCOUNT, Client
from tests.trading.bank.wishes import CURRENCY

_BOUND_S: Final = 60.0


async def watch(pool: Pool, progress: Progress, *, every: int) -> tuple[int, list[str]]:
    """Look whenever so many more have been answered; returns how often, and what was found."""
    looks, found = 0, list[str]()
    while not progress.over:
        await progress.reaches(looks * every)
        found += await look(pool)
        looks += 1
    return looks, found


async def look(pool: Pool) -> list[str]:
    """Return what is wrong now, by the program's own audit and by a sum of our own."""
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
        rows = await connection.fetch(
            "SELECT asset, sum(amount)::bigint, from_part, from_user, to_part, to_user "
            "FROM onward.transfers GROUP BY asset, from_part, from_user, to_part, to_user"
        )
        sums = judge.added(
            Transfer(asset, amount, (part, user), (to_part, to_user))
            for asset, amount, part, user, to_part, to_user in rows
        )
        drift = list(judge.drift(sums, await books.balances(connection)))
    return [*drift, *(await audit(pool)).faults]


async def quiet(pool: Pool, valkey: MortalValkey) -> None:
    """Wait until no order waits for a matcher, and no lock is left of whoever was killed."""
    async with asyncio.timeout(_BOUND_S):
        while await _busy(pool, valkey):  # noqa: ASYNC110 - what is waited for is in other processes
            await asyncio.sleep(0.05)


async def _busy(pool: Pool, valkey: MortalValkey) -> bool:
    waiting: bool = await pool.fetchval("SELECT EXISTS (SELECT FROM onward.arrivals)")
    return waiting or any("lock" in name for name in await asyncio.to_thread(valkey.holds))


async def told(found: books.Books, client: Client) -> list[str]:
    """Return where the API says something else about somebody's accounts than the books do."""
    account = (await client.look(ACCOUNT)).body
    person = account["user_id"]
    heard = {(person, CURRENCY): books.Balance(account["available"], account["held"])}
    for item in (await client.look("/api/v1/trading/items")).body["items"]:
        name = f"item:{item['item_id']}"
        heard[person, name] = books.Balance(item["available"], item["held"])
    kept = {
        owned: balance
        for owned, balance in found.balances.items()
        if owned[0] == person and (any(balance) or owned[1] == CURRENCY)
    }
    client.close()
    return [] if heard == kept else [f"{person} is told {heard}, but the books say {kept}"]
