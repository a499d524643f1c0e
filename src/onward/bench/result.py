"""One measured figure, beside what it was measured against and what was promised."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isnan


@dataclass(frozen=True, slots=True)
class Result:
    """A figure. What could not be run has no ratio, and nobody knows whether it holds.

    A value that was not measured is not a number.
    """

    name: str
    value: float
    unit: str
    against: str | None
    ratio: float | None
    target: str
    holds: bool | None

    def as_json(self) -> dict[str, str | float | bool | None]:
        """The figure under the names of its fields; JSON has no word for what is not a number."""
        return {**asdict(self), "value": None if isnan(self.value) else self.value}
