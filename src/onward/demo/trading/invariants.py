"""Puts the promises about money to what is left: what was told is compared with what is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from onward.demo.trading.deals import check_deals
from onward.demo.trading.evidence import Evidence, Operation, Transfer
from onward.demo.trading.journal import CANCEL, DEPOSIT, ISSUE, SELL, WITHDRAW, Told
from onward.demo.trading.script import money
from onward.demo.trading.tags import one_winner
from onward.demo.trading.totals import Total, totals
from onward.findings import Finding

AVAILABLE, HELD, OUTSIDE = "available", "held", "outside"
_HOLD, _RELEASE, _DEAL = "hold", "release", "deal"
_WHOLE: Final = 10_000  # hundredths of a percent


def check(evidence: Evidence) -> list[Finding]:
    """Judge every promise."""
    return [
        _every_cent(evidence),
        _every_piece(evidence),
        _never_below_nothing(evidence),
        _done_once(evidence),
        _refused_is_nothing(evidence),
        one_winner(evidence),
        *check_deals(evidence),
        _books_agree(evidence),
    ]


def _every_cent(evidence: Evidence) -> Finding:
    found = [total for total in totals(evidence) if not total.is_item]
    left = " and ".join(f"{money(each.brought - each.taken)} {each.asset}" for each in found)
    return Finding(
        "every-cent",
        "Every cent that people were told they brought or took is accounted for.",
        f"{left}, brought and not taken out, are available, held or fees; and nothing was missing "
        f"at {evidence.looks} looks while they traded",
        (*evidence.missed, *_missing(found)),
    )


def _every_piece(evidence: Evidence) -> Finding:
    found = [total for total in totals(evidence) if total.is_item]
    basis = "; ".join(
        f"{each.brought:,} of {each.asset} = {each.available:,} available + {each.held:,} held"
        for each in found
    )
    return Finding(
        "every-piece",
        "Every piece of every item is with somebody, once.",
        basis,
        tuple(_missing(found)),
    )


def _missing(found: Iterable[Total]) -> Iterator[str]:
    for total in found:
        if total.missing:
            what = "missing" if total.missing > 0 else "too much"
            yield f"{total.shown(abs(total.missing))} of {total.asset} is {what}"


def _never_below_nothing(evidence: Evidence) -> Finding:
    breaches = [
        f"{each.user} has {each.available} and {each.held} held of {each.asset}"
        for each in evidence.balances
        if min(each.available, each.held) < 0
    ]
    left = [each for each in evidence.operations.values() if each.available is not None]
    breaches += [
        f"{each} left {each.available} and {each.held} held"
        for each in left
        if min(each.available or 0, each.held or 0) < 0
    ]
    return Finding(
        "never-below-nothing",
        "No account was ever below nothing.",
        f"{len(evidence.balances)} accounts as they are, and as {len(left):,} operations left them",
        tuple(breaches),
    )


def _done_once(evidence: Evidence) -> Finding:
    """Find what each accepted request has moved: exactly what it asked for, and nothing else."""
    accepted, again = evidence.accepted, 0
    breaches: list[str] = []
    for told in evidence.told:
        wanted = told.wanted
        if wanted.key is None or not told.accepted:
            continue
        first = accepted[wanted.person, wanted.key]
        again += told is not first
        if (told.made, told.payment) != (first.made, first.payment):
            breaches.append(f"{wanted.key} was told {told.made}, and then {first.made}")
    for told in accepted.values():
        breaches += _differences(evidence, told)
    cancelled = _cancelled(evidence)
    releases = Counter(
        each.order_id for each in evidence.operations.values() if each.kind == _RELEASE
    )
    breaches += [
        f"order {order} was withdrawn, and its money released {releases[order]} times"
        for order in cancelled
        if releases[order] != 1
    ]
    return Finding(
        "done-once",
        "Whatever was accepted was done exactly once, also for those who asked again.",
        f"{len(accepted):,} requests answered 202 and {len(cancelled):,} withdrawn orders, each "
        f"with one set of entries; {again:,} were asked again and told the same",
        tuple(breaches),
    )


def _differences(evidence: Evidence, told: Told) -> Iterator[str]:
    wanted, number = told.wanted, told.payment or told.made
    found = evidence.operations.get(number)
    if found is None:
        yield f"{wanted.deed} {wanted.key} was accepted as {number}, which is not there"
        return
    # The key of whoever issues is not kept as one of whoever gets it.
    key = found.key if wanted.deed == ISSUE else wanted.key
    if (found.user, found.key) != (wanted.person, key):
        yield f"{found} is not what {wanted.key} was told"
    expected = _expected(evidence, told)
    if evidence.transfers.get(number, []) != [expected]:
        moved = evidence.transfers.get(number, [])
        yield f"{found} should have moved {expected.amount} once, and has {len(moved)} transfers"


def _expected(evidence: Evidence, told: Told) -> Transfer:
    """Say which transfer a request asks for."""
    person, deed, asset, amount, item, *_ = told.wanted
    if deed == WITHDRAW:
        return Transfer(asset, amount, AVAILABLE, person, OUTSIDE, "")
    if deed in {DEPOSIT, ISSUE}:
        return Transfer(asset, amount, OUTSIDE, "", AVAILABLE, person)
    if deed == SELL:
        return Transfer(f"item:{item}", 1, AVAILABLE, person, HELD, person)
    order = evidence.orders.get(told.made)
    commission = amount * order.commission_bp // _WHOLE if order else 0
    return Transfer(asset, amount + commission, AVAILABLE, person, HELD, person)


def _refused_is_nothing(evidence: Evidence) -> Finding:
    """Find who was told of each operation: what nobody was told of should not be there."""
    accepted = evidence.accepted
    known = {told.payment or told.made for told in accepted.values()}
    cancelled = _cancelled(evidence)
    breaches = [
        f"{each} is there, and nobody was told that it was accepted"
        for each in evidence.operations.values()
        if not _is_known(each, known, cancelled)
    ]
    refused = Counter(told.status for told in evidence.told if not told.accepted)
    counts = ", ".join(f"{count:,} × {status}" for status, count in sorted(refused.items()))
    return Finding(
        "refused-is-nothing",
        "Whatever was refused has left nothing behind.",
        f"{refused.total():,} requests refused ({counts}); every operation is one that was "
        "accepted, or a deal",
        tuple(breaches),
    )


def _is_known(operation: Operation, known: set[int], cancelled: set[int]) -> bool:
    if operation.kind == _RELEASE:
        return operation.order_id in cancelled
    return operation.kind == _DEAL or operation.id in known


def _books_agree(evidence: Evidence) -> Finding:
    entries = 2 * sum(map(len, evidence.transfers.values()))
    return Finding(
        "books-agree",
        "The books are right: every balance can be derived again.",
        f"`onward trade check` on {entries:,} entries of {len(evidence.operations):,} operations",
        evidence.faults,
    )


def _cancelled(evidence: Evidence) -> set[int]:
    """Return the orders that somebody was told to have withdrawn."""
    return {
        told.wanted.order_id
        for told in evidence.told
        if told.wanted.deed == CANCEL and told.accepted
    }
