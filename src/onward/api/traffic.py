"""How many requests came, what they were answered, and how long it took.

Counted in plain numbers, because every request pays for it; what Prometheus wants is made of them
when it asks. Routes are told by their template, so that no caller can make up new series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from starlette.types import Scope

TRAFFIC: Final = "onward.traffic"  # where the edge keeps it in the scope of a request

_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_LEFT: Final = 499  # the caller left before there was an answer

Key = tuple[str, str, int]  # route, method, status


class _Tally:
    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.seconds = 0.0


class Traffic:
    """The requests that one application has answered."""

    def __init__(self) -> None:
        self._tallies: dict[Key, _Tally] = {}

    def count(self, scope: Scope, method: str, status: int | None, seconds: float) -> None:
        """Count a request that has been answered."""
        route = scope.get("route")
        key = (
            "none" if route is None else route.path,
            method if method in _METHODS else "other",
            status or _LEFT,
        )
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally()
        tally.buckets[bisect_left(_BOUNDS, seconds)] += 1
        tally.seconds += seconds

    def collect(self) -> Iterator[Metric]:
        """Tell what was counted."""
        requests = CounterMetricFamily(
            "onward_http_requests", "Requests answered.", labels=("route", "method", "status")
        )
        for (route, method, status), tally in self._tallies.items():
            requests.add_metric((route, method, str(status)), sum(tally.buckets))
        yield requests
        durations = HistogramMetricFamily(
            "onward_http_request_duration_seconds",
            "Time from the first byte of a request to the last of its answer.",
            labels=("route", "method"),
        )
        for labels, tally in self._together().items():
            counts = zip((*map(str, _BOUNDS), "+Inf"), accumulate(tally.buckets), strict=True)
            durations.add_metric(labels, list(counts), tally.seconds)
        yield durations

    def _together(self) -> dict[tuple[str, str], _Tally]:
        """Sum up what was answered with different statuses."""
        found: dict[tuple[str, str], _Tally] = {}
        for (route, method, _), tally in self._tallies.items():
            total = found.setdefault((route, method), _Tally())
            total.seconds += tally.seconds
            total.buckets = [a + b for a, b in zip(total.buckets, tally.buckets, strict=True)]
        return found
