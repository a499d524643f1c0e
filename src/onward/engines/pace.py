"""How much an engine does at once, and how often it looks."""

from __future__ import annotations

from dataclasses import dataclass, field

from onward.core.retry import Backoff


@dataclass(frozen=True, slots=True)
class Pace:
    """The figures of one worker."""

    capacity: int = 2_000  # runs at once
    claim_max: int = 1_000  # claims in one statement
    plan_batch: int = 5_000
    poll_s: float = 0.2  # between looks when there is nothing to do
    beat_s: float = 1.0
    lost_after_s: float = 5.0  # without a breath, a worker's runs are taken from it
    reap_s: float = 1.0
    output_s: float = 0.5  # between two times that the output of what still runs is stored
    grace_s: float = 10.0  # for the way there and back, beyond what the host may take
    drain_s: float = 8.0  # for what runs to end, when the worker is asked to leave
    backoff: Backoff = field(default_factory=lambda: Backoff(base_s=2.0, max_s=30.0))
