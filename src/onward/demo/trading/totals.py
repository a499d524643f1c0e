"""Where everything is: what was told to have been brought and taken, and what there is of it."""

from __future__ import annotations

from typing import NamedTuple

from onward.demo.trading.evidence import Evidence
from onward.demo.trading.journal import DEPOSIT, ISSUE, WITHDRAW
from onward.demo.trading.script import MARKETS, money


class Total(NamedTuple):
    """What became of an asset."""

    asset: str
    brought: int  # as people were told
    taken: int  # as people were told
    available: int
    held: int
    fees: int  # as the deals have them

    @property
    def missing(self) -> int:
        """What was brought, was not taken out, and is nowhere."""
        return self.brought - self.taken - self.available - self.held - self.fees

    @property
    def is_item(self) -> bool:
        """Whether it is counted in pieces."""
        return self.asset.startswith("item:")

    def shown(self, amount: int) -> str:
        """Write an amount of it as people read it."""
        return f"{amount:,}" if self.is_item else money(amount)


def totals(evidence: Evidence) -> list[Total]:
    """Add up every currency, and then every item."""
    currencies = sorted({market.currency for market in MARKETS})
    return [_total(evidence, asset) for asset in (*currencies, *_items())]


def _items() -> list[str]:
    return [f"item:{item}" for item in sorted({market.item_id for market in MARKETS})]


def _total(evidence: Evidence, asset: str) -> Total:
    kept = [each for each in evidence.balances if each.asset == asset]
    return Total(
        asset,
        brought=_told(evidence, DEPOSIT, asset) + _told(evidence, ISSUE, asset),
        taken=_told(evidence, WITHDRAW, asset),
        available=sum(each.available for each in kept),
        held=sum(each.held for each in kept),
        fees=sum(deal.fees for deal in evidence.deals if deal.currency == asset),
    )


def _told(evidence: Evidence, deed: str, asset: str) -> int:
    return sum(
        told.wanted.amount
        for told in evidence.accepted.values()
        if (told.wanted.deed, told.wanted.asset) == (deed, asset)
    )
