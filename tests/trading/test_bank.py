"""The bank test: many clients, servers that die on the way, and not a cent out of place."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Final

import asyncpg
import pytest

from tests.proof_table import Tried
from tests.trading.bank import books, judge, snapshots
from tests.trading.bank.chaos import Chaos, Progress
from tests.trading.bank.clients import Client, Person
from tests.trading.bank.lines import Line
from tests.trading.bank.notes import Notes
from tests.trading.bank.servers import Servers, serving
from tests.trading.bank.wishes import FIRST_DEPOSIT, ITEMS, PIECES, Kind, Wish, wishes

CLIENTS: Final = 16
PAIRS: Final = 4  # persons who are two clients at once, each at another server
SEED: Final = 20_261_118


@pytest.mark.timeout(1_200)
async def test_no_cent_is_lost_or_made_whatever_dies_on_the_way(
    database_url: str, tried: Tried, *, proof: bool
):
    wanted, rounds, every = (100_000, 8, 5_000) if proof else (1_500, 1, 300)
    print(f"seed {SEED}")
    notes, progress = Notes(), Progress(wanted)
    async with bank(database_url) as (servers, pool):
        clients = await opened(servers, notes)
        chaos = Chaos(servers, pool, progress)
        async with asyncio.TaskGroup() as group:
            group.create_task(chaos.run(rounds))
            watching = group.create_task(snapshots.watch(pool, progress, every=every))
            group.create_task(asked(clients, progress))
        servers.check()
        await snapshots.quiet(pool, servers.valkey)
        async with pool.acquire() as connection:
            found = await books.read(connection)
        told = [await snapshots.told(found, client) for client in clients]
    faults = [*notes.oddities, *chain.from_iterable(told), *judge.faults(found, notes.written)]
    looks, drift = watching.result()
    print(dict(notes.answers), dict(Counter(chaos.done)))
    # A few of each are enough to begin with.
    assert not drift[:5]
    assert not faults[:5]
    done = [note for note in notes.written if note.done]
    again = sum(note.lost for note in done)
    deals, repeats = len(found.deals), notes.repeats
    tried("operations at the bank", wanted, f"{len(done):,} done, {deals:,} deals, 0 cents lost")
    tried("of them lost on the way and asked for again", again, "done once each")
    tried("of them repeated by their key", repeats, "the first answer each time")
    tried("snapshots of the bank at work", looks, "0 cents of drift")
    tried("servers of the bank struck down on the way", len(chaos.done), "no answer was wrong")


@asynccontextmanager
async def bank(database_url: str) -> AsyncIterator[tuple[Servers, asyncpg.Pool]]:
    """Two processes of the service, and connections of our own for whoever looks."""
    session = {"search_path": "onward, public", "jit": "off"}
    async with (
        serving(database_url, count=2) as servers,
        asyncpg.create_pool(database_url, min_size=1, max_size=3, server_settings=session) as pool,
    ):
        yield servers, pool


async def opened(servers: Servers, notes: Notes) -> list[Client]:
    """Give everybody keys, some money and some pieces of every item."""
    persons = [Person(f"person-{number:02}") for number in range(CLIENTS - PAIRS)]
    admin = Line(servers.doors, 0, servers.admin_key)
    clients = []
    for number in range(CLIENTS):
        person = persons[number % len(persons)]
        wanted = {"name": f"client-{number:02}", "person": person.name, "role": "trader"}
        made = await admin.call("POST", "/keys", wanted)
        assert made.status == 201, made
        # The two of a pair begin at different servers.
        line = Line(servers.doors, number // len(persons) + number, made.body["key"])
        clients.append(Client(wanted["name"], person, line, notes))
    for person in persons:
        issuing = Client("admin", person, admin, notes)
        for item in ITEMS:
            await issuing.ask(Wish(Kind.ISSUE, PIECES, item, keyed=False))
    for client in clients[: len(persons)]:
        await client.ask(Wish(Kind.DEPOSIT, FIRST_DEPOSIT))
    admin.close()
    return clients


async def asked(clients: list[Client], progress: Progress) -> None:
    """Let all clients ask at once, until as much has been answered as was wanted."""
    await asyncio.gather(
        *(_asked(number, client, progress) for number, client in enumerate(clients))
    )
    progress.end()


async def _asked(number: int, client: Client, progress: Progress) -> None:
    drawn = wishes(f"{SEED} {number}")
    while progress.begin():
        await client.ask(next(drawn))
        progress.count()
