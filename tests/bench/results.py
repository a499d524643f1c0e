"""What every figure has to look like, whatever it measures."""

from __future__ import annotations

from onward.bench.result import Result

FIELDS = {"name", "value", "unit", "against", "ratio", "target", "holds"}


def well_formed(result: Result) -> bool:
    """Say whether a figure is whole, and is judged by its own target."""
    assert set(result.as_json()) == FIELDS
    assert result.value > 0
    measured = result.value if result.ratio is None else result.ratio
    sign, bound, _ = result.target.split()
    return result.holds is (measured >= float(bound) if sign == ">=" else measured <= float(bound))
