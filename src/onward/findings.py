"""What comes of putting a promise to the test: whether it was kept, and what speaks against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether one promise was kept, and what speaks against it."""

    name: str
    promise: str
    basis: str
    breaches: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.breaches

    @property
    def summary(self) -> str:
        """What it rests on or, when it was broken, the first examples of how."""
        if self.holds:
            return self.basis
        more = len(self.breaches) - _EXAMPLES
        return "; ".join(self.breaches[:_EXAMPLES]) + (f"; and {more:,} more" if more > 0 else "")
