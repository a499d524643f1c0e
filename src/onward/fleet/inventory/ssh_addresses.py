"""Writes the addresses of hosts that are reached over SSH, out of what other programs say of them.

    [user@]host[:port][?jump=[user@]host[:port]&key=NAME]

`jump` may be there several times, the first one first, and an IPv6 address stands in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.inventory.ranges import is_ipv6
from onward.store.inputs import shown

PORT_MAX: Final = 65_535

_HOP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]*)@)?(?:\[(?P<inside>[^\[\]]*)\]|(?P<host>[^:\[\]/]*))"
    r"(?::(?P<port>[0-9]*))?/?"
).fullmatch
# How a machine on the way was named before there was `ProxyJump`.
_FORWARDED = re.compile(
    r"(?:\S*/)?ssh(?:\s+-q)?\s+-W\s+\[?%h\]?:%p(?:\s+-q)?(?:\s+-p\s+(?P<port>[0-9]+))?"
    r"\s+(?P<hop>[^\s-]\S*)"
).fullmatch
_is_user = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+$\\-]*").fullmatch
_is_host = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*").fullmatch
_is_key = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]*").fullmatch


class Hop(NamedTuple):
    """A machine to log in to, on the way or at its end."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        user = "" if self.user is None else f"{self.user}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user}{host}" if self.port is None else f"{user}{host}:{self.port}"


def address(end: Hop, *, jumps: Sequence[Hop] = (), key: str | None = None) -> str:
    """Write an address; its parts have been checked."""
    more = [f"jump={jump}" for jump in jumps]
    if key is not None:
        more.append(f"key={key}")
    return f"{end}?{'&'.join(more)}" if more else str(end)


def jumps_of(field: str, text: str) -> list[Hop]:
    """Read machines on the way, as `ProxyJump` lists them; there are none in `none`."""
    return [] if text.lower() == "none" else [_hop(field, each) for each in text.split(",")]


def forwarded(field: str, command: str) -> list[Hop]:
    """Read the machine on the way out of a `ProxyCommand`; there is none in `none`."""
    if command.lower() == "none":
        return []
    found = _FORWARDED(command.strip())
    if not found:
        raise InvalidInput(
            field, "only `ssh -W %h:%p HOST` is followed as a ProxyCommand; write a ProxyJump"
        )
    (hop,) = jumps_of(field, found["hop"])
    return [hop if found["port"] is None else hop._replace(port=number(field, found["port"]))]


def _hop(field: str, text: str) -> Hop:
    found = _HOP(text.strip())
    if not found:
        raise InvalidInput(field, f"{shown(text)} is not [user@]host[:port]")
    inside, user, port = found["inside"], found["user"], found["port"]
    return Hop(
        host(field, found["host"] if inside is None else inside),
        None if user is None else login(field, user),
        None if port is None else number(field, port),
    )


def host(field: str, text: str) -> str:
    """Return a name or an address of a machine."""
    if not _is_host(text) and not is_ipv6(text):
        raise InvalidInput(field, f"{shown(text)} is neither the name of a machine nor its address")
    return text


def login(field: str, text: str) -> str:
    """Return the name of somebody to log in as."""
    if not _is_user(text):
        raise InvalidInput(field, f"{shown(text)} cannot be the name of a user")
    return text


def number(field: str, text: str) -> int:
    """Return a port."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= PORT_MAX:
        raise InvalidInput(field, f"{shown(text)} is not a number up to {PORT_MAX}")
    return int(text)


def key_name(field: str, path: str) -> str:
    """Return the name of a key's file, without the folders: the service has a folder of its own."""
    name = path.rpartition("/")[2]
    if not _is_key(name):
        raise InvalidInput(field, f"{shown(path)} is not a file whose name an address can hold")
    return name
