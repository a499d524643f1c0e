"""Somebody with a key: what they ask the services for, one thing after the other.

A person has several of these, and none knows what the others do. So what one of them remembers is
soon not so any more, and two of them are in each other's way: nothing here waits for that not to
happen, because it is what the answers 409 and 412 are for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from onward.core.lifecycles import ORDER
from onward.demo.trading.asking import BILLING, ORDERS, Asker
from onward.demo.trading.journal import (
    ACCEPTED,
    BUY,
    CANCEL,
    DEPOSIT,
    SELL,
    WITHDRAW,
    Journal,
    Wanted,
)
from onward.demo.trading.line import Answer, Line
from onward.demo.trading.script import BUYING, MARKETS, SELLING, Market, Person, Wander

_OPEN: Final = str(ORDER.initial)
_STALE: Final = 412

_PAUSE_S: Final = 0.12  # at most, between two things that one key is used for
_EDGE: Final = 0.003  # of the price, how much better they would like to have it, more or less
_NERVE: Final = 0.006  # and how much they differ in that
_ENOUGH: Final = 20  # pieces that their money would buy: whoever has more takes some home
_FAR: Final = 1_000  # times what a piece costs: nobody here has that
_UNOWNED: Final = 404  # an item that nobody has


@dataclass(frozen=True, slots=True)
class Floor:
    """Where they all meet."""

    journal: Journal
    wanders: Mapping[Market, Wander]
    began_at: float
    ends_at: float

    def worth(self, market: Market) -> int:
        """Return what a piece is believed to be worth now."""
        return self.wanders[market].at(time.monotonic() - self.began_at)

    @property
    def closed(self) -> bool:
        """Whether it is time to go home."""
        return time.monotonic() >= self.ends_at


class Trader:
    """One key of one person."""

    def __init__(
        self, person: Person, line: Line, floor: Floor, *, name: str, chance: Random
    ) -> None:
        self._person = person
        self._line = line
        self._asker = Asker(line, floor.journal)
        self._floor = floor
        self._name = name
        self._chance = chance
        self._keys = 0
        self._tags: dict[str, str] = {}  # by side, what was seen last
        self._former: dict[str, str] = {}  # by side, what is known to be old
        self._last: Wanted | None = None  # that was accepted
        self._sides = [
            side for side, crowds in ((BUY, BUYING), (SELL, SELLING)) if person.crowd in crowds
        ]

    async def trade(self) -> None:
        """Do one thing after the other until the floor closes; never stops in the middle of one."""
        deeds: dict[Callable[[], Awaitable[object]], int] = {
            self._place: 62,
            self._cancel: 14,
            self._bank: 10,
            self._repeat: 4,
            self._insist: 4,
            self._overspend: 4,
            self._reuse: 1,
            self._blunder: 1,
        }
        # Each of them once, in whatever order, so that there is something of everything to be seen.
        ahead = self._chance.sample(list(deeds), len(deeds))
        try:
            while ahead or not self._floor.closed:
                by_chance = self._chance.choices(list(deeds), list(deeds.values()))[0]
                await (ahead.pop() if ahead else by_chance)()
                await asyncio.sleep(self._chance.uniform(0, _PAUSE_S))
        finally:
            self._line.close()

    async def _place(self) -> None:
        """Place an order, after the last one that this key knows of; think again if that is old."""
        side, market = self._chance.choice(self._sides), self._market()
        if side not in self._tags:
            self._tags[side] = (await self._asker.look(f"{ORDERS[side]}?limit=1")).etag
        for _ in range(2):
            price = self._price(side, market)
            tag = self._tags[side]
            answer = await self._change(self._order(side, market, price, tag=tag))
            if answer.status in {ACCEPTED, _STALE}:
                self._former[side], self._tags[side] = tag, answer.etag
            if answer.status != _STALE:
                return

    async def _cancel(self) -> None:
        """Take back one of this person's orders, unless somebody takes it first."""
        side = self._chance.choice(self._sides)
        page = await self._asker.look(f"{ORDERS[side]}?status={_OPEN}&limit=50")
        if orders := page.body["items"]:
            order = self._chance.choice(orders)
            name = self._person.name
            await self._change(Wanted(name, CANCEL, side, 0, order_id=order["id"]))

    async def _bank(self) -> None:
        """Take some money home or, if there is little of it, bring some."""
        market = self._market()
        seen = await self._account(market.currency)
        worth, available = self._floor.worth(market), seen.body["available"]
        if available > _ENOUGH * worth:
            deed, amount = WITHDRAW, self._chance.randint(1, available // 10)
        else:
            deed, amount = DEPOSIT, 10 * worth
        await self._change(self._money(deed, market.currency, amount, tag=seen.etag))

    async def _repeat(self) -> None:
        """Ask again for what was accepted, as somebody does who has not heard the answer."""
        if self._last is not None:
            await self._change(self._last)

    async def _insist(self) -> None:
        """Ask with a tag that was good once, of the account or of the orders."""
        market = self._market()
        if self._chance.random() < 1 / 2:
            seen = await self._account(market.currency)
            old = f'"{max(1, seen.body["version"] - 1)}"'
            worth = self._floor.worth(market)
            await self._change(self._money(WITHDRAW, market.currency, worth, tag=old))
        elif former := {side: tag for side, tag in self._former.items() if tag != self._tags[side]}:
            side = self._chance.choice(list(former))
            price = self._price(side, market)
            await self._change(self._order(side, market, price, tag=former[side]))

    async def _overspend(self) -> None:
        """Spend what is not there: money at the bank or at the market, or an item."""
        market = self._market()
        if SELL in self._sides and self._chance.random() < 1 / 2:
            seen = await self._asker.look(f"{ORDERS[SELL]}?limit=1")
            unowned = market._replace(item_id=_UNOWNED)
            await self._change(self._order(SELL, unowned, market.price, tag=seen.etag))
        elif BUY in self._sides and self._chance.random() < 1 / 2:
            seen = await self._asker.look(f"{ORDERS[BUY]}?limit=1")
            await self._change(self._order(BUY, market, _FAR * market.price, tag=seen.etag))
        else:
            seen = await self._account(market.currency)
            much = seen.body["available"] + self._floor.worth(market)
            await self._change(self._money(WITHDRAW, market.currency, much, tag=seen.etag))

    async def _reuse(self) -> None:
        """Use a key again that stands for something else."""
        if self._last is not None:
            await self._change(self._last._replace(amount=self._last.amount + 1))

    async def _blunder(self) -> None:
        """Change what was never looked at."""
        market = self._market()
        await self._change(self._money(WITHDRAW, market.currency, market.price, tag=None))

    async def _change(self, wanted: Wanted) -> Answer:
        answer = await self._asker.change(wanted)
        if answer.status == ACCEPTED:
            self._last = wanted
        return answer

    def _market(self) -> Market:
        return self._chance.choices(MARKETS, (2, 1))[0]

    def _price(self, side: str, market: Market) -> int:
        edge = self._chance.gauss(_EDGE, _NERVE) * (-1 if side == BUY else 1)
        worth = self._floor.worth(market) * (1 + edge)
        return max(market.tick, round(worth / market.tick) * market.tick)

    def _order(self, side: str, market: Market, price: int, *, tag: str) -> Wanted:
        item, currency, *_ = market
        name = self._person.name
        return Wanted(name, side, currency, price, item, tag=tag, key=self._new_key())

    def _money(self, deed: str, currency: str, amount: int, *, tag: str | None) -> Wanted:
        return Wanted(self._person.name, deed, currency, amount, tag=tag, key=self._new_key())

    async def _account(self, currency: str) -> Answer:
        return await self._asker.look(f"{BILLING}/account?currency={currency}")

    def _new_key(self) -> str:
        self._keys += 1
        return f"{self._name}-{self._keys}"
