"""Gathers the hosts of one inventory, and everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from onward.errors import InvalidInput
from onward.fleet.inventory.checks import MAX_ALL_LABELS, MAX_HOSTS
from onward.store.hosts import NewHost

_SHOWN: Final = 20  # problems


class Gathering:
    """What has been read so far; a place is where in the inventory, such as `line 7`."""

    def __init__(self) -> None:
        self._hosts: dict[str, tuple[NewHost, str]] = {}
        self._labels = 0
        self._problems: dict[tuple[str, str], None] = {}
        self._more = 0
        self._full = False

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Keep what goes wrong within as a problem of this place, and go on behind it."""
        try:
            yield
        except InvalidInput as error:
            self.refuse(place, str(error))

    def refuse(self, place: str, problem: str) -> None:
        """Keep a problem, once."""
        if (place, problem) in self._problems:
            return
        if len(self._problems) < _SHOWN:
            self._problems[place, problem] = None
        else:
            self._more += 1

    def add(self, place: str, host: NewHost) -> None:
        """Take a host, unless it contradicts one of its name."""
        if (known := self._hosts.get(host.name)) is not None:
            self._compare(place, host, *known)
            return
        self._labels += len(host.labels)
        if self.has_room(place, 1):
            self._hosts[host.name] = (host, place)

    def has_room(self, place: str, count: int, *, taken: int = 0) -> bool:
        """Whether so many more hosts may be read; the first that may not is a problem."""
        if len(self._hosts) + taken + count > MAX_HOSTS:
            self._overflow(place, f"more than {MAX_HOSTS:,} hosts")
        elif self._labels > MAX_ALL_LABELS:
            self._overflow(place, f"more than {MAX_ALL_LABELS:,} labels on all hosts together")
        else:
            return True
        return False

    def hosts(self) -> list[NewHost]:
        """Return the hosts, or raise one error that lists the problems, a line each."""
        if not self._problems:
            return [host for host, _ in self._hosts.values()]
        (place, first), *others = self._problems
        lines = [first, *(f"{other}: {problem}" for other, problem in others)]
        if self._more:
            lines.append(f"and {self._more:,} more")
        raise InvalidInput(place, "\n".join(lines))

    def _compare(self, place: str, host: NewHost, known: NewHost, before: str) -> None:
        other = [
            field
            for field, value, former in zip(NewHost._fields, host, known, strict=True)
            if value != former
        ]
        if other:
            self.refuse(
                place,
                f"{host.name!r} is also in {before}, with another {' and '.join(other)}; keep one",
            )

    def _overflow(self, place: str, what: str) -> None:
        if not self._full:
            self.refuse(place, f"{what} are too many for one inventory; split it")
        self._full = True
