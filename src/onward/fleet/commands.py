"""What is said about commands, checked: new ones, and their events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import uuid_utils

from onward.core.lifecycles import LIFECYCLES, lifecycle_named
from onward.settings import Settings
from onward.store import inputs
from onward.store.commands import NewCommand
from onward.store.transitions import Event

CommandId = str | UUID

ID_BITS: Final = 256  # of a number that is taken for an id; a larger one is none
_EVENTS = frozenset(name for table in LIFECYCLES.values() for name in table.moves)


def new_command_id() -> str:
    """Make an id for a command: a UUIDv7, so that ids made later sort later."""
    return str(uuid_utils.uuid7())


def new_command(
    settings: Settings,
    *,
    cmd_id: CommandId | None,
    lifecycle: str,
    node: object,
    type: object,  # noqa: A002 - the word of the table, the API and the documents
    task_id: object,
    params: Mapping[str, object] | None,
    timeout_s: float | None,
    source: str,
) -> NewCommand:
    """Check a command that is to be made; what is not said comes from the settings."""
    return NewCommand(
        cmd_id=new_command_id() if cmd_id is None else inputs.command_id(cmd_id),
        lifecycle=lifecycle_named(lifecycle).name,
        node=inputs.name("node", worded(node), empty=True),
        type=inputs.name("type", type, empty=True),
        task_id=None if task_id is None else inputs.name("task_id", worded(task_id)),
        params=inputs.json_object(
            "params", {} if params is None else params, max_bytes=settings.payload_max_bytes
        ),
        timeout_s=(
            settings.command_timeout_s
            if timeout_s is None
            else inputs.seconds("timeout_s", timeout_s)
        ),
        source=inputs.name("source", source, empty=True),
    )


def differences(new: NewCommand, row: Mapping[str, object]) -> list[str]:
    """Name the fields in which a command that was to be made differs from the one that is there."""
    wanted: dict[str, object] = {**new._asdict(), "params": json.loads(new.params)}
    found = [
        name
        for name in ("lifecycle", "node", "type", "task_id", "params", "timeout_s")
        if wanted[name] != row[name]
    ]
    # To Python, `true` equals 1; to the database it does not.
    return found or ["params"]


def event(
    settings: Settings,
    cmd_id: CommandId,
    name: str,
    *,
    epoch: int | None,
    source: str,
    data: Mapping[str, object],
) -> Event:
    """Check an event, with what came along with it."""
    return Event(
        inputs.command_id(cmd_id),
        _event_name(name),
        None if epoch is None else inputs.integer("epoch", epoch),
        inputs.name("source", source, empty=True) if source != "" else "",
        _checked_data(settings, data) if data else None,
    )


def _checked_data(settings: Settings, data: Mapping[str, object]) -> str | None:
    checked = {
        key: _CHECKS.get(key, _as_is)(value) for key, value in data.items() if value is not None
    }
    if not checked:
        return None
    return inputs.json_value("data", checked, max_bytes=settings.payload_max_bytes)


def _event_name(value: object) -> str:
    return value if isinstance(value, str) and value in _EVENTS else inputs.name("event", value)


def _duration(value: object) -> object:
    return inputs.integer("duration_ms", value)


def _as_is(value: object) -> object:
    return value


def worded(value: object) -> object:
    """Take a number for an id as its digits; anything else as it is, to be checked."""
    if isinstance(value, bool) or not isinstance(value, int) or value.bit_length() > ID_BITS:
        return value
    return str(value)


_CHECKS = {"duration_ms": _duration, "result_code": worded, "error_code": worded}
