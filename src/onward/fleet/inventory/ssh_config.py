"""OpenSSH's own configuration: every host that a `Host` line names, and how it is reached.

    Host web1 web2
        HostName %h.example.com
    Host *.example.com web*
        User deploy
        ProxyJump bastion

1. A name without wildcards behind `Host` is a host, of the channel ssh. Blocks with wildcards give
   it what they would give it in `ssh`, and make no hosts.
2. As in `ssh`, the first value that applies to a host is the one that counts, and what stands
   before the first `Host` is for all.
3. `HostName`, `User`, `Port`, `ProxyJump` and `IdentityFile` become its address. A machine on the
   way is looked up in the same file, as `ssh` does it. Of a key, the name of its file is kept. If
   the first block that names keys names several, none is kept, and all that the service has are
   tried.
4. What cannot be followed is refused instead of being guessed: `Match`, a `ProxyCommand` that is
   more than `ssh -W`, and `Include`, since no file is opened here: `onward hosts import` puts them
   in. Everything else, such as `ForwardAgent`, means nothing to the service and is passed over.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.hosts import Channel, host_name, new_host
from onward.fleet.inventory import ssh_addresses
from onward.fleet.inventory.gathering import Gathering
from onward.fleet.inventory.ssh_addresses import Hop
from onward.store.inputs import shown

_OPTION = re.compile(r"([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*)", re.DOTALL).fullmatch
_WORD = re.compile(r"[A-Za-z0-9]+").fullmatch
_KEY: Final = "identityfile"
_USED: Final = frozenset({"hostname", "user", "port", "proxyjump", "proxycommand", _KEY})
_WAY: Final = ("proxyjump", "proxycommand")  # of the two, the one that comes first counts
_NONE: Final = "none"
_WILD: Final = "*?!"
_PATTERN_MAX: Final = 255
_LINE_MAX: Final = 8_192
_SHELL: Final = "\"'\\#"  # what a shell would see something in
_JUMPS_MAX: Final = 8
_TOKEN = re.compile(r"%(.?)")


class _Said(NamedTuple):
    line: int
    value: str


@dataclass(slots=True)
class _Block:
    """What is said for the hosts of some patterns."""

    fits: Callable[[str], bool]
    weight: int  # how much work it is to ask
    said: list[tuple[str, _Said]] = field(default_factory=list)


@dataclass(slots=True)
class _Config:
    everybodys: list[tuple[int, _Block]] = field(default_factory=list)  # with wildcards; by place
    by_name: dict[str, list[tuple[int, _Block]]] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)  # the hosts, each with its line


class _Found(NamedTuple):
    """What applies to one host."""

    first: dict[str, _Said]
    keys: list[_Said]  # of the first block that names any


def read(text: str, gathering: Gathering, channel: Channel) -> None:  # noqa: ARG001 - always ssh
    """Gather the hosts of a configuration."""
    config = _parsed(text, gathering)
    for name, line in config.named.items():
        with gathering.at(line):
            reader = _Reader(config, gathering, line)
            host = new_host(name, labels={}, channel="ssh", address=reader.address(name))
            gathering.add(line, host)


def words(line: str) -> tuple[str, str] | None:
    """The keyword of a line, in small letters, and what stands behind it; `None` for a comment."""
    stripped = line.strip()
    if not stripped or stripped.startswith("#"):
        return None
    if len(stripped) > _LINE_MAX:
        raise InvalidInput("line", f"{len(stripped)} characters are more than {_LINE_MAX}")
    found = _OPTION(stripped)
    if found:
        return found[1].lower(), found[2].strip()
    if not _WORD(stripped):
        raise InvalidInput("line", f"{shown(stripped)} is no option; is it a configuration of ssh?")
    return stripped.lower(), ""


def arguments(keyword: str, text: str) -> list[str]:
    """What stands behind a keyword, one by one and without quotes."""
    # Reading it as a shell does is slow, and most lines have nothing that a shell would see.
    try:
        shell = any(sign in text for sign in _SHELL)
        found = shlex.split(text, comments=True) if shell else text.split()
    except ValueError:
        raise InvalidInput(keyword, "a quote is not closed; close it") from None
    if not found:
        raise InvalidInput(keyword, "says nothing; give it a value, or remove the line")
    return found


def _parsed(text: str, gathering: Gathering) -> _Config:
    config = _Config()
    block = _Block(lambda _: True, 1)
    config.everybodys.append((0, block))
    for number, line in enumerate(text.split("\n"), start=1):
        with gathering.at(number):
            option = words(line)
            if option is None:
                continue
            keyword, rest = option
            if keyword == "host":
                # Whatever is wrong with the patterns, what follows is not for all hosts.
                block = _Block(lambda _: False, 1)
                block = _opened(number, arguments(keyword, rest), config=config, into=gathering)
            elif keyword == "match":
                block = _Block(lambda _: False, 1)
                raise InvalidInput(
                    "Match", "its conditions are not followed; write the hosts behind Host instead"
                )
            else:
                _take(number, keyword, rest, block)
    return config


def _take(number: int, keyword: str, rest: str, block: _Block) -> None:
    if keyword == "include":
        raise InvalidInput(
            "Include", "the service opens no files; use `onward hosts import`, which puts them in"
        )
    if keyword in _USED:
        value = rest if keyword == "proxycommand" else arguments(keyword, rest)[0]
        block.said.append((keyword, _Said(number, value)))


def _opened(number: int, patterns: Sequence[str], *, config: _Config, into: Gathering) -> _Block:
    plain = [each for each in patterns if not any(sign in each for sign in _WILD)]
    block = _block(patterns)
    if len(plain) < len(patterns):
        config.everybodys.append((number, block))
    else:
        for name in plain:
            config.by_name.setdefault(name, []).append((number, block))
    for name in plain:
        if name not in config.named:
            config.named[host_name("Host", name)] = number
    into.check_count(number, len(config.named))
    return block


def _block(patterns: Sequence[str]) -> _Block:
    for each in patterns:
        if len(each) > _PATTERN_MAX:
            raise InvalidInput("Host", f"{shown(each)} has more than {_PATTERN_MAX} characters")
    wanted = [_pattern(each) for each in patterns if not each.startswith("!")]
    barred = [_pattern(each[1:]) for each in patterns if each.startswith("!")]

    def fits(name: str) -> bool:
        return any(each(name) for each in wanted) and not any(each(name) for each in barred)

    return _Block(fits, sum(1 + len(each) // 8 for each in patterns))


def _pattern(text: str) -> Callable[[str], object]:
    # In OpenSSH, only * and ? are wildcards.
    return re.compile(fnmatch.translate(text.replace("[", "[[]"))).match


class _Reader:
    """Looks up what applies to a host, and to the machines on the way to it."""

    def __init__(self, config: _Config, gathering: Gathering, line: int) -> None:
        self._config = config
        self._gathering = gathering
        self._line = line

    def address(self, name: str) -> str:
        found = self._found(name)
        jumps = self._way(found, through=(name,))
        return ssh_addresses.address(_end(name, found), jumps=jumps, key=_key(found.keys))

    def _found(self, name: str) -> _Found:
        """The values for a host, in the order of the file."""
        found = _Found({}, [])
        for block in self._blocks(name):
            if not found.keys:
                found.keys.extend(said for keyword, said in block.said if keyword == _KEY)
            for keyword, said in block.said:
                _keep(found.first, keyword, said)
        return found

    def _blocks(self, name: str) -> Iterator[_Block]:
        config = self._config
        own = config.by_name.get(name, [])
        self._gathering.spend(self._line, sum(each.weight for _, each in config.everybodys))
        fitting = [(at, each) for at, each in config.everybodys if each.fits(name)]
        for _, block in sorted([*fitting, *own], key=lambda placed: placed[0]):
            self._gathering.spend(self._line, 1 + len(block.said))
            yield block

    def _way(self, found: _Found, *, through: tuple[str, ...]) -> list[Hop]:
        """The machines on the way to a host, and on the way to those."""
        jumps: list[Hop] = []
        for named in _named_jumps(found):
            if named.host in through:
                raise InvalidInput(
                    "ProxyJump", f"the way to {shown(through[0])} leads in a circle; break it"
                )
            if len(jumps) + len(through) > _JUMPS_MAX:
                raise InvalidInput("ProxyJump", f"more than {_JUMPS_MAX} machines are on the way")
            of_it = self._found(named.host)
            # A machine that is named without one before it is reached by a way of its own.
            if not jumps:
                jumps += self._way(of_it, through=(*through, named.host))
            end = _end(named.host, of_it)
            jumps.append(Hop(end.host, named.user or end.user, named.port or end.port))
        return jumps


def _keep(first: dict[str, _Said], keyword: str, said: _Said) -> None:
    # Of a ProxyJump and a ProxyCommand, the one that comes first hides the other.
    if keyword not in _WAY or not any(each in first for each in _WAY):
        first.setdefault(keyword, said)


def _named_jumps(found: _Found) -> list[Hop]:
    if (jump := found.first.get("proxyjump")) is not None:
        return ssh_addresses.jumps_of(f"ProxyJump in line {jump.line}", jump.value)
    if (command := found.first.get("proxycommand")) is not None:
        return ssh_addresses.forwarded(f"ProxyCommand in line {command.line}", command.value)
    return []


def _end(name: str, found: _Found) -> Hop:
    host, user, port = (found.first.get(each) for each in ("hostname", "user", "port"))
    return Hop(
        ssh_addresses.host("Host", name) if host is None else _host(name, host),
        None if user is None else ssh_addresses.login(f"User in line {user.line}", user.value),
        None if port is None else ssh_addresses.number(f"Port in line {port.line}", port.value),
    )


def _host(name: str, said: _Said) -> str:
    where = f"HostName in line {said.line}"

    def token(found: re.Match[str]) -> str:
        if found[1] not in {"h", "%"}:
            raise InvalidInput(where, f"{shown(found[0])} is not followed; write %h, or the name")
        return name if found[1] == "h" else "%"

    return ssh_addresses.host(where, _TOKEN.sub(token, said.value))


def _key(keys: Sequence[_Said]) -> str | None:
    named = {
        ssh_addresses.key_name(f"IdentityFile in line {said.line}", said.value)
        for said in keys
        if said.value.lower() != _NONE
    }
    return named.pop() if len(named) == 1 else None
