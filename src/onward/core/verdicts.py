"""The answer to every event: a verdict, and the record that it was judged against.

Nothing here throws. A network that doubles, delays and reorders makes duplicates and late arrivals
ordinary, so they are values; what is left for exceptions is bad input and bugs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

Record = TypeVar("Record", covariant=True)  # noqa: PLC0105 - reads better than `Record_co` in every signature


class TransitionResult(StrEnum):
    """What an event meant to the command that it was addressed to."""

    OK = "OK"
    DUPLICATE = "DUPLICATE"
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    INVALID_STATE = "INVALID_STATE"
    TERMINAL = "TERMINAL"
    STALE = "STALE"
    STALE_EPOCH = "STALE_EPOCH"
    CONFLICT = "CONFLICT"

    @property
    def meaning(self) -> str:
        """One sentence for a person who asks why."""
        return _MEANINGS[self]


_MEANINGS = {
    TransitionResult.OK: "The event was applied.",
    TransitionResult.DUPLICATE: "It was said before; nothing changed.",
    TransitionResult.UNKNOWN_COMMAND: "There is no command with this id.",
    TransitionResult.INVALID_STATE: "The event does not fit the present status.",
    TransitionResult.TERMINAL: "The command has already ended.",
    TransitionResult.STALE: "The event is older than the present status.",
    TransitionResult.STALE_EPOCH: "A former attempt spoke; a newer one has taken its place.",
    TransitionResult.CONFLICT: "The id is known, but with another content.",
}


class Transition(NamedTuple, Generic[Record]):
    """What became of one event.

    `record` is the command as it stands after the event, or `None` when there is none;
    `changed` is true exactly when `result` is `OK`.
    """

    record: Record | None
    result: TransitionResult
    changed: bool
