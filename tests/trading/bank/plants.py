"""Faults for the judge of the bank to find, planted in sound books or in what a client was told.

A statement may call the operations, orders and keys of the day by their names, in braces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from tests.trading.bank.books import CANCELLED, OPEN
from tests.trading.bank.notes import Note
from tests.trading.bank.wishes import Slip


class Plant(NamedTuple):
    """What is done to the books, and a part of what the judge has to say."""

    name: str
    found: str
    statements: tuple[str, ...]


class Mistold(NamedTuple):
    """What somebody might have been told instead, and a part of what the judge has to say."""

    name: str
    found: str
    which: str
    told: Callable[[Note], Note]


_MADE: Final = """
    INSERT INTO operations (at, kind, user_id, asset, amount, asked_by, key, request, available,
                            held, version)
    SELECT now(), 'deposit', 'ann', 'EUR', <amount>, CASE WHEN <key> IS NOT NULL THEN 'ann' END,
           <key>, <request>, available, held, version + 99
      FROM accounts WHERE user_id = 'ann' AND asset = 'EUR'
"""
_MOVED: Final = """
    INSERT INTO transfers
    VALUES ((SELECT max(id) FROM operations), 1, 'EUR', <amount>, 'outside', '', 'available', 'ann')
"""
_ADDED: Final = """
    UPDATE accounts SET available = available + <amount> WHERE user_id = 'ann' AND asset = 'EUR'
"""
_CHANGED: Final = """
    INSERT INTO account_changes OVERRIDING SYSTEM VALUE
    VALUES (-1, 'ann', 'EUR', <available>, <held>, now())
"""
_DOUBLED: Final = """
    INSERT INTO transfers
    SELECT operation_id, 2, asset, amount, from_part, from_user, to_part, to_user
      FROM transfers WHERE operation_id = {paid_in}
"""
_RELEASED: Final = """
    INSERT INTO operations (at, kind, user_id, asset, amount, order_id, available, held, version)
    SELECT at, kind, user_id, asset, amount, order_id, available, held, version + 99
      FROM operations WHERE kind = 'release'
"""
_STATUS: Final = "UPDATE orders SET status = '<status>' WHERE id = <order>"
_NO_ENTRIES: Final = "DELETE FROM transfers WHERE operation_id = {paid_out}"


def _with(statement: str, **values: object) -> str:
    for name, value in values.items():
        statement = statement.replace(f"<{name}>", str(value))
    return statement


def _paid_in(amount: int, *, key: str = "NULL", request: str = "NULL") -> tuple[str, ...]:
    """Make a deposit that adds up in every way."""
    given = {"amount": amount, "key": key, "request": request}
    return tuple(_with(statement, **given) for statement in (_MADE, _MOVED, _ADDED))


PLANTS: Final = (
    Plant("an entry too many", "has other entries than it should", (_DOUBLED,)),
    Plant("an entry too few", "has other entries than it should", (_NO_ENTRIES,)),
    Plant(
        "an operation without entries, which adds up",
        "has other entries than it should",
        (_NO_ENTRIES, _with(_ADDED, amount=1_000)),
    ),
    Plant(
        "entries without an operation",
        "which is none",
        ("DELETE FROM operations WHERE id = {paid_in}",),
    ),
    Plant(
        "a 202 without an operation",
        "there is no operation for",
        (
            _NO_ENTRIES,
            _with(_ADDED, amount=1_000),
            "DELETE FROM operations WHERE id = {paid_out}",
        ),
    ),
    Plant("a cent", "but the entries say", (_with(_ADDED, amount=1),)),
    Plant(
        "a cent in what is not added up yet",
        "came from nowhere",
        (_with(_CHANGED, available=1, held=0),),
    ),
    Plant(
        "less than nothing", "less than nothing", (_with(_CHANGED, available=0, held=-1_000_000),)
    ),
    Plant("a deposit done twice", "was not asked for", _paid_in(50_000)),
    Plant("what was lost, done twice", "was not asked for", _paid_in(300)),
    Plant(
        "what was refused, done",
        "although it was refused",
        _paid_in(70, key="'{refused_key}'", request="'deposit 70 EUR'"),
    ),
    Plant("what was refused, done without its key", "was not asked for", _paid_in(70)),
    Plant("what a used key was sent with, done", "was not asked for", _paid_in(71)),
    Plant(
        "another amount",
        "is not what was asked for",
        (
            "UPDATE operations SET amount = 50001 WHERE id = {paid_in}",
            "UPDATE transfers SET amount = 50001 WHERE operation_id = {paid_in}",
            _with(_ADDED, amount=1),
        ),
    ),
    Plant(
        "another key",
        "is not what was asked for",
        ("UPDATE operations SET key = 'other' WHERE key = '{key}'",),
    ),
    Plant(
        "another version",
        "did not leave the account as",
        ("UPDATE operations SET version = version + 1 WHERE id = {paid_in}",),
    ),
    Plant(
        "a version made twice",
        "made the same version",
        ("UPDATE operations SET version = 2 WHERE id = {paid_out}",),
    ),
    Plant(
        "a commission",
        "the commissions are",
        ("UPDATE deals SET buyer_commission = buyer_commission + 1",),
    ),
    Plant("a deal outside of a limit", "is not what Order", ("UPDATE deals SET price = 9000",)),
    Plant(
        "a deal that one of its orders does not know of",
        "is not what Order",
        ("UPDATE orders SET deal_id = NULL WHERE id = {bought}",),
    ),
    Plant(
        "an order withdrawn, and nothing given back",
        "was paid for, given back and dealt (1, 0, 0) times",
        (_with(_STATUS, status=CANCELLED, order="{offered}"),),
    ),
    Plant(
        "an order that was withdrawn and stands again",
        "is not what Note",
        (_with(_STATUS, status=OPEN, order="{withdrawn}"),),
    ),
    Plant(
        "something given back twice",
        "was paid for, given back and dealt (1, 2, 0) times",
        (_RELEASED,),
    ),
    Plant(
        "too much given back",
        "does not give back what was set aside",
        ("UPDATE operations SET amount = 2 WHERE kind = 'release'",),
    ),
    Plant(
        "two that should have met",
        "should have met",
        ("UPDATE orders SET price = 8999 WHERE id = {offered}",),
    ),
    Plant(
        "another token",
        "has another token",
        ("UPDATE orders SET token = gen_random_uuid() WHERE id = {offered}",),
    ),
)


MISTOLD: Final = (
    Mistold(
        "a change of another version than the one seen",
        "another version than the one that was seen",
        "withdrawal",
        lambda note: replace(note, seen='"1"'),
    ),
    Mistold(
        "a slip that nobody saw",
        "was not seen in",
        "stale",
        lambda note: replace(note, wish=note.wish._replace(slip=Slip.NO_TAG)),
    ),
    Mistold(
        "a refusal of the present version",
        "is the present one, and yet",
        "stale",
        lambda note: replace(note, seen=note.etag),
    ),
    Mistold(
        "an order after one that another had followed",
        "that another one followed before",
        "waits to buy",
        lambda note: replace(note, seen='"00000000-0000-0000-0000-000000000000"'),
    ),
    Mistold(
        "an order after one that there never was",
        "that there never was",
        "waits to buy",
        lambda note: replace(note, seen='"00000000-0000-0000-0000-000000000001"'),
    ),
    Mistold(
        "one operation for two",
        "is the answer to both",
        "withdrawal",
        lambda note: replace(note, body={**note.body, "operation_id": 2}),
    ),
    Mistold(
        "a refusal of what was done",
        "although it was refused",
        "deposit",
        lambda note: replace(note, status=412, code="stale"),
    ),
    Mistold(
        "a refusal without a key of what was done",
        "was not asked for",
        "waits, too",
        lambda note: replace(note, status=409, code="locked"),
    ),
    Mistold(
        "an order that was withdrawn and is said to be filled",
        "is not what Note",
        "withdrawn",
        lambda note: replace(note, status=409),
    ),
)
