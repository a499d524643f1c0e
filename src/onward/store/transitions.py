"""The guarded path of commands."""

from __future__ import annotations

from typing import NamedTuple

from onward.core.verdicts import Transition
from onward.store import queries
from onward.store.guard import Guard

SQL = queries.load("commands.sql")


class CommandState(NamedTuple):
    """Where a command stands, as the store last saw it."""

    cmd_id: str
    lifecycle: str
    status: str
    epoch: int
    version: int


class Event(NamedTuple):
    """Something that was said about a command; every field has been checked by `inputs`."""

    cmd_id: str
    event: str
    epoch: int | None = None  # None: said by somebody who does not speak for an attempt
    source: str = ""
    data: str | None = None  # JSON: duration_ms, result_code, error_code, error_message, result


Answer = Transition[CommandState]

COMMANDS = Guard[str, CommandState](SQL["record_events"], CommandState)

record_all = COMMANDS.record_all
record = COMMANDS.record
judged = COMMANDS.judged
