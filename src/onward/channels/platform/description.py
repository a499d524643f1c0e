"""What there is to know about a third-party platform.

A platform is data: where a task is made and with what body, where its name stands in the answer,
where in a callback which thing stands, and what its words mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from onward.channels.platform.pointers import NOWHERE, Pointer
from onward.core.lifecycles import lifecycle_named
from onward.errors import InvalidInput

_CODE_BITS: Final = 64  # of a number that is taken for a code


class Word(NamedTuple):
    """What a word of a platform means: one of our statuses, and whether that is good news."""

    status: str
    failed: bool = False
    cancelled: bool = False  # it has stopped because it was asked to


class Said(NamedTuple):
    """What a callback says; what it need not say is `None` if it does not."""

    task_id: object
    device_id: object
    word: object  # of the platform's own
    meaning: Word | None  # none: a word that nobody knows
    error: object = None
    result: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Where things stand in a callback."""

    task_id: Pointer
    device_id: Pointer
    status: Pointer
    error: Pointer | None = None
    result: Pointer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A platform: how to make a task there, and how to read what it calls back."""

    name: str
    lifecycle: str
    method: str
    url: str
    cancel_method: str
    cancel_url: str | None
    # As the file has them: a secret is the name of a variable here, or should be.
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any]
    callback_url: str
    task_id: Pointer | None  # none: it calls a task by the id of our command
    shape: Shape
    words: Mapping[str, Word]  # none at all: it speaks in our own words and codes
    private: bool
    ca: Path | None
    timeout_s: float
    connections: int

    def read(self, callback: Mapping[str, Any]) -> Said:
        """Find in a callback what it is about; `InvalidInput` if that is not where it should be."""
        word = _needed(self.shape.status, callback)
        return Said(
            _needed(self.shape.task_id, callback),
            _needed(self.shape.device_id, callback),
            word,
            self._meaning(word),
            _found(self.shape.error, callback),
            _found(self.shape.result, callback),
        )

    def _meaning(self, word: object) -> Word | None:
        if not self.words:
            table = lifecycle_named(self.lifecycle)
            event = table.event_called(word)
            return None if event is None else Word(str(table.moves[event].target))
        # A code is found by its digits, because all keys of a TOML table are text.
        if type(word) is int and word.bit_length() <= _CODE_BITS:
            word = str(word)
        return self.words.get(word) if isinstance(word, str) else None


Platforms = Mapping[str, Platform]
NO_PLATFORMS: Final[Platforms] = MappingProxyType({})


def _needed(where: Pointer, value: object) -> object:
    found = where.find(value)
    if found is NOWHERE:
        place = ".".join(where.steps) or "body"
        raise InvalidInput(place, "is not there; the platform's description says that it is")
    return found


def _found(where: Pointer | None, value: object) -> object:
    found = NOWHERE if where is None else where.find(value)
    return None if found is NOWHERE else found
