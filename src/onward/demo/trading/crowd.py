"""The two crowds: how they arrive with keys, money and items, and how they trade all at once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from onward.demo.caller import Caller
from onward.demo.trading.asking import BILLING, Asker
from onward.demo.trading.journal import ACCEPTED, DEPOSIT, ISSUE, Journal, Wanted
from onward.demo.trading.line import Line
from onward.demo.trading.script import (
    BUYING,
    MARKETS,
    PEOPLE,
    POCKET,
    SELLING,
    STOCK,
    Demo,
    Market,
    Person,
    Wander,
)
from onward.demo.trading.trader import Floor, Trader
from onward.errors import InvariantBroken

KEYS: Final = sum(person.keys for person in PEOPLE)


class Member(NamedTuple):
    """One key of one person, and the line it is used on."""

    person: Person
    name: str
    line: Line


class Crowds:
    """Everybody who trades."""

    def __init__(self, demo: Demo, doors: list[str], journal: Journal) -> None:
        self._demo = demo
        self._doors = doors
        self._journal = journal
        self._members: list[Member] = []

    async def arrive(self, key: str) -> None:
        """Let an admin make their keys and hand out items, and let everybody bring their money."""
        admin = Caller(self._doors[0], key)
        wanted = [(person, n) for person in PEOPLE for n in range(person.keys)]
        self._members = [
            await self._member(admin, person, n, nearest=number)
            for number, (person, n) in enumerate(wanted)
        ]
        issuing = Asker(Line(self._doors, 0, key=key), self._journal)
        for person in PEOPLE:
            if person.crowd in SELLING:
                await _done(issuing, (_issue(person, market) for market in MARKETS))
        issuing.line.close()
        firsts = {member.person: member for member in reversed(self._members)}
        await asyncio.gather(*(self._bring(member) for member in firsts.values()))

    def floor(self) -> Floor:
        """Open the floor, for as long as the demo lasts."""
        now = time.monotonic()
        seed, seconds = self._demo.seed, self._demo.seconds
        wanders = {market: Wander(market, seed=seed, seconds=seconds) for market in MARKETS}
        return Floor(self._journal, wanders, began_at=now, ends_at=now + seconds)

    async def trade(self, floor: Floor) -> None:
        """Let everybody trade until the floor closes and the last answer is there."""
        async with asyncio.TaskGroup() as group:
            for person, name, line in self._members:
                chance = random.Random(f"{self._demo.seed}/{name}")  # noqa: S311 - a play
                trader = Trader(person, line, floor, name=name, chance=chance)
                group.create_task(trader.trade())

    async def _member(self, admin: Caller, person: Person, n: int, *, nearest: int) -> Member:
        name = f"{person.name}-{n + 1}"
        wanted = {"name": name, "person": person.name, "role": "trader"}
        made = await admin.do("POST", "/keys", wanted)
        return Member(person, name, Line(self._doors, nearest, key=made.body["key"]))

    async def _bring(self, member: Member) -> None:
        if member.person.crowd not in BUYING:
            return
        asker = Asker(member.line, self._journal)
        for market in MARKETS:
            seen = await asker.look(f"{BILLING}/account?currency={market.currency}")
            deposit = Wanted(
                member.person.name,
                DEPOSIT,
                market.currency,
                POCKET * market.price,
                tag=seen.etag,
                key=f"{member.name}-brings-{market.currency}",
            )
            await _done(asker, [deposit])
        # The next connection is made when all the services are there.
        member.line.close()


def _issue(person: Person, market: Market) -> Wanted:
    key = f"{person.name}-gets-{market.item_id}"
    asset = f"item:{market.item_id}"
    return Wanted(person.name, ISSUE, asset, STOCK, market.item_id, key=key)


async def _done(asker: Asker, wishes: Iterable[Wanted]) -> None:
    """Ask for what nobody has a reason to refuse."""
    for wanted in wishes:
        answer = await asker.change(wanted)
        if answer.status != ACCEPTED:
            raise InvariantBroken(f"{wanted} was answered with {answer.status}: {answer.body}")
