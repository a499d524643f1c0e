"""The market around the orders: the book, one's own deals, and the items that one has."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Query, Response
from pydantic import BaseModel, Field

from onward.api import idempotency, paging
from onward.api.billing import Currency, Operation, accepted, currency_of, too_large
from onward.api.body import StrictRequest
from onward.api.fields import described, fields
from onward.api.models import Model, Name
from onward.api.paging import Cursor, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.routing import DirectRoute, router
from onward.api.services import Calling, Serving, caller_of, doer_of, services_of
from onward.store import inputs, ledger, orders
from onward.store.ledger import Outcome
from onward.store.orders import Side
from onward.trading import money

_PREFIX: Final = "/api/v1/trading"
_DEALS: Final = "deals"
_ITEMS: Final = "items"
_DEPTH_MAX: Final = 100

market = router(_PREFIX, "trading")
issuing = router(_PREFIX, "trading", route_class=DirectRoute)


class Deal(BaseModel):
    """A deal, as one of its two sides sees it."""

    id: int = Field(examples=[5])
    item_id: int = Field(examples=[7])
    currency: str = Field(examples=["EUR"])
    price: int = Field(description="That of the order which stood in the book.", examples=[990])
    side: Side = Field(description="The side of whoever asks.")
    order_id: int = Field(description="The order of whoever asks.", examples=[12])
    commission: int = Field(description="What whoever asks has paid for it.", examples=[2])
    created_at: datetime


class DealPage(BaseModel):
    """A page of deals, the newest first."""

    items: list[Deal]
    next_cursor: str | None


class Holding(BaseModel):
    """How many pieces of an item somebody has."""

    item_id: int = Field(examples=[7])
    available: int = Field(description="What may be sold.", examples=[3])
    held: int = Field(description="What is set aside for open orders.", examples=[1])


class HoldingPage(BaseModel):
    """A page of items, in the order of their numbers."""

    items: list[Holding]
    next_cursor: str | None


class Issue(Model):
    """Pieces of an item that come into somebody's account from outside."""

    user_id: Name = Field(description="Who gets them.", examples=["ann"])
    item_id: int = Field(ge=1, le=money.ITEM_MAX, examples=[7])
    quantity: int = Field(ge=1, le=money.AMOUNT_MAX, examples=[3])


class Level(BaseModel):
    """A price in the book."""

    price: int = Field(examples=[990])
    orders: int = Field(description="How many stand there.", examples=[4])


class Book(BaseModel):
    """The open orders for an item, the best prices first."""

    item_id: int
    currency: str
    bids: list[Level] = Field(description="Of those who buy, the highest first.")
    asks: list[Level] = Field(description="Of those who sell, the lowest first.")


@market.get("/deals", **needs(Permission.TRADE))
async def list_deals(
    caller: Calling, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> DealPage:
    """List one's own deals, the newest first. Who the other side was is not told."""
    position = paging.decode_ids(_DEALS, cursor, length=1)
    found = await orders.deals(
        services.pool,
        caller.person,
        limit=limit + 1,
        **({"before": position[0]} if position else {}),
    )
    page = found[:limit]
    return DealPage(
        items=[_seen_by(caller.person, deal) for deal in page],
        next_cursor=paging.encode(_DEALS, [page[-1].id]) if len(found) > limit else None,
    )


@market.get("/items", **needs(Permission.TRADE))
async def list_items(
    caller: Calling, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> HoldingPage:
    """List the items that one has, in the order of their numbers."""
    position = paging.decode_ids(_ITEMS, cursor, length=1)
    found = await ledger.holdings(
        services.pool, caller.person, after=position[0] if position else 0, limit=limit + 1
    )
    page = found[:limit]
    return HoldingPage(
        items=[Holding.model_validate(each, from_attributes=True) for each in page],
        next_cursor=paging.encode(_ITEMS, [page[-1].item_id]) if len(found) > limit else None,
    )


@market.get("/book", **needs(Permission.TRADE))
async def get_book(
    services: Serving,
    item_id: Annotated[int, Query(ge=1, le=money.ITEM_MAX, examples=[7])],
    currency: Currency = None,
    depth: Annotated[int, Query(ge=1, le=_DEPTH_MAX, description="Prices of each side.")] = 10,
) -> Book:
    """Return the best prices at which an item is wanted and offered, and how many orders each."""
    asset = currency_of(currency, services.market.currencies)
    bids, asks = await orders.book(services.pool, item_id, asset, depth=depth)
    return Book.model_validate(
        {"item_id": item_id, "currency": asset, "bids": bids, "asks": asks}, from_attributes=True
    )


def _declared() -> dict[str, Any]:
    """Return how an issue is described; FastAPI does not see its body."""
    declared = needs(
        Permission.ADMIN,
        responses={
            400: problem_response("Idempotency-Key cannot be read"),
            409: problem_response("Another request with the same key is under way"),
            422: problem_response("A field is wrong, or the account would hold too much"),
        },
    )
    declared["openapi_extra"] |= {
        "requestBody": described(Issue),
        "parameters": [idempotency.DESCRIBED],
    }
    return declared


@issuing.post("/items", status_code=202, response_model=Operation, **_declared())
async def issue_items(request: StrictRequest) -> Response:
    """Bring pieces of an item into somebody's account from outside."""
    key = idempotency.key_of(request)
    given = await fields(
        request, {"user_id": inputs.name, "item_id": money.item, "quantity": money.pieces}
    )
    user, asset, quantity = given["user_id"], ledger.item_asset(given["item_id"]), given["quantity"]
    wanted = ledger.new_post(
        user,
        asset,
        kind="issue",
        amount=quantity,
        version=None,
        key=key,
        by=caller_of(request).person,
    )
    posted = await ledger.issue(services_of(request).pool, wanted, by=doer_of(request))
    idempotency.refuse(posted.outcome, posted.request)
    if posted.outcome is Outcome.TOO_MUCH:
        raise too_large(posted.available)
    return accepted(posted, "issue", amount=quantity, asset=asset)


def _seen_by(user: str, deal: orders.Deal) -> Deal:
    bought = deal.buyer == user
    return Deal(
        id=deal.id,
        item_id=deal.item_id,
        currency=deal.currency,
        price=deal.price,
        side="buy" if bought else "sell",
        order_id=deal.buy_order_id if bought else deal.sell_order_id,
        commission=deal.buyer_commission if bought else deal.seller_commission,
        created_at=deal.created_at,
    )
