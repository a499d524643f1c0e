"""What of a market looks like on the command line: money for people, minor units for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from onward.cli.money import money
from onward.cli.output import Column, Row, Shape, age_column, column

# What an operation does to what is available.
_SIGNS: Final[Mapping[str, str]] = MappingProxyType(
    {"deposit": "+", "issue": "+", "release": "+", "withdraw": "-", "hold": "-"}
)


def _money(name: str) -> Callable[[Row], str]:
    return lambda row: money(row.get(name), row.get("currency"))


def _money_column(name: str) -> Column:
    return Column(name, _money(name), right=True, whole=True)


def amount_of(row: Row) -> str:
    """What an operation moved: money, or pieces of an item."""
    amount, currency = row.get("amount"), row.get("currency")
    sign = _SIGNS.get(str(row.get("kind")), "")
    told = f"{amount} of item {row.get('item_id')}"
    return f"{sign}{f'{money(amount, currency)} {currency}' if currency else told}"


def _available(row: Row) -> str:
    account, currency = row.get("account"), row.get("currency")
    if not isinstance(account, dict):
        return ""
    return money(account["available"], currency) if currency else str(account["available"])


ACCOUNT: Final = Shape(
    key="available",
    columns=(),
    fields=("user_id", "currency", "available", "held", "version", "updated_at"),
)
OPERATION: Final = Shape(
    key="operation_id",
    columns=(
        column("operation_id", "operation", right=True, whole=True),
        column("kind", whole=True),
        Column("amount", amount_of, right=True, whole=True),
        column("order_id", "order", right=True, whole=True),
        Column("available then", _available, right=True, whole=True),
        age_column("at"),
    ),
    fields=(
        *("operation_id", "kind", "amount", "currency", "item_id", "order_id", "at", "account"),
    ),
    nothing="Nothing has happened to your accounts: `onward trade deposit` brings money in.",
)
ORDER: Final = Shape(
    key="id",
    columns=(
        column("id", "order", right=True, whole=True),
        column("side", whole=True),
        column("item_id", "item", right=True, whole=True),
        _money_column("price"),
        _money_column("commission"),
        column("currency", whole=True),
        column("status", whole=True, mood=True),
        column("deal_id", "deal", right=True),
        age_column("created_at"),
    ),
    fields=(
        *("id", "user_id", "side", "item_id", "currency", "payment_id", "deal_id", "price"),
        *("commission", "status", "version", "created_at", "updated_at"),
    ),
    nothing="You have no such order: `onward trade buy` and `onward trade sell` place one.",
)
DEAL: Final = Shape(
    key="id",
    columns=(
        column("id", "deal", right=True, whole=True),
        column("side", whole=True),
        column("item_id", "item", right=True, whole=True),
        _money_column("price"),
        _money_column("commission"),
        column("currency", whole=True),
        column("order_id", "order", right=True, whole=True),
        age_column("created_at"),
    ),
    fields=(
        *("id", "item_id", "currency", "price", "side", "order_id", "commission", "created_at"),
    ),
    nothing="No order of yours has met another yet.",
)
HOLDING: Final = Shape(
    key="item_id",
    columns=(
        column("item_id", "item", right=True, whole=True),
        column("available", right=True),
        column("held", right=True),
    ),
    fields=("item_id", "available", "held"),
    nothing="You have no items: buy one, or ask an admin for `onward trade issue`.",
)
BOOK: Final = Shape(key="item_id", columns=(), fields=("item_id", "currency", "bids", "asks"))
LEVEL: Final = Shape(
    key="price",
    columns=(
        column("side", whole=True),
        _money_column("price"),
        column("currency", whole=True),
        column("orders", right=True, whole=True),
    ),
    fields=("side", "price", "currency", "orders"),
    nothing="Nobody wants it, and nobody offers it.",
)
