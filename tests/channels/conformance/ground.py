"""What the conformance suite stands on: one channel, one host behind it, and what that host did.

The host itself writes down what it does, so that the suite believes no channel.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from onward.channels.base import Channel, Delivery, Stream

PROBE = Path(__file__).with_name("probe.py")
_ARGUMENT_MAX = 100_000  # bytes; Linux takes 128 KiB


@dataclass(frozen=True, slots=True)
class Does:
    """What the host is to do with a command."""

    exit_code: int = 0
    prints: bytes = b""
    sleep_s: float = 0.0  # between the beginning and the end
    echoes: tuple[str, ...] = ()  # arguments, which the host writes down byte by byte
    refused: bool = False  # the host, or the way to it, will not have it
    answers: int = 1  # how often a node tells its result; only where it tells by itself

    def told(self) -> dict[str, Any]:
        """The same for a node that is told in JSON."""
        return {
            "exit_code": self.exit_code,
            "prints": base64.b64encode(self.prints).decode(),
            "sleep_s": self.sleep_s,
            "echoes": list(self.echoes),
            "answers": self.answers,
        }


@dataclass(frozen=True, slots=True)
class Nature:
    """What can be expected of a kind of channel and its hosts."""

    remembers: bool = False  # a host answers a repeat from memory
    recovers: bool = False  # an answer finds its way after the way was cut
    cancels: bool = True
    limits: bool = True  # a host ends by itself what takes longer than it may
    talks: bool = True  # what a program prints comes back
    whole_output_max: int = 4 * 1024 * 1024  # bytes of output that come back whole


class Ground(Protocol):
    """One channel and one host behind it."""

    channel: Channel
    nature: Nature

    def delivery(
        self,
        does: Does,
        *,
        command_id: str | None = None,  # none: a new one
        epoch: int | None = None,  # none: higher than any before
        timeout_s: float = 20.0,
        exclusive: bool = True,
    ) -> Delivery:
        """A delivery of a command for which the host does this."""
        ...

    def effects(self) -> list[str]:
        """What the host wrote down: `started ID/EPOCH`, `echoed HEX,HEX`, `finished ID/EPOCH`."""
        ...

    async def away(self) -> None:
        """Have nobody there: what is sent from now on arrives nowhere."""
        ...

    async def back(self) -> None:
        """Have somebody there again, and wait until that is known."""
        ...

    async def cut(self) -> None:
        """Break the way while something is under way; the host runs on, and may come back."""
        ...


class Effects:
    """The file in which a host writes down what it does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def argv(self, does: Does, delivery_id: str) -> list[str]:
        """The arguments with which the probe does this and writes it down here."""
        told = json.dumps(does.told() | {"effects": str(self.path), "id": delivery_id})
        if len(told) > _ARGUMENT_MAX:
            file = self.path.with_name("told.json")
            file.write_text(told)
            told = json.dumps({"file": str(file)})
        return [sys.executable, "-S", "-E", str(PROBE), told, *does.echoes]


@dataclass(slots=True)
class Ear:
    """Hears what a program prints."""

    heard: dict[Stream, str] = field(default_factory=dict)

    def __call__(self, stream: Stream, text: str) -> None:
        self.heard[stream] = self.heard.get(stream, "") + text

    @property
    def stdout(self) -> str:
        return self.heard.get(Stream.STDOUT, "")


def named(delivery: Delivery) -> str:
    """How a host calls an attempt."""
    return f"{delivery.command_id}/{delivery.epoch}"


def counted(effects: list[str]) -> Mapping[str, int]:
    """How often each attempt was started."""
    starts = [line.removeprefix("started ") for line in effects if line.startswith("started ")]
    return {each: starts.count(each) for each in starts}


async def until(happened: Callable[[], object], *, within_s: float = 20.0) -> None:
    """Wait until something is so, for a bounded time."""
    async with asyncio.timeout(within_s):
        while not happened():  # noqa: ASYNC110 - what happens is on another side of a process
            await asyncio.sleep(0.01)
