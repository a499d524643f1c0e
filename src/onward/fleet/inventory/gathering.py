"""Gathers the hosts of one inventory, and everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, NoReturn

from onward.errors import InvalidInput
from onward.store.hosts import NewHost

MAX_HOSTS: Final = 100_000
MAX_STEPS: Final = 4_000_000  # hosts put into groups, and variables handed down to them
MAX_LABEL_CHARACTERS: Final = 32 * 1024 * 1024  # of all labels together, as JSON
MISTAKES_SHOWN: Final = 100
MAX_MISTAKES: Final = 10_000
_AROUND_LABEL: Final = len('"": "", ')


class Mistake(NamedTuple):
    """Something that is wrong with an inventory, and the line where it is to be mended."""

    line: int
    text: str


class Inventory(NamedTuple):
    """What was read: hosts in the order in which they occur, or what is wrong with them."""

    hosts: list[NewHost]  # none, if there is a mistake
    mistakes: list[Mistake]  # the first of them, by line
    more: int  # mistakes that are not listed; reading stops at `MAX_MISTAKES`


class Stopped(Exception):
    """What follows cannot be read; why is among the mistakes."""


class Gathering:
    """What has been read so far."""

    def __init__(self) -> None:
        self._hosts: dict[str, tuple[NewHost, int]] = {}
        self._mistakes: dict[Mistake, None] = {}
        self._more = 0
        self._steps = 0
        self._characters = 0

    @contextmanager
    def at(self, line: int) -> Iterator[None]:
        """Keep what goes wrong within as a mistake in this line, and go on behind it."""
        try:
            yield
        except InvalidInput as error:
            self.refuse(line, str(error))

    def refuse(self, line: int, problem: str) -> None:
        """Keep a mistake, once; whoever makes too many has mistaken the form."""
        mistake = Mistake(line, problem)
        if mistake in self._mistakes:
            return
        if len(self._mistakes) < MISTAKES_SHOWN:
            self._mistakes[mistake] = None
            return
        self._more += 1
        if self._more == MAX_MISTAKES - MISTAKES_SHOWN:
            raise Stopped

    def stop(self, line: int, problem: str) -> NoReturn:
        """Keep a mistake behind which nothing can be read."""
        self.refuse(line, problem)
        raise Stopped

    def spend(self, line: int, steps: int) -> None:
        """Count work that a small text may ask for in large amounts, and stop at too much."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            self.stop(line, "it hands down too much to too many hosts; split the inventory")

    def check_count(self, line: int, hosts: int) -> None:
        """Stop at more hosts than one inventory may have."""
        if hosts > MAX_HOSTS:
            self.stop(
                line, f"more than {MAX_HOSTS:,} hosts are too many for one inventory; split it"
            )

    def add(self, line: int, host: NewHost) -> None:
        """Take a host, unless it contradicts one of its name."""
        if (known := self._hosts.get(host.name)) is not None:
            self._compare(line, host, *known)
            return
        self._hosts[host.name] = (host, line)
        self.check_count(line, len(self._hosts))
        self._characters += sum(
            len(key) + len(value) + _AROUND_LABEL for key, value in host.labels.items()
        )
        if self._characters > MAX_LABEL_CHARACTERS:
            self.stop(
                line,
                f"the labels have more than {MAX_LABEL_CHARACTERS:,} characters together; "
                "split the inventory",
            )

    def inventory(self) -> Inventory:
        """Return what was read: all of the hosts, or none and why."""
        if not self._hosts and not self._mistakes:
            self.refuse(1, "there is no host in it")
        hosts = [] if self._mistakes else [host for host, _ in self._hosts.values()]
        return Inventory(hosts, sorted(self._mistakes), self._more)

    def _compare(self, line: int, host: NewHost, known: NewHost, before: int) -> None:
        other = [
            field
            for field, value, former in zip(NewHost._fields, host, known, strict=True)
            if value != former
        ]
        if other:
            self.refuse(
                line,
                f"{host.name!r} is also in line {before}, with another {' and '.join(other)}; "
                "keep one",
            )
