"""What somebody does with their own orders: place one of either side, look, withdraw it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from onward.cli.finding import Everything, Limit
from onward.cli.money import priced, typed
from onward.cli.trade_account import account_of
from onward.cli.trade_change import Currency, Key, Wanted, change, told
from onward.cli.trade_shapes import ORDER
from onward.cli.tree import Given, Reading, given_of

if TYPE_CHECKING:
    from onward.cli.client import Answer, Client
    from onward.cli.output import Row

Side = Literal["buy", "sell"]
_PATHS: Final[Mapping[Side, str]] = MappingProxyType(
    {"buy": "/api/v1/trading/purchase-orders", "sell": "/api/v1/trading/sell-orders"}
)
_UNKNOWN: Final = "unknown-order"
_BUY = """
onward trade book 7
onward trade buy 7 --price 10.50
"""

Item = Annotated[int, typer.Argument(metavar="ITEM", help="Its number.", min=1)]
OrderId = Annotated[int, typer.Argument(metavar="ORDER", help="Its number.", min=1)]


def add_orders(app: typer.Typer) -> None:
    """Give the noun its verbs about orders."""
    app.command("orders", cls=Reading)(orders)
    app.command("buy", cls=Reading, epilog=_BUY)(buy)
    app.command("sell", cls=Reading)(sell)
    app.command("cancel", cls=Reading)(cancel)


def orders(
    context: typer.Context,
    order: Annotated[
        int | None, typer.Argument(metavar="[ORDER]", min=1, help="Only this one, whole.")
    ] = None,
    *,
    side: Annotated[Side | None, typer.Option(help="Only those of this side.")] = None,
    status: Annotated[
        list[str] | None, typer.Option(metavar="STATUS", help="Only these. May be said often.")
    ] = None,
    limit: Limit = 50,
    everything: Everything = False,
) -> None:
    """List your orders of both sides, the newest first."""
    from onward.cli.client import service
    from onward.cli.output import show_one, show_rows

    given, most = given_of(context), None if everything else limit
    with service(context) as found:
        if order is not None:
            show_one(given, ORDER, _found(found, order)[1].body)
            return
        rows = _listed(found, [side] if side else list(_PATHS), status or [])
        show_rows(given, ORDER, islice(rows, most))
        if next(rows, None) is not None:
            typer.echo(f"onward: there are more than these {most:,}: --limit or --all.", err=True)


def buy(
    context: typer.Context,
    item: Item,
    price: Annotated[str, typer.Option(metavar="AMOUNT", help="At most so much, such as 10.50.")],
    currency: Currency = None,
    key: Key = None,
) -> None:
    """Place an order for one piece of an item, to buy it at this price or a better one.

    The price and the commission are set aside. If you place another order at the same time, nothing
    is done: you are shown it, and asked again; without a terminal it leaves with 6.
    """
    _place(context, "buy", item, (price, currency), key)


def sell(
    context: typer.Context,
    item: Item,
    price: Annotated[str, typer.Option(metavar="AMOUNT", help="At least so much, such as 9.50.")],
    currency: Currency = None,
    key: Key = None,
) -> None:
    """Place an order for one piece of an item, to sell it at this price or a better one."""
    _place(context, "sell", item, (price, currency), key)


def cancel(context: typer.Context, order: OrderId) -> None:
    """Withdraw an order of yours, and get back what it holds. Once more changes nothing."""
    from onward.cli.client import service

    with service(context) as found:
        side, _ = _found(found, order)
        _show(given_of(context), told(found.send("POST", f"{_PATHS[side]}/{order}/cancel")).body)


def _place(
    context: typer.Context, side: Side, item: int, price: tuple[str, str | None], key: str | None
) -> None:
    from onward.cli.client import service

    given, written = given_of(context), typed(price[0])
    with service(context) as found:
        code = str(account_of(found, price[1]).body["currency"])
        body = {"item_id": item, "price": written.minor(code), "currency": code}
        wanted = Wanted(
            deed=f"{side.capitalize()} item {item} for {priced(body['price'], code)}",
            path=_PATHS[side],
            body=body,
            look=lambda: _last(found, side),
            told=lambda seen: _newest(seen, side),
            seen=_last(found, side),
        )
        _show(given, change(found, given, wanted, key=key).body)


def _last(service: Client, side: Side) -> Answer:
    """The newest order of a side; the ETag of that list is what the next order names."""
    return told(service.send("GET", _PATHS[side], params={"limit": "1"}))


def _newest(seen: Answer, side: Side) -> str:
    items = seen.body.get("items")
    if not isinstance(items, list) or not items:
        return f"You have placed no order to {side} yet."
    return f"Your last order to {side} is {_said(items[0])}."


def _said(order: Row) -> str:
    return (
        f"{order['id']}: item {order['item_id']} for "
        f"{priced(order['price'], order['currency'])}, {order['status']}"
    )


def _show(given: Given, order: Row) -> None:
    from onward.cli.output import show_one
    from onward.cli.terminal import reader

    if given.quiet or given.form != "table":
        show_one(given, ORDER, order)
    else:
        reader(given).print(f"Order {_said(order)}.")


def _found(service: Client, order: int) -> tuple[Side, Answer]:
    """An order of yours, on whichever side it is."""
    bought = service.send("GET", f"{_PATHS['buy']}/{order}")
    if bought.code != _UNKNOWN:
        return "buy", told(bought)
    return "sell", told(service.send("GET", f"{_PATHS['sell']}/{order}"))


def _listed(service: Client, sides: Sequence[Side], statuses: Sequence[str]) -> Iterator[Row]:
    """Orders of several sides, the newest first: they are numbered together."""
    pages = [service.pages(_PATHS[side], status=statuses) for side in sides]
    return heapq.merge(*pages, key=lambda order: -int(str(order["id"])))
