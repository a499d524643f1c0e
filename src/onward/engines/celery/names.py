"""What goes through the broker, by name. Nothing else is taken from it."""

from __future__ import annotations

from typing import Final

PUBLISH_OUTBOX: Final = "onward.publish_outbox"
RECONCILE: Final = "onward.reconcile"
PLAN_JOB: Final = "onward.plan_job"
RUN_SHARD: Final = "onward.run_shard"
RUN_EXECUTION: Final = "onward.run_execution"

TASKS: Final = frozenset({PUBLISH_OUTBOX, RECONCILE, PLAN_JOB, RUN_SHARD, RUN_EXECUTION})

# What is to be run, and what only keeps things going: a long queue of the one must not hold up the
# other.
RUNS: Final = "onward.runs"
CARE: Final = "onward.care"
QUEUES: Final = (RUNS, CARE)

TRACE: Final = "onward_trace"  # the header that says which request a message comes from

SHARD: Final = 500  # executions that one message names
IDS_MAX: Final = 10_000  # more than we ever send
LIMIT_S: Final = 120  # for a task; none comes near it, because none waits for hosts
