"""What is played: the hosts, the command types, the jobs, and where something is forbidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

SPEED: Final = 5  # simulated seconds in a second
WORKERS: Final = 2  # besides the service, which works as well
APPROVE_AT: Final = 0.25  # of what the first two jobs have to do; by then a worker may well
KILL_AT: Final = 0.40  # be in the middle of something, and is killed there
BLOCKS: Final = 7
LOST_AFTER_S: Final = 2.0  # without a breath, a worker is taken for dead
MOST_HOSTS: Final = 10_000

_TIMEOUT_S: Final = 8.0
_ROLES: Final = ("web", "web", "web", "db", "cache")
_ZONES: Final = ("eu", "us", "ap")


@dataclass(frozen=True, slots=True)
class Demo:
    """The figures of a demo."""

    hosts: int
    seed: int
    data_dir: Path | None = None  # kept; without one, everything is thrown away in the end
    plant: str | None = None  # a promise to be broken on purpose

    @property
    def capacity(self) -> int:
        """How much one worker runs at once: so little that there is a middle to be killed in."""
        return max(3, self.hosts * 6 // 100)


class Kind(NamedTuple):
    """A command type, made for the demo: exclusive on its host, and short of patience."""

    name: str
    needs_approval: bool
    max_retries: int

    def as_json(self) -> dict[str, object]:
        """Return it as the API takes it."""
        return {
            "needs_approval": self.needs_approval,
            "read_only": False,
            "timeout_s": _TIMEOUT_S,
            "max_retries": self.max_retries,
        }


class Errand(NamedTuple):
    """A job that somebody asks for."""

    name: str
    kind: Kind
    params: Mapping[str, object]


UPGRADE: Final = Errand(
    "upgrade", Kind("UPGRADE", needs_approval=True, max_retries=8), {"sleep_s": 4.0, "lines": 3}
)
# Two that compete: each wants every host for itself. One of them gives up early, so that there is
# something to be seen that went wrong.
DISKS: Final = Errand(
    "check-disks", Kind("CHECK_DISKS", needs_approval=False, max_retries=1), {"sleep_s": 3.0}
)
LOGS: Final = Errand(
    "rotate-logs",
    Kind("ROTATE_LOGS", needs_approval=False, max_retries=8),
    {"sleep_s": 3.0, "lines": 1},
)
ERRANDS: Final = (UPGRADE, DISKS, LOGS)


def inventory(demo: Demo) -> list[dict[str, object]]:
    """Return the hosts as an inventory in JSON has them."""
    return [
        {
            "name": f"{_ROLES[number % len(_ROLES)]}-{number + 1:04}",
            "labels": {
                "role": _ROLES[number % len(_ROLES)],
                "zone": _ZONES[number % len(_ZONES)],
            },
        }
        for number in range(demo.hosts)
    ]


def blocked(host_ids: list[int]) -> list[int]:
    """Choose the hosts on which the upgrade is forbidden, spread over the fleet."""
    return host_ids[:: max(1, len(host_ids) // BLOCKS)][:BLOCKS]
