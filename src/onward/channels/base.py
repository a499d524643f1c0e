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

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable


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
    key_generation: int = 0  # which of its keys is the present one; it has none yet at 0


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
    # The arguments that the type fixes, if it does; `program.program_for` makes a program of them.
    argv: Sequence[str] | None = None
    masked: Sequence[str] = ()  # the parameters that nobody is to see but the program on the host


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


@runtime_checkable
class Receipting(Protocol):
    """A channel whose hosts keep what they have reported until they hear that it is on disk."""

    async def receipt(self, delivery: Delivery) -> None:
        """Tell the host that the report of this attempt is on disk. It may get lost."""
        ...


class Letter(NamedTuple):
    """A command on a way on which the answer comes later, by itself."""

    cmd_id: str  # the same with every attempt
    epoch: int
    target: Target
    command_type: str
    params: Mapping[str, object]
    timeout_s: float  # that are left
    # What somebody who runs the same thing once is to know it by, if that is not the id: an
    # attempt that failed, and said so, is not the same thing.
    key: str = ""


class Heard(NamedTuple):
    """What was said about a command: a verb of its lifecycle, and what came along with it."""

    cmd_id: str
    event: str
    epoch: int | None
    data: Mapping[str, object]  # duration_ms, result_code, error_code, error_message, result


# Takes what was heard, and returns once it is on disk.
Listener = Callable[[Sequence[Heard]], Awaitable[None]]


class Wire(Protocol):
    """A way to nodes that answer later: it carries, and what follows from that is not its business.

    `fleet.carry` makes a channel of it, with a row in `commands` for each letter.
    """

    async def send(self, letter: Letter) -> str | None:
        """Hand over a letter; returns once the other side has acknowledged that it has it.

        Returns the name that the other side will call it by, if it gives it one. Raises
        NotDelivered, HostRefused or DeliveryUnknown. The same letter may be sent again.
        """
        ...

    async def cancel(self, letter: Letter) -> bool:
        """Ask the node to stop; true if the word is on its way. Whether it has, it says itself."""
        ...

    async def listen(self, heard: Listener) -> None:
        """Pass on what is heard, over every break of the connection, until this is cancelled."""
        ...
