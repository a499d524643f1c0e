"""Withdrawals over HTTP: each from an account of its own, beside a route that asks nobody.

Ours asks who calls, reads `If-Match`, takes a lock in Valkey, changes the version that was seen and
no other, keeps the ledger and frees the lock. The other is a plain FastAPI route with an UPDATE and
two INSERTs in one commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import onward
from onward.bench.calling import request
from onward.bench.load import Loaded, load
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.serving import BARE, BARE_TABLES, serving_bare, serving_onward
from onward.embedded import Servers
from onward.errors import InvariantBroken
from onward.scratch import new_database, scratch_servers
from onward.settings import Settings
from onward.store import ledger
from onward.store.audit import Doer
from onward.store.database import Pool
from onward.store.keys import Keys
from onward.trading.audit import audit

_AT_LEAST: Final = 0.7
_PATH: Final = "/api/v1/billing/withdraw"
_CURRENCY: Final = "EUR"
_MUCH: Final = 10**12
_ONE: Final = {"amount": 1, "currency": _CURRENCY}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    accounts: int = 64  # each has a connection
    withdrawals: int = 200  # from each of them, in a round
    rounds: int = 5

    @property
    def calls(self) -> int:
        """Calls in a round."""
        return self.accounts * self.withdrawals


def withdraw(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure withdrawals a second."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable, and Valkey")
    with scratch_servers("bench", valkey=True) as servers:
        ours, bare = asyncio.run(_measure(servers, sizes, progress))
    ratio = max(ours) / max(bare)
    yield Result(
        name=f"withdraw over HTTP, {sizes.accounts} accounts",
        value=max(ours),
        unit="requests/s",
        against=f"a bare UPDATE and two INSERTs, {max(bare):,.0f}/s",
        ratio=ratio,
        target=f">= {_AT_LEAST:g} x",
        holds=ratio >= _AT_LEAST,
    )


async def _measure(
    servers: Servers, sizes: Sizes, progress: Progress
) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    bare: list[float] = []
    url = await new_database(servers.database_url, "bench_withdraw")
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(onward.open(Settings(database_url=url)))
        pool = opened.commands.pool
        keys = await _traders(pool, sizes.accounts)
        await _bare_accounts(pool, sizes.accounts)
        port, _ = await stack.enter_async_context(serving_onward(url, redis_url=servers.redis_url))
        bare_port = await stack.enter_async_context(serving_bare(url))
        # The first round warms both servers up, and does not count.
        for round_ in range(sizes.rounds + 1):
            ours.append(_rate(await load(port, _shares(keys, round_, sizes)), sizes))
            bare.append(_rate(await load(bare_port, _bare_shares(sizes)), sizes))
            progress(f"round {round_} of {sizes.rounds}: {ours[-1]:,.0f}/s, {bare[-1]:,.0f}/s")
        await _check(pool, sizes.calls * (sizes.rounds + 1))
    return ours[1:], bare[1:]


async def _traders(pool: Pool, count: int) -> list[str]:
    """Make accounts with much on them, and the keys of those whose they are."""
    keys = Keys(pool)
    made = []
    for number in range(count):
        _, key = await keys.make(
            "bench", person=f"trader-{number}", role="trader", by=Doer("bench")
        )
        made.append(key)
        endowment = ledger.Post(f"trader-{number}", _CURRENCY, None, "deposit", _MUCH)
        await ledger.post(pool, endowment)
    return made


async def _bare_accounts(pool: Pool, count: int) -> None:
    await pool.execute(BARE_TABLES)
    await pool.executemany(
        "INSERT INTO bare_accounts VALUES ($1, $2)", [(n, _MUCH) for n in range(1, count + 1)]
    )


def _shares(keys: list[str], round_: int, sizes: Sizes) -> list[list[bytes]]:
    """What each connection sends: it knows the next version, as whoever reads the answers would."""
    first = 2 + round_ * sizes.withdrawals  # the deposit has made it 2
    return [
        [
            request(_PATH, _ONE, key=key, seen=f'"{first + number}"')
            for number in range(sizes.withdrawals)
        ]
        for key in keys
    ]


def _bare_shares(sizes: Sizes) -> list[list[bytes]]:
    return [
        [request(BARE, {"account_id": account, "amount": 1}, key="none")] * sizes.withdrawals
        for account in range(1, sizes.accounts + 1)
    ]


def _rate(loaded: Loaded, sizes: Sizes) -> float:
    if loaded.statuses != {"202": sizes.calls}:
        raise InvariantBroken(f"{sizes.calls:,} calls were answered with {loaded.statuses}")
    return sizes.calls / loaded.seconds


async def _check(pool: Pool, calls: int) -> None:
    """Make sure that every call has moved its cent, on both sides."""
    found = await audit(pool)
    outside = found.totals[_CURRENCY]["outside"]
    bare = await pool.fetchval("SELECT -sum(amount) FROM bare_entries WHERE account_id > 0")
    deposited = _MUCH * found.accounts
    if found.faults or deposited + outside != calls or bare != calls:
        raise InvariantBroken(
            f"{calls:,} cents were withdrawn, but {deposited + outside:,} and {bare:,} have moved; "
            f"{'; '.join(found.faults) or 'no other faults'}"
        )
