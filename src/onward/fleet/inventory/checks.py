"""What a host may be called, labelled and reached by; and how many of them an inventory may have.

Each check returns the value, or raises `InvalidInput` that says what to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from onward.core.selectors.conditions import NAME, is_key
from onward.errors import InvalidInput
from onward.store import inputs
from onward.store.inputs import shown

MAX_HOSTS: Final = 100_000
MAX_LABELS: Final = 256  # of one host
MAX_ALL_LABELS: Final = 2_000_000
KEY_MAX: Final = 255
VALUE_MAX: Final = 255
ADDRESS_MAX: Final = 1_024
CHANNELS: Final = ("simulated", "ssh", "mqtt", "platform", "agent")
# Variables of Ansible's own may hold passwords, and labels are shown to everybody who sees hosts.
RESERVED: Final = "ansible_"

_is_host_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*").fullmatch


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


def channel(field: str, value: object) -> str:
    """Return the name of a channel that there is."""
    if not isinstance(value, str) or value not in CHANNELS:
        raise InvalidInput(field, f"{shown(value)} is not one of {', '.join(CHANNELS)}")
    return value


def address(field: str, value: object) -> str:
    """Return an address, which may be empty; only its channel knows what it means."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"expected text, not {shown(value)}")
    if len(value) > ADDRESS_MAX:
        raise InvalidInput(field, f"{len(value)} characters are more than {ADDRESS_MAX}")
    # A dash in front would be an option to whoever puts the address into a command line.
    if not value.isprintable() or " " in value or value.startswith("-"):
        raise InvalidInput(
            field, f"{shown(value)} has spaces or invisible characters, or begins with a dash"
        )
    return value


def labels(field: str, value: Mapping[str, str]) -> dict[str, str]:
    """Return labels by which a host can be selected."""
    if len(value) > MAX_LABELS:
        raise InvalidInput(field, f"{len(value)} labels are more than {MAX_LABELS} for a host")
    return {label_key(field, key): label_value(f"{field}.{key}", value[key]) for key in value}


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


def label_value(field: str, value: str) -> str:
    """Return the value of a label; it may be empty."""
    if not is_label_value(value):
        raise InvalidInput(
            field,
            f"{shown(value)} cannot be the value of a label: "
            f"it takes one line of at most {VALUE_MAX} visible characters",
        )
    return value


def is_label_value(value: str) -> bool:
    """Whether a text can be the value of a label."""
    return len(value) <= VALUE_MAX and value.isprintable()


def quantity(count: int, noun: str) -> str:
    """Say how many there are, as in `1 host` or `20 hosts`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
