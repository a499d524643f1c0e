"""Everything that must hold in the tables, as checks; ARCHITECTURE.md says why each does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from onward.core.lifecycle import Lifecycle
from onward.core.lifecycles import LIFECYCLES
from onward.core.retry import Backoff
from onward.fleet.doctor.check import Check, Patient, Repair, query, statement
from onward.fleet.reap import reap
from onward.settings import Settings
from onward.store import doctor
from onward.store.doctor import Place

_NEWEST: Final = 20_000  # rows whose timeline is looked at
_TIMELINES: Final = f"of the newest {_NEWEST:,}"
_GRACE_S: Final = 60.0  # as in doctor.sql: what is noticed late by design is not told at once
_TURNS: Final = 1_000  # of a reaper, each of which puts right a thousand of a kind
_BY_HAND: Final = "Somebody wrote into the tables besides Onward: find out who, and"


def _lost_after(settings: Settings) -> Sequence[object]:
    return (settings.worker_lost_after_s,)


def _newest(_: Settings) -> Sequence[object]:
    return (_NEWEST,)


def _late(_: Settings) -> Sequence[object]:
    """Return where a late result may be found, and which events are results."""
    tables = LIFECYCLES.values()
    return (
        [f"{table.name}.{status}" for table in tables for status in _after_presumed(table)],
        [f"{table.name}.{event}" for table in tables for event in table.results],
    )


def _after_presumed(table: Lifecycle) -> set[str]:
    """Return the statuses that were presumed, and those to which a row may go on from there."""
    found, todo = set(table.presumed), list(table.presumed)
    while todo:
        left = todo.pop()
        reached = {str(way.target) for way in table.moves.values() if left in way.sources}
        todo.extend(reached - found)
        found |= reached
    return found


def _place(place: Place) -> Repair:
    async def do(patient: Patient) -> int:
        return await doctor.repair_place(patient.pool, place, limit_s=patient.limit_s)

    return Repair(f"write the rows of `{place}` anew from the executions", do)


async def _reap(patient: Patient) -> int:
    """Do what a reaper does, turn after turn, until there is nothing left of it."""
    settings = patient.settings
    lost_after_s = settings.worker_lost_after_s + _GRACE_S
    backoff = Backoff(
        base_s=settings.base_backoff_s,
        max_s=settings.max_backoff_s,
        jitter=settings.backoff_jitter,
    )
    left = before = await _to_reap(patient)
    for _ in range(_TURNS):
        if not left:
            break
        await reap(patient.pool, lost_after_s=lost_after_s, backoff=backoff, chance=random.random)
        was, left = left, await _to_reap(patient)
        # What is left is held by somebody, or cannot be reaped: the next look tells it again.
        if left >= was and left < doctor.COUNTED_MAX:
            break
    return before - left


async def _to_reap(patient: Patient) -> int:
    asked = {"lost_runs": _lost_after(patient.settings), "overdue_runs": (), "overdue_commands": ()}
    found = [
        await doctor.breaches(patient.pool, name, *given, limit_s=patient.limit_s)
        for name, given in asked.items()
    ]
    return sum(each.number for each in found)


_REAPED: Final = Repair("do what the reaper of a worker does", _reap)
_START: Final = "Start a worker (`onward up` or `onward worker`)"

INVARIANTS: Final[Sequence[Check]] = (
    Check(
        "statuses",
        "Every status is one that its lifecycle has.",
        query("statuses"),
        f"{_BY_HAND} put back what was there from the timeline.",
        scans=True,
    ),
    Check(
        "execution-clocks",
        "What is open has the clock of its status, and what has ended says when.",
        query("execution_clocks"),
        f"{_BY_HAND} run `onward doctor --repair`.",
        scans=True,
        repair=statement("repair_execution_clocks", "set the clocks that the statuses ask for"),
    ),
    Check(
        "command-clocks",
        "A live command has a deadline or is due, as its status asks; an ended one has neither.",
        query("command_clocks"),
        f"{_BY_HAND} run `onward doctor --repair`.",
        scans=True,
        repair=statement("repair_command_clocks", "set the clocks that the statuses ask for"),
    ),
    Check(
        "order-ends",
        "An order says when it ended exactly if it has.",
        query("order_ends"),
        f"{_BY_HAND} compare its timeline.",
        scans=True,
    ),
    Check(
        "queue",
        "Everything in the queue waits for its host.",
        query("queue_unknown"),
        f"{_BY_HAND} run `onward doctor --repair`.",
        repair=_place("queue"),
    ),
    Check(
        "queued",
        "Everything that waits for its host is in the queue.",
        query("queue_missing"),
        "It would wait for ever: run `onward doctor --repair`.",
        scans=True,
        repair=_place("queue"),
    ),
    Check(
        "runs",
        "Everything in the table of runs is running.",
        query("runs_unknown"),
        f"{_BY_HAND} run `onward doctor --repair`.",
        repair=_place("runs"),
    ),
    Check(
        "running",
        "Everything that runs is in the table of runs.",
        query("runs_missing"),
        "It would never be rescued or timed out: run `onward doctor --repair`.",
        scans=True,
        repair=_place("runs"),
    ),
    Check(
        "failures",
        "Every failure that is known is one.",
        query("failures_unknown"),
        f"{_BY_HAND} run `onward doctor --repair`.",
        repair=_place("failures"),
    ),
    Check(
        "failed",
        "Everything that ended badly is known as a failure.",
        query("failures_missing"),
        "A retry of what failed would pass over it: run `onward doctor --repair`.",
        scans=True,
        repair=_place("failures"),
    ),
    Check(
        "one-at-a-time",
        "A host has one exclusive run at a time.",
        query("exclusive_runs"),
        "Cancel the job of one of them, and look at the host: both may have run.",
        scans=True,
    ),
    Check(
        "counters",
        "The counters of every job are what its executions say.",
        query("counters"),
        f"{_BY_HAND} run `onward doctor --repair`.",
        scans=True,
        repair=statement("repair_counters", "add what is missing from the counters"),
    ),
    Check(
        "totals",
        "A job has as many executions as it was made for.",
        query("totals"),
        "Executions were deleted, or jobs: restore them from a backup, or cancel what is left.",
        scans=True,
    ),
    Check(
        "hosts",
        "Every execution is on a host that is there.",
        query("homeless"),
        "A host was deleted by hand: its executions will end as blocked.",
        scans=True,
    ),
    Check(
        "unapproved",
        "Nothing of a job that waits for approval is planned.",
        query("unapproved"),
        "Cancel the job, and look at what it has done.",
    ),
    Check(
        "rejected",
        "Everything of a job that was rejected is cancelled.",
        query("rejected"),
        "Cancel the job, and look at what it has done.",
        scans=True,
    ),
    Check(
        "four-eyes",
        "Nobody has decided about a job that they asked for or changed.",
        query("four_eyes"),
        "The constraints of `jobs` forbid it: find out who took them away, and look at the job.",
        scans=True,
    ),
    Check(
        "cancelling",
        "A cancelled job is looked after until nothing of it is open.",
        query("cancelling"),
        "Run `onward doctor --repair`, and leave the rest to a worker.",
        scans=True,
        repair=statement("repair_cancelling", "leave them to the reaper again"),
    ),
    Check(
        "finished",
        "Nothing of a job that has finished is open.",
        query("finished"),
        "Run `onward doctor --repair`: it is told again when it has finished.",
        scans=True,
        repair=statement("repair_finished", "take back that they have finished"),
    ),
    Check(
        "planner",
        "The planner has passed over nothing.",
        query("behind_the_planner"),
        "It would never be planned: run `onward doctor --repair`.",
        scans=True,
        repair=statement("repair_behind_the_planner", "let the planner begin before them"),
    ),
    Check(
        "planned",
        "Every job that may be planned is, or somebody is told.",
        query("unplanned"),
        f"{_START}; `onward doctor --repair` tells it again.",
        warns=True,
        repair=statement("repair_unplanned", "tell the workers of them again"),
    ),
    Check(
        "execution-timelines",
        f"The timeline of an execution ends where the execution is ({_TIMELINES}).",
        query("execution_timelines", _newest),
        f"{_BY_HAND} believe the timeline.",
    ),
    Check(
        "command-timelines",
        f"The timeline of a command ends where the command is ({_TIMELINES}).",
        query("command_timelines", _newest),
        f"{_BY_HAND} believe the timeline.",
    ),
    Check(
        "order-timelines",
        f"The timeline of an order ends where the order is ({_TIMELINES}).",
        query("order_timelines", _newest),
        f"{_BY_HAND} believe the timeline.",
    ),
    Check(
        "epochs",
        "No epoch is higher than the last that was drawn.",
        query("epochs"),
        "The sequence was set back, as by a restored dump: run `onward doctor --repair`.",
        scans=True,
        repair=statement("repair_epochs", "set the sequence beyond the highest epoch"),
    ),
    Check(
        "late-results",
        "A late result is kept only where the law keeps it.",
        query("late_results", _late),
        f"{_BY_HAND} compare the timeline.",
        scans=True,
    ),
    Check(
        "outbox",
        "Words for the workers are handed on within a minute.",
        query("outbox"),
        f"{_START}, or look into the log of those that are there.",
        warns=True,
    ),
    Check(
        "lost-runs",
        "Whatever runs has a worker that breathes, or is rescued within a minute.",
        query("lost_runs", _lost_after),
        f"{_START}: the first thing that it does is to rescue them.",
        warns=True,
        repair=_REAPED,
    ),
    Check(
        "overdue-runs",
        "Whatever runs has ended a minute after its deadline.",
        query("overdue_runs"),
        f"{_START}: it ends them.",
        warns=True,
        repair=_REAPED,
    ),
    Check(
        "overdue-commands",
        "A command has timed out a minute after its deadline.",
        query("overdue_commands"),
        f"{_START}, or call `expire_due` in the service that owns them.",
        warns=True,
        repair=_REAPED,
    ),
    Check(
        "due-commands",
        "No command is waiting for somebody to look at it.",
        query("due_commands"),
        "Its lifecycle lets nothing but an event move it: ask the platform, or say what became.",
        warns=True,
    ),
    Check(
        "sendings",
        "What is to be handed over is a command that is open.",
        query("sendings"),
        f"{_START} that reaches those hosts, or run `onward doctor --repair`.",
        warns=True,
        repair=statement("repair_sendings", "take them off what is to be handed over"),
    ),
    Check(
        "unsent",
        "What is to be handed over is, within a minute.",
        query("unsent"),
        f"{_START} with the settings of that channel.",
        warns=True,
    ),
    Check(
        "early-callbacks",
        "No callback waits for a task that nobody has named in two days.",
        query("early_callbacks"),
        "They are about tasks of others: `onward doctor --repair` forgets them.",
        warns=True,
        repair=statement("repair_early_callbacks", "forget them"),
    ),
    Check(
        "agents",
        "Agents are connected to processes that breathe.",
        query("absent_hubs", _lost_after),
        "They count as absent and connect again by themselves: start the process.",
        warns=True,
    ),
    Check(
        "enrolments",
        "No token to enrol with has ended more than a day ago.",
        query("enrolments"),
        "Make new ones where hosts still wait; `onward doctor --repair` deletes the old.",
        warns=True,
        repair=statement("repair_enrolments", "delete them"),
    ),
    Check(
        "sessions",
        "No session of a browser has ended more than a day ago.",
        query("sessions"),
        "Nobody can use them; `onward doctor --repair` deletes them.",
        warns=True,
        repair=statement("repair_sessions", "delete them"),
    ),
)
