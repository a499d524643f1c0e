"""What somebody does with their own account: look at it, bring money in, take it out, read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from onward.cli.finding import Everything, Limit
from onward.cli.money import money, priced, typed
from onward.cli.trade_change import Currency, Key, Wanted, change, told
from onward.cli.trade_shapes import ACCOUNT, OPERATION
from onward.cli.tree import Given, Reading, given_of

if TYPE_CHECKING:
    from onward.cli.client import Answer, Client
    from onward.cli.output import Row

_BILLING: Final = "/api/v1/billing"
_DEPOSIT = """
onward trade deposit 1000
onward trade deposit 12.50 --currency USD
onward trade deposit 1000 --key monday-1     # said again, it is done once
"""

Amount = Annotated[
    str, typer.Argument(metavar="AMOUNT", help="How much, such as 12.50; no commas.")
]


def add_account(app: typer.Typer) -> None:
    """Give the noun its verbs about an account."""
    app.command("account", cls=Reading)(account)
    app.command("deposit", cls=Reading, epilog=_DEPOSIT)(deposit)
    app.command("withdraw", cls=Reading)(withdraw)
    app.command("ledger", cls=Reading)(ledger)


def account(context: typer.Context, currency: Currency = None) -> None:
    """Show your account: what may be used, and what is set aside for open orders."""
    from onward.cli.client import service
    from onward.cli.output import show_facts, show_one
    from onward.cli.terminal import reader

    given = given_of(context)
    with service(context) as found:
        row = account_of(found, currency).body
    if given.quiet or given.form != "table":
        show_one(given, ACCOUNT, row)
    else:
        show_facts(reader(given), {**row, **_in_money(row)})


def deposit(
    context: typer.Context, amount: Amount, currency: Currency = None, key: Key = None
) -> None:
    """Bring money into your account, as it is shown."""
    _move(context, "deposit", amount, currency, key)


def withdraw(
    context: typer.Context, amount: Amount, currency: Currency = None, key: Key = None
) -> None:
    """Take money out of your account, as it is shown.

    If the account changes under you, nothing is done: you are shown what it is now, and asked
    again; without a terminal it leaves with 6.
    """
    _move(context, "withdraw", amount, currency, key)


def ledger(
    context: typer.Context,
    operation: Annotated[
        int | None,
        typer.Argument(metavar="[OPERATION]", min=1, help="Only this one, whole."),
    ] = None,
    limit: Limit = 50,
    everything: Everything = False,
) -> None:
    """List what was done with your accounts, the newest first; deals have their own list."""
    from onward.cli.client import service
    from onward.cli.finding import show_items
    from onward.cli.output import show_one

    path = f"{_BILLING}/operations"
    with service(context) as found:
        if operation is None:
            most = None if everything else limit
            show_items(context, OPERATION, found, path, most=most)
        else:
            row = told(found.send("GET", f"{path}/{operation}")).body
            show_one(given_of(context), OPERATION, row)


def account_of(service: Client, currency: str | None) -> Answer:
    """Your account with its version; without a currency, that of the service's first one."""
    params = {} if currency is None else {"currency": currency}
    return told(service.send("GET", f"{_BILLING}/account", params=params))


def standing(seen: Answer) -> str:
    """How an account stands, on one line."""
    from onward.cli.terminal import plain

    row = seen.body
    currency = row.get("currency")
    return (
        f"{plain(row.get('user_id'))} has {priced(row.get('available'), currency)} available and "
        f"{money(row.get('held'), currency)} held, version {row.get('version')}."
    )


def _move(
    context: typer.Context,
    kind: Literal["deposit", "withdraw"],
    amount: str,
    currency: str | None,
    key: str | None,
) -> None:
    from onward.cli.client import service

    given, written = given_of(context), typed(amount)
    with service(context) as found:
        seen = account_of(found, currency)
        code = str(seen.body["currency"])
        body = {"amount": written.minor(code), "currency": code}
        wanted = Wanted(
            deed=f"{kind.capitalize()} {priced(body['amount'], code)}",
            path=f"{_BILLING}/{kind}",
            body=body,
            look=lambda: account_of(found, code),
            told=standing,
            seen=seen,
        )
        _show(given, change(found, given, wanted, key=key).body)


def _show(given: Given, operation: Row) -> None:
    from onward.cli.output import show_one
    from onward.cli.terminal import reader

    if given.quiet or given.form != "table":
        show_one(given, OPERATION, operation)
        return
    after, currency = operation["account"], operation["currency"]
    assert isinstance(after, dict)  # noqa: S101 - every operation has it
    reader(given).print(
        f"Operation {operation['operation_id']}: {operation['kind']} "
        f"{priced(operation['amount'], currency)}; {priced(after['available'], currency)} is "
        f"available, version {after['version']}."
    )


def _in_money(row: Row) -> dict[str, object]:
    return {name: money(row.get(name), row.get("currency")) for name in ("available", "held")}
