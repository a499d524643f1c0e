"""Clients of the bank: each asks for one thing after the other, and goes on asking until it knows.

A request with a key that was lost on the way is sent again with the same key, until somebody says
what became of it. One without a key is left alone: it may have been done, or not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from tests.trading.bank.lines import Answer, Calls, Lost
from tests.trading.bank.notes import ACCEPTED, UNKNOWN, Note, Notes
from tests.trading.bank.wishes import CURRENCY, Kind, Slip, Wish

ACCOUNT: Final = f"/api/v1/billing/account?currency={CURRENCY}"
BOOK: Final = {
    "buy": "/api/v1/trading/purchase-orders",
    "sell": "/api/v1/trading/sell-orders",
}
_PATHS: Final = {
    Kind.DEPOSIT: "/api/v1/billing/deposit",
    Kind.WITHDRAW: "/api/v1/billing/withdraw",
    Kind.BUY: BOOK["buy"],
    Kind.SELL: BOOK["sell"],
    Kind.ISSUE: "/api/v1/trading/items",
}
_AGAIN_S: Final = 0.02
_PERSISTENCE: Final = 3
_NO_ORDER: Final = ("buy", 10**15)  # for whoever has none yet: cancelling it is refused too


@dataclass(slots=True)
class Person:
    """Somebody with an account; several clients may be one person."""

    name: str
    orders: deque[tuple[str, int]] = field(default_factory=lambda: deque([_NO_ORDER], maxlen=24))
    done: deque[tuple[str, Wish]] = field(default_factory=lambda: deque(maxlen=24))  # by its key


class Client:
    """One of them, with a key and a connection of its own."""

    def __init__(self, name: str, person: Person, line: Calls, notes: Notes) -> None:
        self._name = name
        self._person = person
        self._line = line
        self._notes = notes
        self._asked = 0
        self._tags: dict[str, str] = {}  # by what they are of: the account, or a side of the book

    async def ask(self, wish: Wish) -> Note:
        """Ask for something until it is known what became of it, and write that down."""
        self._asked += 1
        if wish.slip is Slip.REUSED and not self._taken(wish):
            wish = wish._replace(slip=Slip.NONE)
        note = await (self._cancel(wish) if wish.kind is Kind.CANCEL else self._post(wish))
        self._notes.written.append(note)
        if note.done and wish.repeats and note.key:
            await self._repeat(note)
        return note

    async def look(self, path: str) -> Answer:
        """Ask for something that changes nothing."""
        while True:
            try:
                answer = await self._call("GET", path)
            except Lost:
                continue
            if answer.status < 500:
                return answer
            await asyncio.sleep(_AGAIN_S)

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    async def _post(self, wish: Wish) -> Note:
        of = wish.side or "account"
        key, body, lost = self._key(wish), _body(wish, self._person.name), False
        for _ in range(_PERSISTENCE if wish.slip is Slip.NONE else 1):
            headers = {"Idempotency-Key": key} if key else {}
            seen = await self._seen(of, wish)
            if seen is not None:
                headers["If-Match"] = seen
            answer, unsure = await self._known(_PATHS[wish.kind], body, headers)
            lost = lost or unsure
            if answer is not None and answer.etag:
                self._tags[of] = answer.etag
            if answer is None or answer.status != 412 or not wish.persists:
                break
        note = _noted(self._person.name, wish, answer, key=key, seen=seen or "", lost=lost)
        self._remember(note)
        return note

    async def _cancel(self, wish: Wish) -> Note:
        orders = self._person.orders
        order = orders[int(wish.which * len(orders))]
        side, order_id = order
        answer, lost = await self._known(f"{BOOK[side]}/{order_id}/cancel", None, {}, again=True)
        return _noted(self._person.name, wish, answer, lost=lost, order=order)

    async def _known(
        self, path: str, body: object | None, headers: dict[str, str], *, again: bool = False
    ) -> tuple[Answer | None, bool]:
        """Ask until it is known what became of it; also says whether it was ever unknown."""
        lost, again = False, again or "Idempotency-Key" in headers
        while True:
            try:
                answer = await self._call("POST", path, body, headers)
            except Lost:
                answer = None
            if answer is not None and answer.status < 500:
                # Whoever is kept out by a lock is not told what became of an earlier try.
                waits = lost and answer.code == "locked"
                if not waits and answer.code != "idempotency-key-running":
                    return answer, lost
            else:
                lost = True
                if not again:
                    return None, lost
            await asyncio.sleep(_AGAIN_S)

    async def _call(
        self,
        method: str,
        path: str,
        body: object | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        try:
            answer = await self._line.call(method, path, body, headers=headers)
        except Lost:
            self._notes.answers["lost"] += 1
            raise
        self._notes.answers[f"{answer.status} {answer.code}".strip()] += 1
        if answer.status == 500:
            self._notes.oddities.append(f"{method} {path} was answered with a 500: {answer.body}")
        return answer

    def _key(self, wish: Wish) -> str | None:
        if wish.slip is Slip.REUSED:
            taken = self._taken(wish)
            return taken[int(wish.which * len(taken))]
        return f"{self._name}-{self._asked}" if wish.keyed else None

    def _taken(self, wish: Wish) -> list[str]:
        """Return keys that stand for something else: for the same, they would be a repeat."""
        asked = (wish.kind, wish.amount, wish.item)
        return [
            key
            for key, first in self._person.done
            if (first.kind, first.amount, first.item) != asked
        ]

    async def _seen(self, of: str, wish: Wish) -> str | None:
        """Return what to send as If-Match: what was seen, or what the slip makes of it."""
        if wish.kind is Kind.ISSUE or wish.slip is Slip.NO_TAG:
            return None
        if of not in self._tags or wish.looks:
            path = ACCOUNT if of == "account" else f"{BOOK[of]}?limit=1"
            self._tags[of] = (await self.look(path)).etag
        seen = self._tags[of]
        if wish.slip is Slip.OLD_TAG:
            return _other(seen)
        return {Slip.BAD_TAG: seen[:-1], Slip.WEAK_TAG: f"W/{seen}"}.get(wish.slip, seen)

    def _remember(self, note: Note) -> None:
        if note.done and note.wish.side:
            self._person.orders.append((note.wish.side, int(note.body["id"])))
        if note.done and note.key and note.wish.slip is Slip.NONE:
            self._person.done.append((note.key, note.wish))

    async def _repeat(self, note: Note) -> None:
        """Ask once more for what was done: the first answer comes again, or somebody has a lock."""
        headers = {"Idempotency-Key": str(note.key), "If-Match": note.seen}
        if not note.seen:
            del headers["If-Match"]
        path, body = _PATHS[note.wish.kind], _body(note.wish, self._person.name)
        answer, _ = await self._known(path, body, headers)
        if answer is None or answer.code == "locked":
            return
        self._notes.repeats += 1
        told = (answer.status, answer.etag, answer.replayed)
        if told != (ACCEPTED, note.etag, True) or _essence(answer.body) != _essence(note.body):
            self._notes.oddities.append(f"{note} was repeated, and answered with {answer}")


def _noted(user: str, wish: Wish, answer: Answer | None, **known: Any) -> Note:
    if answer is None:
        return Note(user, wish, UNKNOWN, **known)
    # Of a refusal nothing but its kind is needed, and there are many.
    kept = answer.body if answer.status < 300 else {}
    return Note(user, wish, answer.status, etag=answer.etag, code=answer.code, body=kept, **known)


def _body(wish: Wish, person: str) -> dict[str, object]:
    if wish.side:
        return {"item_id": wish.item, "price": wish.amount, "currency": CURRENCY}
    if wish.kind is Kind.ISSUE:
        return {"user_id": person, "item_id": wish.item, "quantity": wish.amount}
    return {"amount": wish.amount, "currency": CURRENCY}


def _essence(body: dict[str, Any]) -> list[object]:
    """What of an answer never changes; an order may have been filled meanwhile."""
    names = ("operation_id", "kind", "amount", "account", "id", "payment_id", "price", "item_id")
    return [body.get(name) for name in names]


def _other(tag: str) -> str:
    """Return a tag that nothing has now, but might have."""
    value = tag.strip('"')
    if not value.isdigit():
        return f'"{UUID(int=UUID(value).int ^ 1)}"'
    return f'"{int(value) - 1 or 10**9}"'
