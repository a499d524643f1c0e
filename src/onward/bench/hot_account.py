"""Many clients who want the same account at the same moment, with a lock in front and without.

Each of them looks at the account and withdraws a cent from what they saw, again and again, until
there is none left. Whoever is told when to come again does so; whoever is told that the account has
changed looks again at once. Without the lock they wait for each other at the row, and learn then
that they have lost. The time counts until the last cent is gone.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import uvloop

import onward
from onward.bench.calling import HEAD_END, HOST, STATUS, length_of, request
from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.serving import serving_onward
from onward.embedded import Servers
from onward.errors import InvariantBroken
from onward.scratch import new_database, scratch_servers
from onward.settings import Settings
from onward.store import ledger
from onward.store.audit import Doer
from onward.store.database import Pool
from onward.store.keys import Keys
from onward.trading.audit import audit

_PATH: Final = "/api/v1/billing/withdraw"
_ACCOUNT: Final = "/api/v1/billing/account"
_CURRENCY: Final = "EUR"
_ONE: Final = {"amount": 1, "currency": _CURRENCY}
_PERSON: Final = "everybody"
_ANSWER_AT_MOST: Final = 0.2
_DONE, _LOCKED, _CHANGED, _EMPTY = "202", "409", "412", "422"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    clients: int = 64
    cents: int = 500  # a round
    rounds: int = 4


class Rush(NamedTuple):
    """What one round was like: how long it took, and how long each kind of answer."""

    seconds: float
    answers: dict[str, tuple[int, float]]  # by status: how many, and their mean time in seconds

    def mean_s(self, status: str) -> float:
        """Say how long an answer of this kind took."""
        return self.answers.get(status, (0, 0.0))[1]


def hot_account(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure withdrawals a second, and how soon those who cannot have the account are told."""
    sizes = sizes or Sizes()
    progress("starting PostgreSQL, durable, and Valkey")
    with scratch_servers("bench", valkey=True) as servers:
        locked, bare = asyncio.run(_measure(servers, sizes, progress))
    yield _throughput(sizes, locked, bare)
    yield _answer(sizes, locked, bare)


def _throughput(sizes: Sizes, locked: list[Rush], bare: list[Rush]) -> Result:
    ours, theirs = (sizes.cents / min(rush.seconds for rush in each) for each in (locked, bare))
    return Result(
        name=f"one account, {sizes.clients} clients",
        value=ours,
        unit="withdrawals/s",
        against=f"row locks alone, {theirs:,.0f}/s",
        ratio=ours / theirs,
        target=">= 1 x",
        holds=ours >= theirs,
    )


def _answer(sizes: Sizes, locked: list[Rush], bare: list[Rush]) -> Result:
    told = min(rush.mean_s(_LOCKED) for rush in locked if _LOCKED in rush.answers)
    waited = min(rush.mean_s(_CHANGED) for rush in bare)
    ratio = told / waited
    return Result(
        name=f"one account, {sizes.clients} clients, until told that another has it",
        value=told * 1_000,
        unit="ms",
        against=f"waiting at the row, {waited * 1_000:,.1f} ms",
        ratio=ratio,
        target=f"<= {_ANSWER_AT_MOST:g} x",
        holds=ratio <= _ANSWER_AT_MOST,
    )


async def _measure(
    servers: Servers, sizes: Sizes, progress: Progress
) -> tuple[list[Rush], list[Rush]]:
    url = await new_database(servers.database_url, "bench_hot")
    locked: list[Rush] = []
    bare: list[Rush] = []
    async with (
        onward.open(Settings(database_url=url)) as opened,
        serving_onward(url, redis_url=servers.redis_url) as (locked_port, _),
        serving_onward(url, locked=False) as (bare_port, _),
    ):
        pool = opened.commands.pool
        _, key = await Keys(pool).make("bench", person=_PERSON, role="trader", by=Doer("bench"))
        # The first round warms both servers up, and does not count.
        for round_ in range(sizes.rounds + 1):
            for name, port, rushes in (
                ("with the lock", locked_port, locked),
                ("row locks alone", bare_port, bare),
            ):
                await _fill(opened.commands.pool, sizes.cents)
                rushes.append(await _rush(port, key, sizes))
                progress(f"round {round_} of {sizes.rounds}, {name}: {_shown(rushes[-1])}")
        found = await audit(pool)
        if found.faults:
            raise InvariantBroken("; ".join(found.faults))
    return locked[1:], bare[1:]


async def _fill(pool: Pool, cents: int) -> None:
    account = await ledger.account(pool, _PERSON, _CURRENCY)
    if account.available:
        raise InvariantBroken(f"{account.available} cents were left by clients that had to stop")
    await ledger.post(pool, ledger.Post(_PERSON, _CURRENCY, None, "deposit", cents))


async def _rush(port: int, key: str, sizes: Sizes) -> Rush:
    command = (sys.executable, "-m", __name__, str(port), key, str(sizes.clients))
    program = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    told, _ = await program.communicate()
    if program.returncode:
        raise InvariantBroken("the clients could not be run")
    rush = Rush(**json.loads(told))
    if rush.answers.get(_DONE, (0, 0.0))[0] != sizes.cents:
        raise InvariantBroken(f"{sizes.cents:,} cents were there, but the answers are {rush}")
    return rush


def _shown(rush: Rush) -> str:
    told = (
        f"{count:,} x {status} in {mean * 1_000:.1f} ms"
        for status, (count, mean) in sorted(rush.answers.items())
    )
    return f"{rush.seconds:.2f} s; {', '.join(told)}"


class _Times:
    """When the last cent was gone, and how long each answer took."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()
        self.answers: dict[str, list[float]] = {}

    def add(self, status: str, asked_at: float) -> None:
        now = time.perf_counter()
        self.answers.setdefault(status, []).append(now - asked_at)
        if status == _DONE:
            self.last = now


def _field(head: bytes, name: str) -> str:
    """Return a field of a head in lower case; nothing, if it has none."""
    return head.partition(f"\r\n{name}: ".encode())[2].partition(b"\r\n")[0].decode()


async def _client(port: int, key: str, rush: _Times) -> None:
    """Withdraw until there is nothing left."""
    reader, writer = await asyncio.open_connection(HOST, port)

    async def answered(wanted: bytes) -> tuple[str, bytes]:
        """Return the status of an answer, and its head."""
        writer.write(wanted)
        head = await reader.readuntil(HEAD_END)
        await reader.readexactly(length_of(head))
        return head[STATUS].decode(), head.lower()

    look = (
        f"GET {_ACCOUNT} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {key}\r\n\r\n"
    ).encode()
    status = ""
    while status != _EMPTY:
        _, seen = await answered(look)
        start = time.perf_counter()
        status, head = await answered(request(_PATH, _ONE, key=key, seen=_field(seen, "etag")))
        rush.add(status, start)
        if again_s := _field(head, "retry-after"):
            await asyncio.sleep(float(again_s))
    writer.close()
    await writer.wait_closed()


async def _clients(port: str, key: str, count: str) -> None:
    rush = _Times()
    await asyncio.gather(*(_client(int(port), key, rush) for _ in range(int(count))))
    told = {status: (len(each), sum(each) / len(each)) for status, each in rush.answers.items()}
    sys.stdout.write(json.dumps({"seconds": rush.last - rush.start, "answers": told}))


if __name__ == "__main__":
    uvloop.run(_clients(*sys.argv[1:]))
