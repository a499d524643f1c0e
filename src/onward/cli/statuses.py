"""What the command line makes of statuses: derived from the law, and listed nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onward.core.lifecycles import EXECUTION, LIFECYCLES

ORDER: Final = tuple(map(str, EXECUTION.states))  # of an execution's life
OPEN: Final = tuple(status for status in ORDER if status not in EXECUTION.terminal)

# Ways of going wrong that are told as they come; what was cancelled was meant to be.
BAD: Final = tuple(str(EXECUTION.moves[event].target) for event in ("fail", "timeout", "block"))
RETRIED: Final = BAD[:2]  # what is run again, unless somebody says otherwise

# What an event leads to looks the same in every lifecycle.
_COLOURS: Final = {
    "green": ("succeed", "done", "complete", "fill", "execute"),
    "red": ("fail", "timeout", "ttl_timeout", "invalid", "send_fail", "reject"),
    "yellow": ("block", "busy"),
    "cyan": ("claim", "send", "ack", "deliver", "accept"),
    "dim": ("cancel", "no_effect"),
}


def colours() -> Iterator[tuple[str, str]]:
    """Yield every status that has a colour, with it."""
    for table in LIFECYCLES.values():
        for colour, events in _COLOURS.items():
            yield from (
                (str(table.moves[event].target), colour) for event in events if event in table.moves
            )
