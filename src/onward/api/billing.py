"""Accounts: what somebody has, and how money is brought in and taken out.

A deposit and a withdrawal name the version of the account that was seen. They are called most, so
their handlers take the request as it comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from onward.api import conditional, idempotency, paging
from onward.api.body import StrictRequest
from onward.api.conditional import Guard, Seen, etag
from onward.api.fields import described, fields
from onward.api.models import Model
from onward.api.paging import Cursor, Id, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import DirectRoute, router
from onward.api.services import Calling, Serving, caller_of, services_of
from onward.store import ledger
from onward.store.ledger import Outcome, Posted
from onward.trading import money

_PREFIX: Final = "/api/v1/billing"
_LIST: Final = "operations"
_ASSET: Final = "onward.asset"  # where a handler keeps whose account is to be locked
_ITEM: Final = "item:"

billing = router(_PREFIX, "billing")
moving = router(_PREFIX, "billing", route_class=DirectRoute)

Currency = Annotated[
    str | None, Query(description="One of those that are traded here; without it, the first.")
]


# In a body. Nothing is taken from the default: which one is the first is a matter of the settings.
NamedCurrency = Annotated[
    str,
    Field(
        default_factory=str,
        description="One of those that are traded here; without it, the first.",
        examples=["EUR"],
    ),
]


class Amount(Model):
    """Money to be brought in or taken out."""

    amount: int = Field(
        ge=1, le=money.AMOUNT_MAX, description="In minor units, such as cents.", examples=[1_250]
    )
    currency: NamedCurrency


Available = Annotated[
    int, Field(description="What may be taken out or traded with.", examples=[9_000])
]
Held = Annotated[int, Field(description="What is set aside for open orders.", examples=[1_000])]


class Account(BaseModel):
    """What somebody has of a currency, in minor units."""

    user_id: str = Field(examples=["ann"])
    currency: str = Field(examples=["EUR"])
    available: Available
    held: Held
    version: int = Field(examples=[3])
    updated_at: datetime | None = Field(description="None, if nothing has ever happened to it.")


class Balance(BaseModel):
    """An account as an operation left it."""

    available: Available
    held: Held
    version: int = Field(examples=[3])


class Operation(BaseModel):
    """Something that was done with an account, and the account as it left it."""

    operation_id: int = Field(examples=[31])
    kind: str = Field(
        description="`deposit`, `withdraw`, `issue`; `hold` and `release` for orders.",
        examples=["deposit"],
    )
    amount: int = Field(examples=[1_250])
    currency: str | None = Field(description="None, if it was an item.", examples=["EUR"])
    item_id: int | None = Field(description="None, if it was money.")
    order_id: int | None
    at: datetime
    account: Balance


class OperationPage(BaseModel):
    """A page of operations, the newest first."""

    items: list[Operation]
    next_cursor: str | None


async def _version(request: Request) -> int:
    user, asset = caller_of(request).person, request.scope[_ASSET]
    return (await ledger.account(services_of(request).pool, user, asset)).version


ACCOUNT: Final = Guard(
    "account",
    current=_version,
    lock=lambda request: f"account:{caller_of(request).person}:{request.scope[_ASSET]}",
)


@billing.get(
    "/account",
    response_model=Account,
    **needs(Permission.TRADE, responses={304: {"description": "The caller has this version"}}),
)
async def get_account(
    request: Request,
    response: Response,
    caller: Calling,
    services: Serving,
    currency: Currency = None,
) -> Account | Response:
    """Return one's own account. Its ETag is the version that a change names."""
    asset = currency_of(currency, services.market.currencies)
    found = await ledger.account(services.pool, caller.person, asset)
    if conditional.none_match(request, found.version):
        return conditional.not_modified(found.version)
    response.headers["ETag"] = etag(found.version)
    return Account(user_id=caller.person, currency=asset, **found._asdict())


def _declared(answers: str) -> dict[str, Any]:
    """Return what a route asks for and how it is described; FastAPI does not see its body."""
    declared = needs(
        Permission.TRADE,
        responses={**idempotency.ANSWERS, 422: problem_response(answers)},
    )
    declared["openapi_extra"] |= {
        "requestBody": described(Amount),
        "parameters": [idempotency.DESCRIBED],
    }
    return {"status_code": 202, "response_model": Operation, **ACCOUNT.on(declared)}


@moving.post("/deposit", **_declared("A field is wrong, or the account would hold too much"))
async def deposit(request: StrictRequest) -> Response:
    """Bring money into the version of one's own account that was seen."""
    return await _move(request, "deposit")


@moving.post("/withdraw", **_declared("A field is wrong, or there is not enough in the account"))
async def withdraw(request: StrictRequest) -> Response:
    """Take money out of the version of one's own account that was seen."""
    return await _move(request, "withdraw")


async def _move(request: StrictRequest, kind: Literal["deposit", "withdraw"]) -> Response:
    services, user = services_of(request), caller_of(request).person
    known = services.market.currencies
    key = idempotency.key_of(request)
    given = await fields(
        request, {"amount": money.amount}, {"currency": partial(money.currency, known=known)}
    )
    amount, currency = given["amount"], given.get("currency", known[0])
    request.scope[_ASSET] = currency
    async with ACCOUNT.holding(request) as seen:
        wanted = ledger.new_post(
            user, currency, kind=kind, amount=amount, version=seen.version, key=key
        )
        posted = await services.market.posts.post(wanted)
    _refuse(posted, seen, needed=amount)
    return accepted(posted, kind, amount=amount, asset=currency)


@billing.get("/operations", **needs(Permission.TRADE))
async def list_operations(
    caller: Calling, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> OperationPage:
    """List what was done with one's own accounts, the newest first; deals have their own list."""
    position = paging.decode_ids(_LIST, cursor, length=1)
    found = await ledger.operations(
        services.pool,
        caller.person,
        limit=limit + 1,
        **({"before": position[0]} if position else {}),
    )
    page = found[:limit]
    return OperationPage(
        items=[_shown({**each._asdict(), "operation_id": each.id}) for each in page],
        next_cursor=paging.encode(_LIST, [page[-1].id]) if len(found) > limit else None,
    )


@billing.get(
    "/operations/{operation_id}",
    **needs(Permission.TRADE, responses={404: problem_response("There is no such operation")}),
)
async def get_operation(operation_id: Id, caller: Calling, services: Serving) -> Operation:
    """Return one operation with one's own accounts."""
    found = await ledger.operation(services.pool, caller.person, operation_id)
    if found is None:
        raise Problem(404, "unknown-operation", "There is no such operation")
    return _shown({**found._asdict(), "operation_id": found.id})


def currency_of(given: str | None, known: Sequence[str]) -> str:
    """Return the currency that is meant."""
    return known[0] if given is None else money.currency("currency", given, known)


def accepted(posted: Posted, kind: ledger.PostKind, *, amount: int, asset: str) -> Response:
    """Make the answer to a deposit, a withdrawal or an issue that was done, now or before."""
    headers = dict(idempotency.REPLAYED) if posted.outcome is Outcome.REPEATED else {}
    if kind != "issue":
        # Whoever issues something sees neither the account nor the operation.
        headers["ETag"] = etag(posted.version or 0)
        headers["Location"] = f"{_PREFIX}/operations/{posted.operation_id}"
    body = _done_json(posted, kind, amount=amount, asset=asset)
    return Response(body, 202, headers, media_type="application/json")


def _done_json(posted: Posted, kind: str, *, amount: int, asset: str) -> str:
    """Write an `Operation` by hand: the model costs more than asking who calls."""
    assert posted.at is not None  # noqa: S101 - it was done
    return json.dumps(
        {
            "operation_id": posted.operation_id,
            "kind": kind,
            "amount": amount,
            **_named(asset),
            "order_id": None,
            "at": posted.at.isoformat().replace("+00:00", "Z"),
            "account": {
                "available": posted.available,
                "held": posted.held,
                "version": posted.version,
            },
        },
        separators=(",", ":"),
    )


def _named(asset: str) -> dict[str, str | int | None]:
    """Name an asset as answers do: a currency, or an item."""
    currency, item, number = asset.partition(_ITEM)
    return {"currency": currency or None, "item_id": int(number) if item else None}


def _shown(found: Mapping[str, Any]) -> Operation:
    return Operation.model_validate({**found, **_named(found["asset"]), "account": found})


def _refuse(posted: Posted, seen: Seen, *, needed: int) -> None:
    idempotency.refuse(posted.outcome, posted.request)
    if posted.outcome is Outcome.STALE:
        assert posted.version is not None  # noqa: S101 - it is what was compared
        raise seen.stale(posted.version)
    if posted.outcome is Outcome.INSUFFICIENT:
        raise insufficient_funds(needed, posted.available)
    if posted.outcome is Outcome.TOO_MUCH:
        raise too_large(posted.available)


def insufficient_funds(needed: int | None, available: int | None) -> Problem:
    """Make the answer to whoever wants to spend more than they have."""
    return Problem(
        422,
        "insufficient-funds",
        "There is not enough in the account",
        f"It takes {needed} and {available} is available; nothing was changed. "
        "Ask for less, bring money in, or cancel an order that holds some.",
        extra={"needed": needed, "available": available},
    )


def too_large(available: int | None) -> Problem:
    """Make the answer to whoever would have more than an account can hold."""
    return Problem(
        422,
        "balance-too-large",
        "The account would hold too much",
        f"An account holds at most {ledger.BALANCE_MAX}, and {available} is in it; "
        "nothing was changed. Bring in less.",
        extra={"available": available, "max": ledger.BALANCE_MAX},
    )
