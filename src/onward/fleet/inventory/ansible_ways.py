"""What Ansible's variables say of the way to a host: its address in the words of the channel."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.hosts import Channel, checked_address
from onward.fleet.inventory import ssh_addresses
from onward.fleet.inventory.ranges import is_ipv6
from onward.fleet.inventory.ssh_addresses import Hop

HOST: Final = "ansible_host"
PORT: Final = "ansible_port"
USER: Final = "ansible_user"
ARGUMENTS: Final = "ansible_ssh_common_args"
FORMER: Final = {"ansible_ssh_host": HOST, "ansible_ssh_port": PORT, "ansible_ssh_user": USER}
WAYS: Final = frozenset({HOST, PORT, USER, ARGUMENTS})

_OPTION = re.compile(r"(\w+)(?:\s*=\s*|\s+)(.*)", re.DOTALL).fullmatch


class Variable(NamedTuple):
    """A value as it is written, or `None` for what is not a single text; and its line."""

    text: str | None
    line: int


def address(name: str, variables: Mapping[str, Variable], *, channel: Channel) -> str:
    """Return where the channel finds a host; nothing, if only the name says so and it is no SSH."""
    host = written(HOST, variables.get(HOST)) or ""
    checked_address(HOST, host)
    port = variables.get(PORT)
    found = None if port is None else number(PORT, port, maximum=ssh_addresses.PORT_MAX)
    if channel == "ssh":
        return _over_ssh(host or name, found, variables)
    if found is None:
        return host
    place = host or name
    return f"[{place}]:{found}" if is_ipv6(place) else f"{place}:{found}"


def written(key: str, variable: Variable | None) -> str | None:
    """Return what a variable says; only plain text says something."""
    if variable is None:
        return None
    if variable.text is None:
        raise InvalidInput(
            key, f"the value in line {variable.line} is not plain text; write the address itself"
        )
    return variable.text


def number(key: str, variable: Variable, *, maximum: int) -> int:
    """Return the number that a variable is."""
    text = variable.text or ""
    if not re.fullmatch(r"[0-9]{1,7}", text) or not 1 <= int(text) <= maximum:
        raise InvalidInput(
            key, f"the value in line {variable.line} is not a number up to {maximum}"
        )
    return int(text)


def _over_ssh(host: str, port: int | None, variables: Mapping[str, Variable]) -> str:
    user = written(USER, variables.get(USER))
    end = Hop(
        ssh_addresses.host(HOST, host),
        ssh_addresses.login(USER, user) if user else None,
        port,
    )
    jumps = _jumps(written(ARGUMENTS, variables.get(ARGUMENTS)) or "")
    return ssh_addresses.address(end, jumps=jumps)


def _jumps(text: str) -> list[Hop]:
    """The machines on the way, in arguments that are meant for the program `ssh`."""
    for keyword, value in _options(text):
        if keyword == "proxyjump":
            return ssh_addresses.jumps_of(ARGUMENTS, value)
        if keyword == "proxycommand":
            return ssh_addresses.forwarded(ARGUMENTS, value)
    return []


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Each option of `ssh`, and what it says; of the flags, `-J` is one by another name."""
    try:
        words = iter(shlex.split(text))
    except ValueError:
        raise InvalidInput(ARGUMENTS, "a quote is not closed; close it") from None
    for word in words:
        flag, value = word[:2], word[2:]
        if flag in {"-o", "-J"}:
            value = value or next(words, "")
        if flag == "-J":
            yield "proxyjump", value
        elif flag == "-o" and (found := _OPTION(value.strip())):
            yield found[1].lower(), found[2]
