"""Orders of those who buy and of those who sell: placed, looked at, and withdrawn.

Both sides are made by one hand, so that neither can do what the other cannot. Placing an order
names the token of one's last order on that side, so that one press of a button is one order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from onward.api import conditional, idempotency, paging
from onward.api.billing import NamedCurrency, insufficient_funds
from onward.api.body import StrictRequest
from onward.api.conditional import TOKEN, Guard, Seen, etag
from onward.api.fields import described, fields
from onward.api.models import Model
from onward.api.paging import Cursor, Id, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import DirectRoute, router
from onward.api.services import Services, Serving, caller_of, services_of
from onward.core.lifecycles import ORDER
from onward.errors import InvalidInput
from onward.store import orders as store
from onward.store.ledger import Outcome
from onward.store.orders import Placed, Side
from onward.trading import money

_PREFIX: Final = "/api/v1/trading"
_ORDERS: Final[Mapping[Side, APIRouter]] = {
    "buy": router(f"{_PREFIX}/purchase-orders", "trading"),
    "sell": router(f"{_PREFIX}/sell-orders", "trading"),
}
_STATUSES: Final = tuple(map(str, ORDER.states))
_UNKNOWN: Final = problem_response("There is no such order of yours")

purchase_orders, sell_orders = _ORDERS["buy"], _ORDERS["sell"]


class Wanted(Model):
    """One piece of an item, to be bought or sold at this price or a better one."""

    item_id: int = Field(ge=1, le=money.ITEM_MAX, examples=[7])
    price: int = Field(
        ge=1,
        le=money.AMOUNT_MAX,
        description="The limit, in minor units: at most so much, or at least.",
        examples=[1_000],
    )
    currency: NamedCurrency


class Order(BaseModel):
    """An order."""

    id: int = Field(examples=[12])
    user_id: str = Field(examples=["ann"])
    side: Side
    item_id: int = Field(examples=[7])
    currency: str = Field(examples=["EUR"])
    payment_id: int = Field(description="The operation that set aside what it takes.")
    deal_id: int | None = Field(description="The deal that took it, if one has.")
    price: int = Field(description="Its limit, in minor units.", examples=[1_000])
    commission: int = Field(description="At most; once it is filled, what it was.", examples=[2])
    status: str = Field(examples=[str(ORDER.initial)])
    version: int = Field(examples=[1])
    created_at: datetime
    updated_at: datetime


class OrderPage(BaseModel):
    """A page of orders, the newest first."""

    items: list[Order]
    next_cursor: str | None


StatusFilter = Annotated[
    list[str] | None,
    Query(max_length=len(_STATUSES), description=f"Only these, of {', '.join(_STATUSES)}."),
]


def _side(request: Request) -> Side:
    """Say on which side of the market the address is."""
    path = request.scope["route"].path
    return "buy" if path.startswith(_ORDERS["buy"].prefix) else "sell"


async def _token(request: Request) -> str:
    user, pool = caller_of(request).person, services_of(request).pool
    return str(await store.token_of(pool, user, _side(request)))


LIST: Final = Guard(
    "list of orders",
    current=_token,
    lock=lambda request: f"orders:{caller_of(request).person}:{_side(request)}",
    tags=TOKEN,
)


def _on_both(path: str, handler: Callable[..., Any], **said: Any) -> None:  # noqa: ANN401 - handed on
    """Let a handler answer on both sides of the market."""
    for name, side in zip(("purchase", "sell"), _ORDERS.values(), strict=True):
        side.add_api_route(
            path, handler, name=handler.__name__.replace("order", f"{name}_order"), **said
        )


async def place_order(request: StrictRequest) -> Response:
    """Place an order, after the last one that was seen: its token goes in `If-Match`."""
    services, user, side = services_of(request), caller_of(request).person, _side(request)
    known = services.market.currencies
    key = idempotency.key_of(request)
    given = await fields(
        request,
        {"item_id": money.item, "price": money.amount},
        {"currency": partial(money.currency, known=known)},
    )
    item_id, price, currency = given["item_id"], given["price"], given.get("currency", known[0])
    async with LIST.holding(request) as seen:
        placed = await services.market.place(
            user, side, (item_id, currency, price), token=UUID(seen.tag), key=key
        )
    _refuse(placed, seen, side)
    asked = {"item_id": item_id, "price": price, "currency": currency}
    return _accepted(placed, {"user_id": user, "side": side, **asked})


async def list_orders(
    request: Request,
    response: Response,
    services: Serving,
    limit: Limit = 100,
    cursor: Cursor = None,
    status: StatusFilter = None,
) -> OrderPage:
    """List one's own orders, the newest first. The ETag is the token that the next one names."""
    user, side = caller_of(request).person, _side(request)
    kind = f"{side} orders"
    position = paging.decode_ids(kind, cursor, length=1)
    # First the token: whatever is placed while the list is read has another.
    response.headers["ETag"] = etag(str(await services.market.tokens.present(user, side)))
    found = await store.page(
        services.pool,
        user,
        side,
        limit=limit + 1,
        statuses=_checked(status),
        **({"before": position[0]} if position else {}),
    )
    page = found[:limit]
    return OrderPage(
        items=[_shown(order) for order in page],
        next_cursor=paging.encode(kind, [page[-1].id]) if len(found) > limit else None,
    )


async def get_order(
    order_id: Id, request: Request, response: Response, services: Serving
) -> Order | Response:
    """Return one of one's own orders. Its ETag is its version."""
    order = await _order_of(services, request, order_id)
    if conditional.none_match(request, order.version):
        return conditional.not_modified(order.version)
    return _answer(response, order)


async def cancel_order(
    order_id: Id, request: Request, response: Response, services: Serving
) -> Order:
    """Withdraw one of one's own orders, and get back what it holds. Once more changes nothing."""
    said = await services.market.cancel(caller_of(request).person, _side(request), order_id)
    if said is None or said.record is None:
        raise _unknown()
    if said.record.status != ORDER.moves["cancel"].target:
        raise _stands_otherwise(said.record.status)
    return _answer(response, await _order_of(services, request, order_id))


def _declared() -> dict[str, Any]:
    """Return how placing an order is described; FastAPI does not see its body."""
    wrong = problem_response("A field is wrong, or there is not enough to set aside")
    declared = needs(Permission.TRADE, responses={**idempotency.ANSWERS, 422: wrong})
    declared["openapi_extra"] |= {
        "requestBody": described(Wanted),
        "parameters": [idempotency.DESCRIBED],
    }
    return LIST.on(declared)


_on_both("", list_orders, methods=["GET"], **needs(Permission.TRADE))
_on_both(
    "",
    place_order,
    methods=["POST"],
    status_code=202,
    response_model=Order,
    route_class_override=DirectRoute,
    **_declared(),
)
_on_both(
    "/{order_id}",
    get_order,
    methods=["GET"],
    response_model=Order,
    **needs(
        Permission.TRADE,
        responses={404: _UNKNOWN, 304: {"description": "The caller has this version"}},
    ),
)
_on_both(
    "/{order_id}/cancel",
    cancel_order,
    methods=["POST"],
    **needs(
        Permission.TRADE,
        responses={404: _UNKNOWN, 409: problem_response("It was filled; `order_status` says so")},
    ),
)


def _checked(wanted: list[str] | None) -> list[str] | None:
    for status in wanted or ():
        if status not in _STATUSES:
            raise InvalidInput("status", f"is not one of {', '.join(_STATUSES)}")
    return wanted


async def _order_of(services: Services, request: Request, order_id: int) -> store.Order:
    user = caller_of(request).person
    found = await store.get(services.pool, user, _side(request), order_id)
    if found is None:
        raise _unknown()
    return found


def _answer(response: Response, order: store.Order) -> Order:
    response.headers["ETag"] = etag(order.version)
    return _shown(order)


def _shown(order: store.Order) -> Order:
    return Order.model_validate(order, from_attributes=True)


def _accepted(placed: Placed, asked: Mapping[str, object]) -> Response:
    """Make the answer to an order that was placed, now or before: the order as it was then."""
    order = Order.model_validate(
        {
            **asked,
            **placed._asdict(),
            "id": placed.order_id,
            "deal_id": None,
            "status": ORDER.initial,
            "version": 1,
            "updated_at": placed.created_at,
        }
    )
    headers = dict(idempotency.REPLAYED) if placed.outcome is Outcome.REPEATED else {}
    headers["ETag"] = etag(str(placed.token))
    headers["Location"] = f"{_ORDERS[order.side].prefix}/{order.id}"
    return Response(order.model_dump_json(), 202, headers, media_type="application/json")


def _refuse(placed: Placed, seen: Seen, side: Side) -> None:
    idempotency.refuse(placed.outcome, placed.request)
    if placed.outcome is Outcome.STALE:
        raise seen.stale(str(placed.token))
    if placed.outcome is Outcome.INSUFFICIENT:
        short = insufficient_funds if side == "buy" else _insufficient_items
        raise short(placed.needed, placed.available)


def _insufficient_items(needed: int | None, available: int | None) -> Problem:
    return Problem(
        422,
        "insufficient-items",
        "There are not enough pieces of the item",
        f"It takes {needed} and {available} is available; nothing was changed. "
        "Buy one first, or cancel an order that holds one.",
        extra={"needed": needed, "available": available},
    )


def _stands_otherwise(status: str) -> Problem:
    return Problem(
        409,
        "order-stands-otherwise",
        "The order cannot be withdrawn any more",
        f"It is {status}; its deal is among your deals.",
        extra={"order_status": status},
    )


def _unknown() -> Problem:
    return Problem(404, "unknown-order", "There is no such order of yours on this side")
