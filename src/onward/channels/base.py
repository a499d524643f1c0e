"""The seam between the fleet and the ways to its hosts.

A channel hands one attempt to one host and says what came back. It answers in one of three ways:

1. It returns a `Report`: the host has spoken.
2. It raises `NotDelivered`: the host has not got it and will not. Sending again is safe.
3. It raises `DeliveryUnknown`: the host may have run it, or may be running it still.

It never decides what follows from that, and never writes a status. The same `command_id` goes with
every attempt, so that a host with a memory can answer a repeat from its journal; the `epoch` goes
along and grows with every attempt, so that a host can refuse whoever was displaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol


class Stream(StrEnum):
    """Where a line of output came from."""

    STDOUT = "stdout"
    STDERR = "stderr"


# Takes text as it comes: a piece may be part of a line, or several of them with their ends.
Output = Callable[[Stream, str], None]


# Named tuples, not frozen dataclasses: a worker makes thousands of them a second.
class Target(NamedTuple):
    """A host, as far as a channel needs to know it."""

    host_id: int
    name: str
    address: str


class Delivery(NamedTuple):
    """One attempt at one command on one host."""

    command_id: str  # the same with every attempt
    epoch: int  # never the same
    target: Target
    command_type: str
    params: Mapping[str, object]
    timeout_s: float  # how long the host may take; the channel adds what the way takes
    exclusive: bool = True  # false for commands that may share the host
    # Which request it comes from (`request_id`), and the trace that it is part of (`traceparent`).
    trace: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Report:
    """What the host said about an attempt that it has finished."""

    succeeded: bool
    exit_code: int | None = None
    error: str | None = None
    repeated: bool = False  # answered from the host's journal; it did not run again


class Channel(Protocol):
    """A way to hosts. Many calls run at once; a cancelled call gives up waiting, no more."""

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Hand over one attempt, pass its output on as it comes, and return what the host says."""
        ...

    async def cancel(self, delivery: Delivery) -> bool:
        """Ask the host to stop an attempt; true once it confirms that it has stopped."""
        ...
