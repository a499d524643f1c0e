"""What everybody asked for and what they were told, kept by those who asked.

It is no part of the system that is judged: in the end its tables are compared with this.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = "told.jsonl"
ACCEPTED: Final = 202
DONE: Final = 200

# What somebody can ask for; the first three name an amount, the next two a price.
DEPOSIT, WITHDRAW, ISSUE = "deposit", "withdraw", "issue"
BUY, SELL = "buy", "sell"
CANCEL: Final = "cancel"


class Wanted(NamedTuple):
    """A request for a change, as it was sent."""

    person: str
    deed: str
    asset: str  # what is moved, or the currency of a price
    amount: int
    item_id: int = 0  # of an order
    order_id: int = 0  # to be cancelled
    tag: str | None = None  # what If-Match said
    key: str | None = None


class Told(NamedTuple):
    """A request for a change, and the answer to it."""

    wanted: Wanted
    status: int
    code: str  # of a refusal
    made: int  # the operation or, of an order, the order; or none
    payment: int  # the operation that an order's money was set aside by; or none
    replayed: bool
    silences: int  # how often it was asked without an answer before

    @property
    def accepted(self) -> bool:
        """Whether somebody was told that it is done, or will be."""
        return self.status in {ACCEPTED, DONE}


class Journal:
    """All of it, while it is written."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.answers: Counter[int] = Counter()  # by status, without those that were given again
        self.replays = 0

    def write(self, told: Told) -> None:
        """Take note of an answer."""
        self.told.append(told)
        if told.replayed:
            self.replays += 1
        else:
            self.answers[told.status] += 1


def save(folder: Path, told: list[Told]) -> None:
    """Write it to a file."""
    with (folder / FILE).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in told)


def read(folder: Path) -> Iterator[Told]:
    """Read it again."""
    with (folder / FILE).open(encoding="utf-8") as file:
        for line in file:
            wanted, *rest = json.loads(line)
            yield Told(Wanted(*wanted), *rest)
