"""Puts the promise of ETags to what is left: whoever changed something had seen it as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from onward.api.conditional import etag
from onward.demo.trading.evidence import Evidence
from onward.demo.trading.journal import BUY, DEPOSIT, SELL, WITHDRAW, Told
from onward.findings import Finding
from onward.store.orders import NO_TOKEN

_LATE: Final = frozenset({409, 412})


def one_winner(evidence: Evidence) -> Finding:
    """Count who had something done with a tag; those who asked again had nothing done."""
    winners: Counter[tuple[str, str, str | None]] = Counter(
        _seen(told) for told in evidence.accepted.values() if told.wanted.tag is not None
    )
    late = sum(told.status in _LATE and _seen(told) in winners for told in evidence.told)
    breaches = [
        f"{count} requests of {person} changed {what} with {tag}"
        for (person, what, tag), count in winners.items()
        if count > 1
    ]
    return Finding(
        "one-winner",
        "Whoever changed something had seen it as it was, and of several who had, one could.",
        f"{len(winners):,} ETags were good for one change each, of the version before it; "
        f"{late:,} requests came too late with one of them",
        (*breaches, *_unseen_accounts(evidence), *_unseen_orders(evidence)),
    )


def _unseen_accounts(evidence: Evidence) -> Iterator[str]:
    """Name changes of an account that were not made to the version that their caller saw."""
    for told in evidence.accepted.values():
        found = evidence.operations.get(told.made)
        if told.wanted.deed not in {DEPOSIT, WITHDRAW} or found is None:
            continue
        before = etag((found.version or 0) - 1)
        if told.wanted.tag != before:
            yield f"{found} changed {before}, and whoever asked for it had seen {told.wanted.tag}"


def _unseen_orders(evidence: Evidence) -> Iterator[str]:
    """Name orders that were not placed after the last one that their caller saw."""
    tags = {
        told.made: told.wanted.tag
        for told in evidence.accepted.values()
        if told.wanted.deed in {BUY, SELL}
    }
    last: dict[tuple[str, str], str] = {}
    for order in evidence.orders.values():
        whose = order.user, order.side
        before = etag(last.get(whose, str(NO_TOKEN)))
        if tags.get(order.id, before) != before:
            yield f"order {order.id} of {order.user} came after {before}, not {tags[order.id]}"
        last[whose] = order.token


def _seen(told: Told) -> tuple[str, str, str | None]:
    wanted = told.wanted
    what = wanted.deed if wanted.deed in {BUY, SELL} else wanted.asset
    return wanted.person, what, wanted.tag
