"""The network between a channel and the simulated hosts: what may go wrong, and whether it does.

1. Chance is a digest of (seed, host, command, epoch, leg, try), never the next number of a
   generator. What happens to a message does not depend on what else is under way, and a run
   replays from its seed.
2. A try is the n-th message of one kind about one attempt. Without it, whoever repeats a lost
   message would lose it for ever.
3. Times are in simulated seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from onward.errors import InvalidInput

_EIGHT = Struct("<8Q")
_CHANCES = frozenset({
    "slow_hosts",
    "flapping_hosts",
    "refused",
    "hang",
    "request_lost",
    "answer_lost",
    "duplicated",
    "crash",
})  # fmt: skip


def draws(*key: object) -> tuple[float, ...]:
    """Eight numbers in [0, 1), always the same for the same key."""
    digest = blake2b(repr(key).encode()).digest()
    return tuple((word >> 11) * 2.0**-53 for word in _EIGHT.unpack(digest))


class Attempt(NamedTuple):
    """What chance is drawn for; `leg` names the message and its try."""

    host_id: int
    command_id: str
    epoch: int
    leg: str


class Passage(NamedTuple):
    """What becomes of a message on its way to the host."""

    latency_s: float
    refused: bool
    arrivals: tuple[float, ...]  # when each copy arrives, after the sending; none: it is lost


class Crash(NamedTuple):
    """A host that goes down in the middle of a run."""

    at: float  # the part of the run that is done by then
    down_s: float


@dataclass(frozen=True, slots=True)
class Road:
    """The way to one host."""

    latency_s: float
    flap_period_s: float = 0.0
    flap_down_s: float = 0.0
    flap_phase_s: float = 0.0

    def open_at(self, now: float) -> bool:
        """Whether the host can be reached, as far as the way to it is concerned."""
        if not self.flap_period_s:
            return True
        return (now + self.flap_phase_s) % self.flap_period_s >= self.flap_down_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How bad it is. Chances are from 0 to 1, and all of them are 0 unless told."""

    seed: int = 0
    latency_s: float = 0.0  # the mean, one way
    slow_hosts: float = 0.0  # the share of hosts that are slow
    slow_factor: float = 10.0
    flapping_hosts: float = 0.0  # the share of hosts that come and go
    flap_period_s: float = 30.0
    flap_down_s: float = 5.0
    refused: float = 0.0  # no connection: the host never hears of it
    hang: float = 0.0  # silence, and the request arrives when nobody waits for it any more
    request_lost: float = 0.0
    answer_lost: float = 0.0
    duplicated: float = 0.0  # a second copy of the request comes later, and may be overtaken
    copy_delay_s: float = 5.0  # the mean
    crash: float = 0.0  # the host goes down in the middle of the run
    restart_s: float = 10.0  # the mean
    patience_s: float = 5.0  # what the channel grants the way, on top of what the host may take

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                raise InvalidInput(field.name, f"{value} is no number from 0 up")
            if field.name in _CHANCES and value > 1:
                raise InvalidInput(field.name, f"{value} is no chance from 0 to 1")

    @classmethod
    def calm(cls, seed: int = 0) -> Self:
        """Nothing goes wrong and nothing takes time."""
        return cls(seed=seed)

    @classmethod
    def bad(cls, seed: int = 0) -> Self:
        """A mobile network on a rainy day: about one delivery in nine needs another attempt."""
        return cls(
            seed=seed,
            latency_s=0.05,
            slow_hosts=0.05,
            flapping_hosts=0.05,
            refused=0.03,
            hang=0.01,
            request_lost=0.03,
            answer_lost=0.03,
            duplicated=0.05,
            crash=0.01,
        )

    @classmethod
    def terrible(cls, seed: int = 0) -> Self:
        """Nearly every second delivery needs another attempt."""
        return cls(
            seed=seed,
            latency_s=0.3,
            slow_hosts=0.2,
            flapping_hosts=0.3,
            flap_period_s=20.0,
            flap_down_s=8.0,
            refused=0.1,
            hang=0.05,
            request_lost=0.1,
            answer_lost=0.15,
            duplicated=0.3,
            crash=0.05,
        )

    @property
    def perfect(self) -> bool:
        """Whether nothing can go wrong and nothing takes time."""
        return not self.latency_s and not any(getattr(self, name) for name in _CHANCES)

    def road(self, host_id: int) -> Road:
        """The way to a host, the same for as long as the seed is."""
        slow, flapping, length, phase, *_ = draws(self.seed, host_id)
        latency_s = self.latency_s * (self.slow_factor if slow < self.slow_hosts else 1.0)
        if flapping >= self.flapping_hosts or not self.flap_period_s:
            return Road(latency_s)
        period_s = self.flap_period_s * (0.5 + length)
        return Road(latency_s, period_s, self.flap_down_s, phase * period_s)

    def outward(self, attempt: Attempt, road: Road, *, wait_s: float) -> Passage:
        """What becomes of a request whose sender waits for `wait_s`."""
        refused, hang, lost, twice, how_slow, how_late, how_long, _ = draws(self.seed, *attempt)
        latency_s = _around(road.latency_s, how_slow)
        arrivals = []
        if lost >= self.request_lost:
            hanging = hang < self.hang
            arrivals.append(wait_s * (1 + how_long) if hanging else latency_s)
        if twice < self.duplicated:
            arrivals.append(latency_s + _around(self.copy_delay_s, how_late))
        return Passage(latency_s, refused < self.refused, tuple(arrivals))

    def homeward(self, attempt: Attempt, road: Road, *, copy: int) -> float | None:
        """How long the answer to one copy of the request takes; none if it is lost."""
        lost, how_slow, *_ = draws(self.seed, *attempt, "answer", copy)
        return None if lost < self.answer_lost else _around(road.latency_s, how_slow)

    def crash_in(self, attempt: Attempt) -> Crash | None:
        """Whether the host goes down when it runs this attempt, and how."""
        if not self.crash:
            return None
        crash, at, how_long, *_ = draws(self.seed, *attempt, "crash")
        return Crash(at, self.restart_s * (0.5 + how_long)) if crash < self.crash else None


# The networks that have a name, each to be made with a seed.
NETWORKS: Final[Mapping[str, Callable[[int], Network]]] = MappingProxyType(
    {
        "perfect": lambda seed: Network(seed=seed),
        "calm": Network.calm,
        "bad": Network.bad,
        "terrible": Network.terrible,
    }
)


def _around(mean: float, chance: float) -> float:
    """A time that is mostly short and sometimes long."""
    return -math.log(1.0 - chance) * mean if mean else 0.0
