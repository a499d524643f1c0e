"""The market around one's own orders: the book of an item, deals, and the items that one has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from onward.cli.finding import Everything, Limit
from onward.cli.trade_change import Currency, Key, checked_key, told
from onward.cli.trade_orders import Item
from onward.cli.trade_shapes import BOOK, DEAL, HOLDING, LEVEL, OPERATION
from onward.cli.tree import Reading, given_of

if TYPE_CHECKING:
    from onward.cli.output import Row

_TRADING: Final = "/api/v1/trading"
_ISSUE = "onward trade issue 7 --to ann --quantity 3"


def add_market(app: typer.Typer) -> None:
    """Give the noun its verbs about the market."""
    app.command("book", cls=Reading)(book)
    app.command("deals", cls=Reading)(deals)
    app.command("items", cls=Reading)(items)
    app.command("issue", cls=Reading, epilog=_ISSUE)(issue)


def book(
    context: typer.Context,
    item: Item,
    currency: Currency = None,
    depth: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="So many prices of each side.")
    ] = 10,
) -> None:
    """Show at which prices an item is offered and wanted, the best ones in the middle."""
    from onward.cli.client import service
    from onward.cli.output import show_one, show_rows

    given = given_of(context)
    params = {"item_id": str(item), "depth": str(depth)}
    params |= {} if currency is None else {"currency": currency}
    with service(context) as found:
        row = told(found.send("GET", f"{_TRADING}/book", params=params)).body
    if given.quiet or given.form != "table":
        show_one(given, BOOK, row)
    else:
        show_rows(given, LEVEL, [*_levels(row, "asks", "sell")[::-1], *_levels(row, "bids", "buy")])


def deals(context: typer.Context, limit: Limit = 50, everything: Everything = False) -> None:
    """List your deals, the newest first."""
    from onward.cli.finding import show_list

    show_list(context, DEAL, f"{_TRADING}/deals", most=None if everything else limit)


def items(context: typer.Context, limit: Limit = 100, everything: Everything = False) -> None:
    """List the items that you have, in the order of their numbers."""
    from onward.cli.finding import show_list

    show_list(context, HOLDING, f"{_TRADING}/items", most=None if everything else limit)


def issue(
    context: typer.Context,
    item: Item,
    *,
    to: Annotated[str, typer.Option(metavar="PERSON", help="Who gets them.")],
    quantity: Annotated[int, typer.Option(min=1, metavar="N", help="How many pieces.")] = 1,
    key: Key = None,
) -> None:
    """Bring pieces of an item into somebody's account from outside. Only an admin may."""
    from onward.cli.client import service
    from onward.cli.output import show_one
    from onward.cli.terminal import plain, reader

    given = given_of(context)
    body = {"user_id": to, "item_id": item, "quantity": quantity}
    with service(context) as found:
        found.http.headers["Idempotency-Key"] = checked_key(key)
        made = told(found.send("POST", f"{_TRADING}/items", body=body)).body
    if given.quiet or given.form != "table":
        show_one(given, OPERATION, made)
    else:
        reader(given).print(f"{plain(to)} has {quantity:,} more of item {item}.")


def _levels(row: Row, name: str, side: str) -> list[Row]:
    found = row.get(name)
    levels = found if isinstance(found, list) else []
    return [{**level, "side": side, "currency": row.get("currency")} for level in levels]
