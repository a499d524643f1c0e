"""Draws a storm from a seed: which commands there are, and who says what about them, when."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

SENDERS: Final = ("north", "south")
COPIES: Final = 2


class Story(NamedTuple):
    """What happens to a command, by the events that tell of it."""

    weight: int
    events: tuple[str, ...]
    timeout_s: float = 300.0


STORIES: Final = (
    Story(70, ("send", "ack", "done")),
    Story(4, ("send", "ack", "no_effect")),
    Story(8, ("send", "ack", "fail")),
    Story(3, ("send", "invalid")),
    Story(5, ("send", "busy")),
    # A result that arrives before the second send is refused and kept as a late result, and then
    # nothing but the deadline ends the command; hence a short one.
    Story(8, ("send_fail", "send", "ack", "done"), timeout_s=3.0),
    # The node never answers.
    Story(2, ("send", "ack"), timeout_s=1.0),
)


class Planned(NamedTuple):
    """A command of the storm."""

    cmd_id: str
    story: Story


class Saying(NamedTuple):
    """One event to be said once; it is known by its number, which is its place in the storm."""

    number: int
    cmd_id: str
    event: str
    line: int

    @property
    def sender(self) -> int:
        """Which of the senders says it."""
        return self.line % len(SENDERS)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole storm."""

    commands: tuple[Planned, ...]
    sayings: tuple[Saying, ...]

    def share(self, sender: int) -> list[Saying]:
        """Return what one sender has to say, in its order."""
        return [saying for saying in self.sayings if saying.sender == sender]


def draw(*, commands: int, seed: int, connections: int) -> Plan:
    """Draw the storm that belongs to these figures; every process draws the same one.

    The events of one command take the lines in turn, so that they go out on different connections
    and from different processes at about the same time.
    """
    chance = random.Random(seed)  # noqa: S311 - wanted: the same storm from the same seed
    weights = [story.weight for story in STORIES]
    planned = tuple(
        Planned(str(UUID(int=chance.getrandbits(128), version=4)), story)
        for story in chance.choices(STORIES, weights, k=commands)
    )
    said = [
        (command.cmd_id, event)
        for command in planned
        for event in command.story.events
        for _ in range(COPIES)
    ]
    chance.shuffle(said)
    turns = Counter({command.cmd_id: chance.randrange(connections) for command in planned})
    sayings = []
    for number, (cmd_id, event) in enumerate(said):
        sayings.append(Saying(number, cmd_id, event, turns[cmd_id] % connections))
        turns[cmd_id] += 1
    return Plan(planned, tuple(sayings))


def source_of(sender: int, life: int, number: int) -> str:
    """Name a saying in the timeline, so that every row there can be traced to who said it."""
    return f"{SENDERS[sender]}.{life}/{number}"
