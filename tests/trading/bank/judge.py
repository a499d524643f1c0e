"""Judges the bank's books by the notes of its clients.

What each of them was told must be there, exactly once, and nothing else may be. Each check yields
sentences about what is wrong; a sound bank yields none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final

from tests.trading.bank.books import (
    CANCELLED,
    FILLED,
    OPEN,
    Balance,
    Books,
    Deal,
    Operation,
    Order,
    Owned,
    Place,
    Transfer,
)
from tests.trading.bank.notes import UNKNOWN, Note
from tests.trading.bank.wishes import CURRENCY, Kind, Slip, commission, set_aside

Sums = Counter[tuple[str, Place]]  # of what, and where

_NOBODY: Final = "00000000-0000-0000-0000-000000000000"
_OUTSIDE: Final = ("outside", "")
_FEES: Final = ("fees", "")
_KINDS: Final = {Kind.BUY: "hold", Kind.SELL: "hold"}  # other wishes are called as what they become
_ASKED: Final = {"deposit", "withdraw", "hold", "issue"}  # what is done because somebody asked

# What each slip is to be answered with; nothing is wrong with the others, but they may be too late
# or too poor. Whoever is kept out by a lock may be told that instead, where there is one.
_CODES: Final = {
    Slip.NONE: {"", "locked", "stale", "insufficient-funds", "insufficient-items"},
    Slip.NO_TAG: {"if-match-required"},
    Slip.BAD_TAG: {"if-match-malformed"},
    Slip.WEAK_TAG: {"stale"},
    Slip.OLD_TAG: {"stale", "locked"},
    Slip.NOTHING: {"invalid"},
    Slip.TOO_MUCH: {"insufficient-funds", "stale", "locked"},
    Slip.REUSED: {"idempotency-key-reused", "locked"},
}


def faults(books: Books, notes: Iterable[Note]) -> list[str]:
    """Everything that is wrong with the books, by what the clients were told."""
    written = list(notes)
    posts = [note for note in written if note.wish.kind is not Kind.CANCEL]
    cancels = [note for note in written if note.wish.kind is Kind.CANCEL]
    return [
        *_accepted(books, posts),
        *_refused(books, posts),
        *_unasked(books, posts),
        *_entries(books),
        *_orders(books),
        *_cancels(books, cancels),
        *_deals(books),
        *_versions(books),
        *_tokens(books, posts),
        *drift(sums(books), books.balances),
        *_bookkeeping(books),
    ]


def _accepted(books: Books, posts: Iterable[Note]) -> Iterator[str]:
    """Every 202 is one operation, which says what was asked for and what was answered."""
    told: dict[int, Note] = {}
    for note in posts:
        if not note.done:
            continue
        first = told.setdefault(note.operation_id, note)
        if first is not note:
            yield f"operation {note.operation_id} is the answer to both {first} and {note}"
        operation = books.operations.get(note.operation_id)
        if operation is None:
            yield f"there is no operation for {note}"
        elif _described(note) != _done(operation):
            yield f"{operation} is not what was asked for by {note}"
        elif note.wish.side:
            yield from _placed(books, operation, note)
        else:
            yield from _posted(operation, note)


def _described(note: Note) -> tuple[object, ...]:
    wish = note.wish
    return (_KINDS.get(wish.kind, str(wish.kind)), note.user, wish.asset, wish.moved, note.key)


def _done(operation: Operation) -> tuple[object, ...]:
    return (*operation[1:5], operation.key)


def _posted(operation: Operation, note: Note) -> Iterator[str]:
    account = note.body["account"]
    told = tuple(account[name] for name in ("available", "held", "version"))
    if told != operation[-3:]:
        yield f"{operation} did not leave the account as {note} was told"
    if note.wish.kind is not Kind.ISSUE and (
        note.seen != f'"{account["version"] - 1}"' or note.etag != f'"{account["version"]}"'
    ):
        yield f"{note} changed another version than the one that was seen"


def _placed(books: Books, operation: Operation, note: Note) -> Iterator[str]:
    order = books.orders.get(int(note.body["id"]))
    wish = note.wish
    if order is None or operation.order_id != order.id or order.payment_id != operation.id:
        yield f"{operation} and {order} are not one, for {note}"
    elif (*order[1:4], order.price) != (wish.side, note.user, wish.item, wish.amount):
        yield f"{order} is not what was asked for by {note}"
    elif note.etag != f'"{order.token}"':
        yield f"{order} has another token than {note} was told"


def _refused(books: Books, posts: Iterable[Note]) -> Iterator[str]:
    """Whatever was refused has left nothing under its key, and was refused for what it was."""
    keys = {(each.user, each.key) for each in books.operations.values() if each.key}
    for note in posts:
        if note.status == UNKNOWN:
            continue
        if note.code not in _CODES[note.wish.slip]:
            yield f"{note.wish.slip} was not seen in {note}"
        if note.code == "stale" and note.seen == note.etag:
            yield f"the version that it named is the present one, and yet it was refused: {note}"
        if note.done or note.wish.slip is Slip.REUSED or _may_come(note):
            continue
        if note.key and (note.user, note.key) in keys:
            yield f"there is an operation although it was refused: {note}"


def _may_come(note: Note) -> bool:
    """Say whether a try of a killed process may have been done after a later one was refused.

    PostgreSQL goes on with what it has been sent. Of an account, and with a token, it is then as
    stale as the later one was; but whether there is enough for an order depends on no version.
    """
    return note.lost and note.wish.side is not None and note.code.startswith("insufficient")


def _unasked(books: Books, posts: Iterable[Note]) -> Iterator[str]:
    """Whatever nobody was told about is what became of one that was lost, at most once each."""
    told = {note.operation_id for note in posts if note.done}
    lost = Counter(_described(note) for note in posts if note.status == UNKNOWN or _may_come(note))
    for operation in books.operations.values():
        if operation.kind not in _ASKED or operation.id in told:
            continue
        if lost[_done(operation)]:
            lost[_done(operation)] -= 1
        else:
            yield f"{operation} was not asked for, or was asked for once less, or was refused"


def _entries(books: Books) -> Iterator[str]:
    """Every operation has the entries of its kind, all of them and no others."""
    deals = {deal.operation_id: deal for deal in books.deals}
    for operation in books.operations.values():
        entries = Counter(books.transfers.get(operation.id, ()))
        if entries != Counter(_expected(books, operation, deals.get(operation.id))):
            yield f"{operation} has other entries than it should: {list(entries)}"
    for unknown in books.transfers.keys() - books.operations.keys():
        yield f"there are entries of an operation {unknown}, which is none"


def _expected(books: Books, operation: Operation, deal: Deal | None) -> Iterator[Transfer]:
    if operation.kind == "deal":
        if deal is not None:
            yield from _dealt(books, deal)
        return
    available, held = ("available", operation.user), ("held", operation.user)
    source, target = {
        "withdraw": (available, _OUTSIDE),
        "hold": (available, held),
        "release": (held, available),
    }.get(operation.kind, (_OUTSIDE, available))
    yield Transfer(operation.asset, operation.amount, source, target)


def _dealt(books: Books, deal: Deal) -> Iterator[Transfer]:
    """What a deal moves: the price, a piece, a commission from each, and what was not needed."""
    aside, received = ("held", deal.buyer), ("available", deal.seller)
    cost = commission(deal.price)
    back = set_aside(books.orders[deal.buy_id].price) - deal.price - cost
    piece = Transfer(f"item:{deal.item}", 1, ("held", deal.seller), ("available", deal.buyer))
    moved = [
        piece,
        Transfer(CURRENCY, deal.price, aside, received),
        Transfer(CURRENCY, cost, aside, _FEES),
        Transfer(CURRENCY, cost, received, _FEES),
        Transfer(CURRENCY, back, aside, ("available", deal.buyer)),
    ]
    return (transfer for transfer in moved if transfer.amount)


def _orders(books: Books) -> Iterator[str]:
    """An order was paid for once; it is given back if it was cancelled, and only then."""
    held = Counter(each.order_id for each in books.operations.values() if each.kind == "hold")
    given = Counter(each.order_id for each in books.operations.values() if each.kind == "release")
    dealt = Counter(id_ for deal in books.deals for id_ in (deal.buy_id, deal.sell_id))
    for order in books.orders.values():
        counted = (held[order.id], given[order.id], dealt[order.id])
        if counted != (1, order.status == CANCELLED, order.status == FILLED):
            yield f"{order} was paid for, given back and dealt {counted} times"
    for unknown in (held.keys() | given.keys() | dealt.keys()) - books.orders.keys():
        yield f"something was done for an order {unknown}, which is none"
    for operation in books.operations.values():
        of = books.orders.get(operation.order_id or 0)
        if operation.kind == "release" and of and operation[2:5] != (of.user, *_aside(of)):
            yield f"{operation} does not give back what was set aside for {of}"
    if not books.arrivals:
        yield from _crossed(books)


def _crossed(books: Books) -> Iterator[str]:
    """When nothing waits for a matcher, nobody is left who could deal with somebody else."""
    bids: dict[int, dict[str, Order]] = defaultdict(dict)
    asks: dict[int, dict[str, Order]] = defaultdict(dict)
    for order in books.orders.values():
        # Of each user's orders, the one that meets others most easily is enough.
        best = (bids if order.side == "buy" else asks)[order.item]
        if order.status == OPEN:
            choose = max if order.side == "buy" else min
            best[order.user] = choose(best.get(order.user, order), order, key=lambda o: o.price)
    for item, buyers in bids.items():
        for buy, sell in product(buyers.values(), asks[item].values()):
            if buy.price >= sell.price and buy.user != sell.user:
                yield f"{buy} and {sell} stand in the book and should have met"


def _cancels(books: Books, cancels: Iterable[Note]) -> Iterator[str]:
    """Whoever was told that an order was cancelled, or was not, was told the truth."""
    for note in cancels:
        assert note.order is not None
        order = books.orders.get(note.order[1])
        status = None if order is None else order.status
        if (note.status, status) not in {(200, CANCELLED), (409, FILLED), (404, None)}:
            yield f"{order} is not what {note} was told"


def _deals(books: Books) -> Iterator[str]:
    """A deal is within both limits, between two, and both orders say so."""
    for deal in books.deals:
        buy, sell = books.orders.get(deal.buy_id), books.orders.get(deal.sell_id)
        cost = commission(deal.price)
        if buy is None or sell is None:
            yield f"{deal} is of an order that is none"
        elif (
            not sell.price <= deal.price <= buy.price
            or deal.buyer == deal.seller
            or (buy.side, buy.user, buy.item) != ("buy", deal.buyer, deal.item)
            or (sell.side, sell.user, sell.item) != ("sell", deal.seller, deal.item)
            or {buy.deal_id, sell.deal_id} != {deal.id}
            or {buy.commission, sell.commission} != {cost}
            or {deal.buyer_commission, deal.seller_commission} != {cost}
        ):
            yield f"{deal} is not what {buy} and {sell} allow"
    fees = sum(deal.buyer_commission + deal.seller_commission for deal in books.deals)
    if fees != (kept := sums(books)[CURRENCY, _FEES]):
        yield f"the commissions are {fees}, and the fees {kept}"


def _versions(books: Books) -> Iterator[str]:
    """No two operations have made the same version of an account, and none passed the floor."""
    seen: dict[tuple[str, str, int | None], Operation] = {}
    for operation in books.operations.values():
        if operation.kind == "deal":
            continue
        first = seen.setdefault((operation.user, operation.asset, operation.version), operation)
        if first is not operation:
            yield f"{first} and {operation} made the same version"
        if (operation.available or 0) < 0 or (operation.held or 0) < 0:
            yield f"{operation} left less than nothing"


def _tokens(books: Books, posts: Iterable[Note]) -> Iterator[str]:
    """Every order follows another one of its user's, or is the first, and no two follow one."""
    made = {(order.user, order.side, f'"{order.token}"') for order in books.orders.values()}
    used: set[tuple[str, str, str]] = set()
    for note in posts:
        if not note.done or note.wish.side is None:
            continue
        after = (note.user, note.wish.side, note.seen)
        if after in used:
            yield f"{note} follows an order that another one followed before"
        if after not in made and note.seen != f'"{_NOBODY}"':
            yield f"{note} follows an order that there never was"
        used.add(after)


def drift(sums: Sums, balances: Mapping[Owned, Balance]) -> Iterator[str]:
    """Nothing was lost or made: what everybody has is what their entries say, and not negative."""
    owned = {(user, asset) for asset, (_, user) in sums if user} | balances.keys()
    for user, asset in sorted(owned):
        derived = Balance(sums[asset, ("available", user)], sums[asset, ("held", user)])
        balance = balances.get((user, asset), Balance(0, 0))
        if derived != balance:
            yield f"{user} has {balance} of {asset}, but the entries say {derived}"
        if min(balance) < 0:
            yield f"{user} has less than nothing of {asset}: {balance}"
    for asset in {asset for asset, _ in sums}:
        kept = sum(sum(each) for (_, of), each in balances.items() if of == asset)
        beside = sums[asset, _OUTSIDE] + sums[asset, _FEES]
        if kept + beside:
            yield f"{kept + beside} of {asset} came from nowhere"


def _bookkeeping(books: Books) -> Iterator[str]:
    """The same from what was done instead of from the entries: paid in, paid out, dealt."""
    owns: Counter[Owned] = Counter()
    held: Counter[Owned] = Counter()
    for operation in books.operations.values():
        sign = {"deposit": 1, "issue": 1, "withdraw": -1}.get(operation.kind, 0)
        owns[operation.user, operation.asset] += sign * operation.amount
    for deal in books.deals:
        owns[deal.buyer, CURRENCY] -= deal.price + deal.buyer_commission
        owns[deal.seller, CURRENCY] += deal.price - deal.seller_commission
        owns[deal.buyer, f"item:{deal.item}"] += 1
        owns[deal.seller, f"item:{deal.item}"] -= 1
    for order in books.orders.values():
        if order.status == OPEN:
            asset, amount = _aside(order)
            held[order.user, asset] += amount
    for owned in owns.keys() | held.keys() | books.balances.keys():
        balance = books.balances.get(owned, Balance(0, 0))
        if balance != (owns[owned] - held[owned], held[owned]) and owned[0]:
            yield f"{owned} is {balance}, but was paid and dealt {owns[owned]}, {held[owned]} held"


def _aside(order: Order) -> tuple[str, int]:
    return (CURRENCY, set_aside(order.price)) if order.side == "buy" else (f"item:{order.item}", 1)


def sums(books: Books) -> Sums:
    """Add up what every place has got and given."""
    return added(each for transfers in books.transfers.values() for each in transfers)


def added(transfers: Iterable[Transfer]) -> Sums:
    """Add up what every place has got and given by some transfers."""
    found: Sums = Counter()
    for asset, amount, source, target in transfers:
        found[asset, source] -= amount
        found[asset, target] += amount
    return found
