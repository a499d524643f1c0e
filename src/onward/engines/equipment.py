"""What an engine works with, made from the settings: its pace, and the hosts that are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onward.channels.base import Channel
from onward.channels.simulated import (
    NETWORKS,
    Journal,
    RemoteSimulatedChannel,
    SimulatedChannel,
    SimulatedFleet,
)
from onward.core.retry import Backoff
from onward.engines.pace import Pace
from onward.errors import InvalidInput
from onward.settings import Settings

# Every host that the table can hold is there; each is made when it is first spoken to.
_ANY_HOST: Final = range(1, 2**63)
_BREATHS: Final = 4  # in the time after which a worker is taken for dead


@dataclass(frozen=True, slots=True)
class Simulated:
    """Where the hosts of the channel `simulated` are, and over what kind of network."""

    network: str = "calm"
    seed: int = 0
    fleet: Path | None = (
        None  # the socket of hosts in a process of their own, with their own network
    )


def pace(settings: Settings) -> Pace:
    """Return the pace that the settings ask for."""
    if settings.base_backoff_s > settings.max_backoff_s:
        raise InvalidInput(
            "ONWARD_BASE_BACKOFF_S",
            f"{settings.base_backoff_s:g} is more than ONWARD_MAX_BACKOFF_S, "
            f"{settings.max_backoff_s:g}",
        )
    return Pace(
        capacity=settings.worker_capacity,
        beat_s=min(Pace().beat_s, settings.worker_lost_after_s / _BREATHS),
        lost_after_s=settings.worker_lost_after_s,
        drain_s=settings.drain_s,
        backoff=Backoff(
            base_s=settings.base_backoff_s,
            max_s=settings.max_backoff_s,
            jitter=settings.backoff_jitter,
        ),
    )


@asynccontextmanager
async def simulated_hosts(simulated: Simulated) -> AsyncIterator[Channel]:
    """Give the way to simulated hosts, in this process or in one of their own."""
    if simulated.fleet is not None:
        async with RemoteSimulatedChannel(simulated.fleet) as remote:
            yield remote
        return
    fleet = SimulatedFleet(_ANY_HOST, journal=_Unwritten(), command_types=None)
    channel = SimulatedChannel(fleet, NETWORKS[simulated.network](simulated.seed))
    try:
        yield channel
    finally:
        await channel.aclose()
        await fleet.aclose()


class _Unwritten(Journal):
    """Keeps nothing: hosts that end with their process have nobody to bear witness to."""

    def write(self, *_: object, **__: object) -> None:
        """Forget it."""
