"""Puts the promises about the market to what is left: its orders, its deals, and its book."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from onward.core.lifecycles import ORDER
from onward.demo.trading.evidence import Deal, Evidence, Order
from onward.demo.trading.journal import BUY, SELL
from onward.demo.trading.script import money
from onward.findings import Finding

OPEN: Final = str(ORDER.initial)
FILLED: Final = str(ORDER.moves["fill"].target)


def check_deals(evidence: Evidence) -> list[Finding]:
    """Judge every promise about the market."""
    return [
        _one_deal(evidence),
        _never_oneself(evidence),
        _within_limits(evidence),
        _nothing_crossed(evidence),
    ]


def _one_deal(evidence: Evidence) -> Finding:
    taken = Counter(order for deal in evidence.deals for order in _orders(deal))
    breaches = [f"order {order} is in {n} deals" for order, n in taken.items() if n > 1]
    breaches += [
        f"order {order.id} is {order.status}, and is in {taken[order.id]} deals"
        for order in evidence.orders.values()
        if (order.status == FILLED) != (taken[order.id] > 0)
    ]
    paid = Counter(deal.operation_id for deal in evidence.deals)
    breaches += [
        f"{each} belongs to {paid[each.id]} deals"
        for each in evidence.operations.values()
        if each.kind == "deal" and paid[each.id] != 1
    ]
    return Finding(
        "one-deal",
        "No order was taken twice.",
        f"{len(evidence.deals):,} deals of {len(taken):,} orders, each paid for once",
        tuple(breaches),
    )


def _never_oneself(evidence: Evidence) -> Finding:
    stood = {(order.user, order.side) for order in evidence.orders.values()}
    both = sorted({user for user, _ in stood if {(user, BUY), (user, SELL)} <= stood})
    breaches = [
        f"deal {deal.id} is between {buy.user} and themselves"
        for deal, buy, sell in _met(evidence)
        if buy.user == sell.user or deal.buyer == deal.seller
    ]
    return Finding(
        "never-oneself",
        "Nobody traded with themselves.",
        f"{len(evidence.deals):,} deals between two people; {' and '.join(both) or 'nobody'} stood "
        "on both sides of the book",
        tuple(breaches),
    )


def _within_limits(evidence: Evidence) -> Finding:
    met = list(_met(evidence))
    breaches = [
        f"deal {deal.id} at {money(deal.price)} is outside of {money(sell.price)} to "
        f"{money(buy.price)}"
        for deal, buy, sell in met
        if not sell.price <= deal.price <= buy.price
    ]
    breaches += [
        f"deal {deal.id} is not for what its orders were"
        for deal, buy, sell in met
        if not (deal.item_id, deal.currency) == buy.market == sell.market
    ]
    return Finding(
        "within-limits",
        "Nobody paid more, or got less, than they had said.",
        f"{len(met):,} prices, each within the limits of both of its orders",
        tuple(breaches),
    )


def _nothing_crossed(evidence: Evidence) -> Finding:
    standing = [order for order in evidence.orders.values() if order.status == OPEN]
    asks = [order for order in standing if order.side == SELL]
    breaches = [
        f"order {bid.id} bids {money(bid.price)}, and order {ask.id} asks {money(ask.price)}"
        for bid in standing
        if bid.side == BUY
        for ask in asks
        if bid.market == ask.market and bid.price >= ask.price and bid.user != ask.user
    ]
    if evidence.waiting:
        breaches.append(f"{evidence.waiting} orders wait for a matcher")
    return Finding(
        "nothing-crossed",
        "No two orders are left that should have met.",
        f"{len(standing):,} orders stand in the book, and none of another's fits any of them",
        tuple(breaches),
    )


def _met(evidence: Evidence) -> Iterator[tuple[Deal, Order, Order]]:
    for deal in evidence.deals:
        buy, sell = map(evidence.orders.get, _orders(deal))
        if buy is not None and sell is not None:
            yield deal, buy, sell


def _orders(deal: Deal) -> tuple[int, int]:
    return deal.buy_order_id, deal.sell_order_id
