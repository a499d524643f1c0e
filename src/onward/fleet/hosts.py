"""What may be said of hosts: their names, labels and addresses, and what is forbidden on them.

Each check returns the value as it is stored, or raises `InvalidInput` that says what to do about
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from onward.core.selectors.conditions import NAME, is_key
from onward.errors import InvalidInput
from onward.store import inputs
from onward.store.hosts import NewHost
from onward.store.inputs import shown

Channel = Literal["simulated", "ssh", "mqtt", "platform", "agent"]

CHANNELS: Final[tuple[Channel, ...]] = get_args(Channel)
MAX_LABELS: Final = 256  # of one host
KEY_MAX: Final = 255
VALUE_MAX: Final = 255
ADDRESS_MAX: Final = 1_024
BLOCK_MAX: Final = timedelta(days=3_660)
# Variables of Ansible's own may hold passwords, and labels are shown to everybody who sees hosts.
RESERVED: Final = "ansible_"

_is_host_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*").fullmatch
# It is a part of addresses, so it has no slash, and is not a dot or two.
_is_type_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*").fullmatch
# Python reads more than RFC 3339 has: times without an offset, weeks, digits of other scripts.
_is_moment = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
).fullmatch


def new_host(name: str, *, labels: Mapping[str, str], channel: str, address: str) -> NewHost:
    """Check a host as somebody asks for it, and return it as the store takes it."""
    return NewHost(
        host_name("name", name),
        checked_labels("labels", labels),
        checked_channel("channel", channel),
        checked_address("address", address),
    )


def host_name(field: str, value: object) -> str:
    """Return a name that is safe in a command line, a path and an address."""
    checked = inputs.name(field, value)
    if not _is_host_name(checked):
        raise InvalidInput(
            field,
            f"{shown(checked)} is not a host name: begin with a letter or digit, "
            "and use only letters, digits and . _ : -",
        )
    return checked


def checked_channel(field: str, value: object) -> Channel:
    """Return the name of a channel that there is."""
    for known in CHANNELS:
        if value == known:
            return known
    raise InvalidInput(field, f"{shown(value)} is not one of {', '.join(CHANNELS)}")


def checked_address(field: str, value: str) -> str:
    """Return an address, which may be empty; only its channel knows what it means."""
    if len(value) > ADDRESS_MAX:
        raise InvalidInput(field, f"{len(value)} characters are more than {ADDRESS_MAX}")
    # A dash in front would be an option to whoever puts the address into a command line.
    if not value.isprintable() or " " in value or value.startswith("-"):
        raise InvalidInput(
            field, f"{shown(value)} has spaces or invisible characters, or begins with a dash"
        )
    return value


def checked_labels(field: str, value: Mapping[str, str]) -> dict[str, str]:
    """Return labels by which a host can be selected."""
    if len(value) > MAX_LABELS:
        raise InvalidInput(field, f"{len(value)} labels are more than {MAX_LABELS} for a host")
    return {label_key(field, key): _label_value(f"{field}.{key}", value[key]) for key in value}


def label_key(field: str, key: str) -> str:
    """Return the name of a label, as a selector can say it."""
    if len(key) > KEY_MAX or not is_key(key):
        raise InvalidInput(
            field,
            f"{shown(key)} cannot be a label: use letters, digits and _ . - /, "
            f"{KEY_MAX} of them at most",
        )
    if key == NAME:
        raise InvalidInput(
            field, f"a label {NAME!r} would never be seen: selectors mean the host's name by it"
        )
    if key.startswith(RESERVED):
        raise InvalidInput(
            field,
            f"{shown(key)} may hold a secret, and labels are shown: leave it out or rename it",
        )
    return key


def is_label_value(value: str) -> bool:
    """Say whether a text can be the value of a label; it may be empty."""
    return len(value) <= VALUE_MAX and value.isprintable()


def type_name(field: str, value: object) -> str:
    """Return the name of a command type: it stands in addresses as it is."""
    checked = inputs.name(field, value)
    if not _is_type_name(checked):
        raise InvalidInput(
            field,
            f"{shown(checked)} is not the name of a command type: begin with a letter or digit, "
            "and use only letters, digits and . _ -",
        )
    return checked


def expiry(field: str, value: str, *, now: datetime) -> datetime:
    """Return the moment at which a block ends: written as RFC 3339, and not too far ahead."""
    try:
        moment = datetime.fromisoformat(value.upper()) if _is_moment(value) else None
    except ValueError:  # there is no such day, or no such hour
        moment = None
    if moment is None:
        raise InvalidInput(
            field, "is not a time with its offset, such as 2031-05-01T18:00:00+02:00"
        )
    if not now < moment <= now + BLOCK_MAX:
        raise InvalidInput(
            field, f"is not in the future, or is more than {BLOCK_MAX.days:,} days ahead"
        )
    return moment.astimezone(UTC)


def _label_value(field: str, value: str) -> str:
    if not is_label_value(value):
        raise InvalidInput(
            field,
            f"{shown(value)} cannot be the value of a label: "
            f"it takes one line of at most {VALUE_MAX} visible characters",
        )
    return value
