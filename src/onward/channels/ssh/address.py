"""Where a host is to be found over SSH, as its address says it.

    [user@]host[:port][?jump=[user@]host[:port]&key=NAME]

An IPv6 address with a port stands in brackets. `jump` may stand several times, the nearest first.
`key` names a file in the directory of keys, where not all of them are to be tried.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from onward.errors import InvalidInput

PORT: Final = 22
_LENGTH_MAX: Final = 2_000
_JUMPS_MAX: Final = 8

_is_name = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})").fullmatch
_is_user = re.compile(r"[^\s@:/?&=#\x00-\x1f\x7f-]{1}[^\s@:/?&=#\x00-\x1f\x7f]{0,254}").fullmatch
_is_key = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,254}").fullmatch
_PARTS = re.compile(
    r"(?:(?P<user>[^@]*)@)?(?:\[(?P<six>[^\]]*)\]|(?P<host>[^@:]*))(?::(?P<port>.*))?"
)


class Hop(NamedTuple):
    """A machine on the way, or at its end."""

    host: str
    port: int = PORT
    user: str | None = None  # none: whoever the settings say

    @property
    def known_as(self) -> str:
        """The name under which `known_hosts` has its key."""
        return self.host if self.port == PORT else f"[{self.host}]:{self.port}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORT else f":{self.port}"
        return f"{self.user}@{host}{port}" if self.user else f"{host}{port}"


class Address(NamedTuple):
    """A host, the machines in front of it, and the one key to be tried if it is to be one."""

    target: Hop
    jumps: tuple[Hop, ...] = ()  # the nearest first
    key: str | None = None

    @property
    def before(self) -> Address | None:
        """The last machine in front of the host, with what is in front of that one.

        The key is meant for the host; many hosts share the way to them.
        """
        return Address(self.jumps[-1], self.jumps[:-1]) if self.jumps else None

    def __str__(self) -> str:
        asked = [f"jump={jump}" for jump in self.jumps]
        asked += [f"key={self.key}"] if self.key else []
        return f"{self.target}?{'&'.join(asked)}" if asked else str(self.target)


def parse(text: str) -> Address:
    """Read an address; `InvalidInput` says what is wrong with it."""
    if len(text) > _LENGTH_MAX:
        raise InvalidInput("address", f"is longer than {_LENGTH_MAX} characters")
    place, _, query = text.partition("?")
    jumps: list[Hop] = []
    key = None
    for name, value in _asked(query):
        if name == "jump":
            jumps.append(_hop(value))
        elif name == "key" and key is None:
            key = _key(value)
        else:
            raise InvalidInput("address", f"{name!a:.80} is no jump and no (second) key")
    if len(jumps) > _JUMPS_MAX:
        raise InvalidInput("address", f"has more than {_JUMPS_MAX} jumps")
    return Address(_hop(place), tuple(jumps), key)


def _asked(query: str) -> Iterator[tuple[str, str]]:
    for each in filter(None, query.split("&")):
        name, _, value = each.partition("=")
        yield name, value


def _key(name: str) -> str:
    if not _is_key(name):
        raise InvalidInput(
            "address", f"{name!a:.80} is no key: give the name of a file in the directory of keys"
        )
    return name


def _hop(text: str) -> Hop:
    parts = _PARTS.fullmatch(text)
    bare = _six(text.rpartition("@")[2])
    if bare is not None:  # without brackets, and therefore without a port
        user = text.rpartition("@")[0] if "@" in text else None
        return Hop(bare, PORT, _user(user))
    if parts is None:
        raise InvalidInput(
            "address", f"{text!a:.80} is none: write user@host:port, and IPv6 in brackets"
        )
    host = _host(parts["host"]) if parts["six"] is None else _six(parts["six"])
    if host is None:
        raise InvalidInput("address", f"{parts['six']!a:.80} in brackets is no IPv6 address")
    return Hop(host, _port(parts["port"]), _user(parts["user"]))


def _six(text: str) -> str | None:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        return None


def _host(text: str) -> str:
    if not _is_name(text):
        raise InvalidInput(
            "address", f"{text!a:.80} is no name of a host: it takes letters, digits, . _ and -"
        )
    return text.lower()


def _port(text: str | None) -> int:
    if text is None:
        return PORT
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65_535):  # noqa: PLR2004 - the ports there are
        raise InvalidInput("address", f"{text!a:.80} is no port: it takes 1 to 65535")
    return int(text)


def _user(text: str | None) -> str | None:
    if text is not None and not _is_user(text):
        raise InvalidInput("address", f"{text!a:.80} cannot be the name of a user")
    return text
