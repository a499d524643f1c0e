"""What Prometheus is told, as it stands at the moment when it asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import GaugeMetricFamily

from onward.api.traffic import Traffic
from onward.core.lifecycles import EXECUTION
from onward.store.browse import Row

_PROCESS = ProcessCollector(registry=None)

# By the column that it is read from.
_SINGLE: Mapping[str, tuple[str, str]] = {
    "jobs_waiting_for_approval": (
        "onward_jobs_waiting_for_approval",
        "Jobs that somebody has to decide about.",
    ),
    "outbox": ("onward_outbox_size", "Words that nobody has taken up yet."),
    "outbox_oldest_s": (
        "onward_outbox_oldest_seconds",
        "How long the oldest of them has been waiting.",
    ),
    "workers": ("onward_workers", "Workers that breathe."),
    "messages_refused": (
        "onward_messages_refused",
        "Messages of the broker that workers have refused.",
    ),
    "overdue": ("onward_executions_overdue", "Runs whose deadline has passed."),
}


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer: the gauges of the database, and what this process has counted."""

    gauges: Row
    traffic: Traffic
    streams: int

    def collect(self) -> Iterator[Metric]:
        """Tell all of it."""
        executions = dict.fromkeys(map(str, EXECUTION.states), 0) | _counts(
            self.gauges["executions"]
        )
        yield _by("onward_executions", "Executions by status.", "status", executions)
        yield _by("onward_hosts", "Hosts by state.", "state", _counts(self.gauges["hosts"]))
        for column, (name, told) in _SINGLE.items():
            yield GaugeMetricFamily(name, told, value=_number(self.gauges[column]))
        yield GaugeMetricFamily(
            "onward_event_streams", "Callers who listen to what changes.", value=self.streams
        )
        yield from self.traffic.collect()
        yield from _PROCESS.collect()


def _by(name: str, told: str, label: str, counts: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, told, labels=(label,))
    for value, count in sorted(counts.items()):
        family.add_metric((value,), count)
    return family


def _counts(value: object) -> dict[str, float]:
    assert isinstance(value, dict)  # noqa: S101 - the query makes an object of it
    return {str(name): _number(count) for name, count in value.items()}


def _number(value: object) -> float:
    assert isinstance(value, (int, float))  # noqa: S101 - the query counts
    return float(value)
