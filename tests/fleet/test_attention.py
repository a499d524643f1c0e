"""What somebody should look at is said in one sentence each, the most pressing first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onward.fleet.attention import Concern, attention
from onward.store.overview import DUE_MAX, Standing

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
LIVES = {"name": "runner-1:1", "lives": True, "beat_at": NOW}
LOST = {"name": "runner-2:7", "lives": False, "beat_at": NOW - timedelta(minutes=3)}
LONGER = {"name": "runner-3:9", "lives": False, "beat_at": NOW - timedelta(minutes=30)}
LOST_WORDS = "stopped breathing within the hour, runner-2:7 last; what ran there is begun anew."


def standing(**changes: Any) -> Standing:
    """How things stand when nobody has to look."""
    quiet: dict[str, Any] = {
        "at": NOW,
        "executions": {},
        "jobs": {"open": 0, "waiting": 0, "paused": 0},
        "failing": [],
        "paused": [],
        "overdue": [],
        "outbox": {"n": 0, "oldest_s": 0},
        "commands_due": 0,
    }
    return Standing(**{**quiet, **changes})


def test_nobody_has_to_look_where_all_is_well():
    busy = standing(executions={"QUEUED": 10}, outbox={"n": 3, "oldest_s": 2.5})
    assert attention(busy, [LIVES]) == []


@pytest.mark.parametrize(
    ("changes", "workers", "kind", "text", "job_id", "count"),
    [
        ({}, [], Concern.NO_WORKER, "No worker is there; start one.", None, 0),
        (
            {"executions": {"NEW": 1_000, "QUEUED": 200}},
            [],
            Concern.NO_WORKER,
            "No worker is there; start one. 1,200 executions cannot go on without.",
            None,
            1_200,
        ),
        (
            {},
            [LIVES, LONGER, LOST],
            Concern.WORKER_LOST,
            f"2 workers {LOST_WORDS}",
            None,
            2,
        ),
        (
            {"overdue": [{"job_id": 17, "n": 1}]},
            [LIVES],
            Concern.OVERDUE,
            "Job 17: 1 run past the deadline, ended by nobody.",
            17,
            1,
        ),
        (
            {"outbox": {"n": 4, "oldest_s": 90.4}},
            [LIVES],
            Concern.OUTBOX_STUCK,
            "4 jobs to be planned, and nobody has begun for 2 min.",
            None,
            4,
        ),
        (
            {"failing": [{"job_id": 17, "wrong": 40, "ended": 120}]},
            [LIVES],
            Concern.FAILING,
            "Job 17: 40 of 120 that ended went wrong (33 %).",
            17,
            40,
        ),
        (
            {"paused": [{"job_id": 17, "for_s": 7_200.0, "open": 300}]},
            [LIVES],
            Concern.PAUSED,
            "Job 17 has been paused for 2 h, with 300 executions to go.",
            17,
            300,
        ),
        (
            {"commands_due": 1},
            [LIVES],
            Concern.DUE,
            "1 command past the time for a word.",
            None,
            1,
        ),
        (
            {"commands_due": DUE_MAX},
            [LIVES],
            Concern.DUE,
            "10,000 commands or more past the time for a word.",
            None,
            DUE_MAX,
        ),
    ],
)
def test_what_somebody_should_look_at_is_said_in_a_sentence(
    changes: dict[str, Any],
    workers: list[dict[str, Any]],
    kind: Concern,
    text: str,
    job_id: int | None,
    count: int,
):
    (found,) = attention(standing(**changes), workers)
    assert (found.kind, found.text, found.job_id, found.count) == (kind, text, job_id, count)


def test_the_most_pressing_comes_first():
    found = attention(
        standing(
            failing=[{"job_id": 1, "wrong": 10, "ended": 10}],
            paused=[{"job_id": 2, "for_s": 900.0, "open": 1}],
            overdue=[{"job_id": 3, "n": 2}],
            outbox={"n": 1, "oldest_s": 60.0},
            commands_due=5,
        ),
        [LOST],
    )
    assert [each.kind for each in found] == [
        *(Concern.NO_WORKER, Concern.WORKER_LOST, Concern.OVERDUE, Concern.OUTBOX_STUCK),
        *(Concern.DUE, Concern.FAILING, Concern.PAUSED),
    ]
    assert {each.kind for each in found} == set(Concern)
