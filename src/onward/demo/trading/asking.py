"""How a change is asked for, until there is an answer; and every answer is written down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onward.demo.trading.journal import (
    ACCEPTED,
    BUY,
    CANCEL,
    DEPOSIT,
    ISSUE,
    SELL,
    WITHDRAW,
    Journal,
    Told,
    Wanted,
)
from onward.demo.trading.line import Answer, Line
from onward.errors import InvariantBroken, ServerUnreachable

BILLING: Final = "/api/v1/billing"
TRADING: Final = "/api/v1/trading"
ORDERS: Final[Mapping[str, str]] = {
    BUY: f"{TRADING}/purchase-orders",
    SELL: f"{TRADING}/sell-orders",
}
_EXPECTED: Final = frozenset({200, 202, 409, 412, 422, 428})
_BUSY: Final = 409
_SETTLED: Final = "order-stands-otherwise"  # a 409 that no waiting will change
_PATIENCE_S: Final = 30.0
_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Asker:
    """Somebody who calls, and keeps a journal of it."""

    line: Line
    journal: Journal

    async def look(self, path: str) -> Answer:
        """Read something, until there is an answer."""
        deadline = time.monotonic() + _PATIENCE_S
        while (answer := await self.line.ask("GET", path)) is None:
            await _rest(deadline)
        return answer

    async def change(self, wanted: Wanted) -> Answer:
        """Ask for a change until there is an answer, and write it down.

        Whoever got no answer says the very same again, with the same key: only so do they learn
        what became of the first time.
        """
        deadline, silences = time.monotonic() + _PATIENCE_S, 0
        headers = _headers(wanted)
        while True:
            answer = await self.line.ask("POST", _path(wanted), _body(wanted), headers=headers)
            silences += answer is None
            if answer is not None and not _may_be_ours(answer, silences):
                break
            await _rest(deadline)
        if answer.status not in _EXPECTED:
            raise InvariantBroken(f"{wanted} was answered with {answer.status}: {answer.body}")
        self.journal.write(_told(wanted, answer, silences))
        return answer


def _path(wanted: Wanted) -> str:
    if wanted.deed in {DEPOSIT, WITHDRAW}:
        return f"{BILLING}/{wanted.deed}"
    if wanted.deed == ISSUE:
        return f"{TRADING}/items"
    if wanted.deed == CANCEL:
        return f"{ORDERS[wanted.asset]}/{wanted.order_id}/cancel"
    return ORDERS[wanted.deed]


def _body(wanted: Wanted) -> dict[str, object] | None:
    if wanted.deed in {DEPOSIT, WITHDRAW}:
        return {"amount": wanted.amount, "currency": wanted.asset}
    if wanted.deed == ISSUE:
        return {"user_id": wanted.person, "item_id": wanted.item_id, "quantity": wanted.amount}
    if wanted.deed == CANCEL:
        return None
    return {"item_id": wanted.item_id, "price": wanted.amount, "currency": wanted.asset}


def _headers(wanted: Wanted) -> dict[str, str]:
    found = {"If-Match": wanted.tag, "Idempotency-Key": wanted.key}
    return {name: value for name, value in found.items() if value is not None}


def _may_be_ours(answer: Answer, silences: int) -> bool:
    """Whether what is in the way may be the request that we have not heard of."""
    return silences > 0 and answer.status == _BUSY and answer.code != _SETTLED


def _told(wanted: Wanted, answer: Answer, silences: int) -> Told:
    made = payment = 0
    if answer.status == ACCEPTED:
        body = answer.body
        made = body["id"] if wanted.deed in ORDERS else body["operation_id"]
        payment = body["payment_id"] if wanted.deed in ORDERS else 0
    return Told(wanted, answer.status, answer.code, made, payment, answer.replayed, silences)


async def _rest(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise ServerUnreachable(f"No service of the demo has answered for {_PATIENCE_S:.0f} s.")
    await asyncio.sleep(_AGAIN_S)
