"""Which messages of a node have been taken before.

A node numbers what it says. A number that was taken, or that is so far behind the highest that
nobody remembers, is a replay. Messages may overtake each other on the way, so a number that is a
little behind is taken if it has not been; and another key begins another memory.
"""

from __future__ import annotations

from typing import Final

_REMEMBERED: Final = 256  # numbers below the highest
_MASK: Final = (1 << _REMEMBERED) - 1


class Replays:
    """The numbers that were taken, by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[bytes, int, int]] = {}  # key, highest, those below as bits

    def take(self, node: str, key: bytes, seq: int) -> bool:
        """Take a number; false if it was taken before, or may have been."""
        known, highest, below = self._nodes.get(node, (key, -1, 0))
        if known != key:
            highest, below = -1, 0
        if seq > highest:
            # What was the highest is now one of those below.
            ahead = seq - highest
            below = (below << 1 | (highest >= 0)) << ahead - 1 if ahead <= _REMEMBERED else 0
            self._nodes[node] = (key, seq, below & _MASK)
            return True
        behind = 1 << highest - seq - 1 if 0 < highest - seq <= _REMEMBERED else 0
        if not behind or below & behind:
            return False
        self._nodes[node] = (key, highest, below | behind)
        return True
