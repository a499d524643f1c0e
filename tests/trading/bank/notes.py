"""What a client was told, written down: the evidence that the bank's own books are judged by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from tests.trading.bank.wishes import Wish

UNKNOWN: Final = 0  # instead of a status: the connection broke, and there was no key to ask with
ACCEPTED: Final = 202


@dataclass(frozen=True, slots=True)
class Note:
    """A wish, and the last that was heard of it."""

    user: str
    wish: Wish
    status: int
    key: str | None = None
    seen: str = ""  # what If-Match said
    etag: str = ""
    code: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    lost: bool = False  # whether it had been sent before, and no answer came
    order: tuple[str, int] | None = None  # the side and the id of what was to be cancelled

    @property
    def done(self) -> bool:
        """Whether somebody was told that it was done."""
        return self.status == ACCEPTED

    @property
    def operation_id(self) -> int:
        """The operation that an accepted one is said to be."""
        return int(self.body["payment_id" if self.wish.side else "operation_id"])


@dataclass(slots=True)
class Notes:
    """The notes of all clients, and what they saw that should never be."""

    written: list[Note] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)  # of every try, for people
    repeats: int = 0  # of what had been done, answered with the first answer
